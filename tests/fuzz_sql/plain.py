"""Queries that the naive model alone answers, in Python: windows with counts and sums, including late rows.
They are checked without DuckDB, too."""

from collections import Counter

from . import model, values
from .case import Query
from .expressions import Seen, call
from .queries import Generator
from .relations import Aggregate, Base, Items

KIND = "windows, by the model alone"


def query(rng, name, tables):
    table = rng.choice([table for table in tables if table.time])
    base = Base(table.name, table.visible(), table.time)
    generator = Generator(rng, tables)
    windowed = generator.windowed(base)
    windowed.partition = ["g"] if windowed.partition else []
    edges = ["window_start", "window_end"] + (["window_number"] if windowed.kind == "COUNT_WINDOW" else []) + windowed.partition
    keys = [(f"k{n}", Seen(f"a.{edge}", windowed.column(edge).kind).expr()) for n, edge in enumerate(edges)]
    aggregates = [("n", call("BIGINT", "COUNT(*)", [], what="COUNT(*)")), ("total", call("BIGINT", "SUM({0})", [Seen("a.id", "BIGINT", 2000).expr()], what="SUM int")), ("least", call("BIGINT", "MIN({0})", [Seen("a.id", "BIGINT", 2000).expr()]))]
    late = name + "_late" if windowed.kind != "SESSION" and rng.random() < 0.6 else None
    return Query(name, KIND, Aggregate(windowed, "a", keys, Items(aggregates), windowed=True), late=late)


def wanted(query, tables):
    """The answer, and the ids of late rows."""
    windowed = query.relation.input
    table = next(table for table in tables if table.name == windowed.input.name)
    names = [column.name for column in table.visible()]
    time, key, number = names.index(table.time), names.index("g") if windowed.partition else None, names.index("id")
    rows = table.read()
    # NULL is a key like any other.
    given = [(n, cells[time], watermark, partition, position, cells[key] if key is not None else 0) for n, (cells, partition, position, watermark) in enumerate(rows)]
    windows, late = model.assign(windowed.kind, windowed.sizes, given, windowed.tick())
    groups = {}
    for window in windows:
        cells = rows[window.row][0]
        at = (window.start, window.end) + ((window.number,) if window.number is not None else ()) + ((cells[key],) if key is not None else ())
        groups.setdefault(at, []).append(cells[number])
    found = Counter()
    for at, ids in groups.items():
        cells = list(at) + [len(ids), sum(ids), min(ids)]
        found[tuple(values.same(c.kind, cell) for c, cell in zip(query.columns(), cells))] += 1
    return found, Counter((str(rows[row][0][number]),) for row in late)
