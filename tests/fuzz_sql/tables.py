"""Random tables: their columns, rows, partitions and watermarks; and tables of real data."""

import csv
import decimal
import json
import os
from dataclasses import dataclass

from . import known, values
from .columns import Column
from .values import DAY, HOUR, MINUTE, SECOND

START = 1_704_067_200 * SECOND
"""2024-01-01; event times are around it."""


@dataclass
class Table:
    name: str
    columns: list
    """The columns of the file."""
    files: list
    """A list of rows for each file, which is a partition. A row is a list of cells, or a string: a line that
    is not a valid record."""
    time: str = None
    """The column of event time: one of `columns`, or `ts`, computed from `ms`."""
    delay: int = 0
    rate: int = 0
    computed: bool = False
    real: bool = False
    json: bool = False

    def visible(self):
        """The columns that a query sees."""
        return self.columns + ([Column("ts", "TIMESTAMP(3)")] if self.computed else [])

    def path(self, number):
        return f"{self.name}-{number}.{self.extension()}" if len(self.files) > 1 else f"{self.name}.{self.extension()}"

    def pattern(self):
        return self.path("*")

    def extension(self):
        return "json" if self.json else "csv"

    def ddl(self):
        columns = [f"{column.name} {column.kind}" for column in self.columns]
        if self.computed:
            columns.append("ts AS TO_TIMESTAMP_LTZ(ms, 3)")
        if self.time:
            delay = f" - INTERVAL '{self.delay / SECOND:.6f}' SECOND" if self.delay else ""
            columns.append(f"WATERMARK FOR {self.time} AS {self.time}{delay}")
        options = f"'connector' = 'file', 'path' = '{self.pattern()}', " + ("'format' = 'json'" if self.json else f"'csv.null' = '{values.NULL}'")
        options += f", 'replay_rate' = '{self.rate}/s'" if self.rate else ""
        return f"CREATE TABLE {self.name} ({', '.join(columns)}) WITH ({options});"

    def write(self, folder):
        for number, rows in enumerate(self.files):
            with open(os.path.join(folder, self.path(number)), "w", encoding="utf-8") as out:
                for row in rows:
                    out.write((row if isinstance(row, str) else self.record(row)) + "\n")

    def record(self, row):
        if not self.json:
            return ",".join(map(values.field, self.kinds(), row))
        cells = {}
        for column, value in zip(self.columns, row):
            plain = value is None or isinstance(value, (bool, float, str)) or column.kind in values.INTEGERS
            # A number that is exact in a double, or the value as in the CSV file.
            cells[column.name] = value if plain else float(value) if values.is_decimal(column.kind) else values.text(column.kind, value)
        return json.dumps({name: value for name, value in cells.items() if value is not None or len(name) > 1})

    def kinds(self):
        return [column.kind for column in self.columns]

    def row_count(self):
        return sum(len(rows) for rows in self.files)

    def read(self):
        """What the program reads: (cells of the visible columns, partition, position, watermark at the row) of each good row.

        The watermark is that of the row's own partition before the row: the largest event time so far less
        the delay. A row whose event time is NULL is rejected, and so is a line that is not a valid record;
        neither moves a watermark."""
        names = [column.name for column in self.columns]
        at = names.index("ms" if self.computed else self.time) if self.time else None
        found = []
        for partition, rows in enumerate(self.files):
            largest = None
            for position, row in enumerate(rows):
                if isinstance(row, str) or (at is not None and row[at] is None):
                    continue
                cells = row + ([None if row[at] is None else row[at] * 1000] if self.computed else [])
                watermark = None if largest is None else largest - self.delay
                found.append((cells, partition, position, watermark))
                if at is not None:
                    time = row[at] * 1000 if self.computed else row[at]
                    largest = time if largest is None else max(largest, time)
        return found

    def bad(self):
        return self.row_count() - len(self.read())


STRINGS = ["a", "b", "c", "ab", "", "A b", "it's", "ä", "x,y", 'q"u', "10%", "a_b", " a", "Zz"]
NUMBERS = ["12", "-7", "0", "abc", "", " 5", "1.5", "99999999999", "007", "1e3"]
DOUBLES = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e300, -1e300, 1e-300, 1.5, -2.25]
FLOATS = [float("nan"), float("inf"), -0.0, 0.0, 1.5, -2.25, 16777216.0]


def cell(rng, column):
    """A random value from the pool of each kind of column; the names define the pools."""
    name, kind = column.name, column.kind
    if name != "id" and rng.random() < 0.12:
        return None
    if kind in values.INTEGERS:
        if column.bound is not None:
            return rng.choice([0, 1, 2, 3]) if column.bound < 5 else rng.randint(-column.bound, column.bound)
        limit = values.INTEGERS[kind]
        return rng.choice([-limit, limit - 1, 0, 1, -1, 2, -limit + 1, limit // 2])
    if kind in ("FLOAT", "DOUBLE"):
        if column.bound is not None:
            return rng.randint(-4 * column.bound, 4 * column.bound) / 4
        return rng.choice(DOUBLES if kind == "DOUBLE" else FLOATS)
    if values.is_decimal(kind):
        return rng.choice([decimal.Decimal(rng.randint(-9000, 9000)) / 1000, decimal.Decimal(rng.randint(-9, 9)) / 2]).quantize(
            decimal.Decimal("0.001")
        )
    if kind == "BOOLEAN":
        return rng.random() < 0.5
    if kind == "DATE":
        return rng.choice([0, -1, 1, 19782, 19783, 19784, -719162, 2932896, 11016, 19782 + rng.randint(-400, 400)])
    if values.is_time(kind):
        unit = 10 ** (6 - values.digits(kind))
        far = [-62135596800 * SECOND, 253402300799 * SECOND] if known.FAR_TIMES else [-9_000_000_000 * SECOND, 9_000_000_000 * SECOND]
        micros = rng.choice([0, -1, 1, -SECOND // 2, START, START + rng.randint(-2, 2) * HOUR, START + rng.randint(-DAY, DAY), *far])
        return micros // unit * unit
    return rng.choice(NUMBERS if name == "s" else STRINGS if rng.random() < 0.2 else STRINGS[:4])


POOL = [
    Column("k", "INT", 4),
    Column("g", "STRING"),
    Column("x", "INT", 100),
    Column("b", "BIGINT"),
    Column("y", "SMALLINT", 90),
    Column("z", "TINYINT", 10),
    Column("i", "INT"),
    Column("d", "DOUBLE", 1000),
    Column("e", "DOUBLE"),
    Column("f", "FLOAT", 64),
    Column("m", "DECIMAL(12, 3)", 10),
    Column("p", "BOOLEAN"),
    Column("dt", "DATE"),
    Column("t3", "TIMESTAMP(3)"),
    Column("t6", "TIMESTAMP(6)"),
    Column("s", "STRING"),
]


def stream(rng, name, rows=None, times=True, rate=0):
    """A random table; with `times`, one with event time and a watermark."""
    columns = [Column("id", "BIGINT", 2000)]
    computed = times and rng.random() < 0.6
    precision = rng.choice(["TIMESTAMP(3)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(0)"])
    if times:
        columns.append(Column("ms", "BIGINT") if computed else Column("ts", precision))
    columns += POOL[:3] + sorted(rng.sample(POOL[3:], rng.randint(2, 6)), key=lambda column: column.name)
    rows = rows if rows is not None else rng.choices([0, 1, 5, 20, 40, 60, 100, 160], [1, 1, 2, 4, 6, 6, 4, 4])[0]
    partitions = rng.choice([1, 1, 1, 2, 3])
    # JSON has no NaN and no infinity.
    in_json = rng.random() < 0.2
    columns = [column for column in columns if column.name != "e" or not in_json]
    table = Table(name, columns, [[] for _ in range(partitions)], "ts" if times else None, computed=computed, rate=rate, json=in_json)
    span = rng.choice([10, 60, 600]) * SECOND
    start = rng.choice([START, START, START, 0, -3 * DAY, START + 1_234_567])
    disorder = rng.choice([0, 0, SECOND, 5 * SECOND, span])
    # With a delay that covers the disorder no row is late; with a shorter one some are.
    table.delay = rng.choice([0, SECOND // 2, SECOND, 5 * SECOND, HOUR, span, span + disorder]) if times else 0
    unit = 1000 if computed else 10 ** (6 - values.digits(precision))
    step = rng.choice([unit, unit, 100_000, SECOND])
    for row in range(rows):
        time = start + row * span // max(rows, 1) + (rng.randint(-disorder, 0) if disorder else 0)
        time = time // step * step // unit * unit
        cells = [row + 1] + [cell(rng, column) for column in columns[1:]]
        if times:
            cells[1] = None if rng.random() < 0.01 else time // 1000 if computed else time
        table.files[rng.randrange(partitions)].append(cells)
        if rng.random() < 0.003:
            table.files[0].append("not a record of this table")
    if times and rows > 3 and rng.random() < 0.05:
        # A row far ahead: later rows of its partition are late.
        cells = rng.choice([row for rows in table.files for row in rows if not isinstance(row, str)])
        if cells[1] is not None:
            cells[1] += 1000 * DAY // (1000 if computed else 1)
    return table


REAL = {
    "flights": ("nycflights13_by_departure.csv", True, [("dep_ms", "BIGINT", None), ("ms", "BIGINT", None), ("g", "STRING", None), ("dest", "STRING", None), ("carrier", "STRING", None), ("x", "INT", 2000), ("id", "BIGINT", 400_000)]),
    "quakes": ("usgs_quakes_by_arrival.csv", True, [("arrival_ms", "BIGINT", None), ("ms", "BIGINT", None), ("code", "STRING", None), ("g", "STRING", None), ("e", "DOUBLE", None), ("lon", "DOUBLE", None), ("lat", "DOUBLE", None), ("depth", "DOUBLE", None)]),
}


def real(rng, name, which, data, rows):
    """A part of a real file, in its order, with event time and a delay that leaves some rows late. An `id` is
    the line's number."""
    file, header, described = REAL[which]
    columns = [Column(*column) for column in described]
    at = rng.random()
    with open(os.path.join(data, file), newline="") as lines:
        every = list(csv.reader(lines))[1 if header else 0 :]
    start = int(at * max(1, len(every) - rows))
    parsed = [[None if text in ("", "NA") else values.parse(column.kind, text) for column, text in zip(columns, line)] for line in every[start : start + rows]]
    if "id" not in [column.name for column in columns]:
        columns = columns + [Column("id", "BIGINT", 400_000)]
        parsed = [row + [number] for number, row in enumerate(parsed)]
    delay = rng.choice([0, 15 * MINUTE, HOUR, 6 * HOUR, 100 * DAY])
    return Table(name, columns, [parsed], "ts", delay, computed=True, real=True)
