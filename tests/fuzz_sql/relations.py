"""The parts that queries are made of, each written in our dialect and in DuckDB's.

DuckDB's relations have three more columns, which no query sees: `_wm`, the watermark of the row's source
partition when it arrived (NULL: never late), and `_p` and `_pos`, its partition and position. `model` assigns
windows when a query is written.
"""

from dataclasses import dataclass, field

from .columns import Column as Col
from .expressions import Expr
from .values import DAY, HOUR, MINUTE, SECOND

HIDDEN = "NULL::BIGINT AS _wm, NULL::BIGINT AS _p, NULL::BIGINT AS _pos"


class Relation:
    """The base of all relations. `columns()` are the Cols; `time` names the event time, None if there is
    none; `edges_of` the columns with a window's start and end; `changes`: rows are retracted; `unique`:
    columns that identify rows; `ordered`: rows of one time are in a known order, by partition and position;
    `table`: it ends and has no watermark."""

    time = None
    changes = False
    ordered = False
    table = False
    unique = ()
    key = ()
    edges_of = ()

    def source(self, to, alias):
        return f"({self.query(to)}) AS {alias}"

    def column(self, name):
        return next(column for column in self.columns() if column.name == name)

    def in_time(self, to, alias):
        """The source without the rows that an interval join or OVER considers late: at or before their own
        watermark."""
        if to.ours or not self.time:
            return self.source(to, alias)
        return f"(SELECT * FROM {self.source(to, alias)} WHERE _wm IS NULL OR epoch_us({self.time}) > _wm) AS {alias}"


@dataclass
class Base(Relation):
    name: str
    cols: list
    time: str
    ordered: bool = True

    def __post_init__(self):
        self.unique = ("id",)
        self.table = self.time is None

    def columns(self):
        return self.cols

    def source(self, to, alias):
        return f"{self.name} AS {alias}"

    def query(self, to, hidden=True):
        return f"SELECT * FROM {self.name}"


@dataclass
class View(Relation):
    """A view, or a name in WITH."""

    input: Relation
    name: str
    cte: bool = False

    def __post_init__(self):
        for what in ("time", "changes", "ordered", "unique", "key", "edges_of", "table"):
            setattr(self, what, getattr(self.input, what))

    def columns(self):
        return self.input.columns()

    def source(self, to, alias):
        if not to.ours:
            return self.input.source(to, alias)
        if self.cte:
            to.ctes[self.name] = self.input.query(to)
        elif self.name not in to.views:
            text = to.statement(self.input)
            to.views[self.name] = f"CREATE VIEW {self.name} AS {text};"
        return f"{self.name} AS {alias}"

    def query(self, to, hidden=True):
        return self.input.query(to, hidden)


@dataclass
class Items:
    """The result of a SELECT: names with expressions."""

    items: list

    def columns(self):
        return [Col(name, e.kind, e.bound, e.approximate or any(part.approximate for part in e.walk())) for name, e in self.items]

    def text(self, to):
        return ", ".join(f"{e.text(to)} AS {name}" for name, e in self.items)

    def rejecting_any(self):
        return any(e.rejects for _, e in self.items)

    def rejecting(self, to):
        return [f"NOT {e.rejecting(to)}" for _, e in self.items if e.rejects]


def where(*conditions):
    conditions = [condition for condition in conditions if condition]
    return " WHERE " + " AND ".join(conditions) if conditions else ""


@dataclass
class Project(Relation):
    input: Relation
    alias: str
    items: Items
    where: Expr = None
    distinct: bool = False
    time: str = None
    unique: tuple = ()
    edges_of: tuple = ()
    key: tuple = ()

    def __post_init__(self):
        self.changes = self.input.changes
        self.ordered = self.input.ordered and not self.distinct
        self.table = self.input.table and not self.distinct

    def columns(self):
        return self.items.columns()

    def query(self, to, hidden=True):
        condition = self.where.text(to) if self.where else None
        source = self.input.source(to, self.alias)
        distinct = "DISTINCT " if self.distinct else ""
        if to.ours:
            return f"SELECT {distinct}{self.items.text(to)} FROM {source}{where(condition)}"
        rejects = self.items.rejecting(to)
        a = self.alias
        more = "" if self.distinct or not hidden else f", {a}._wm, {a}._p, {a}._pos"
        text = f"SELECT {distinct}{self.items.text(to)}{more} FROM {source}{where(condition, *rejects)}"
        return f"SELECT *, {HIDDEN} FROM ({text})" if self.distinct and hidden else text


def interval(micros):
    for unit, size in (("DAY", DAY), ("HOUR", HOUR), ("MINUTE", MINUTE), ("SECOND", SECOND)):
        if micros % size == 0:
            return f"INTERVAL '{micros // size}' {unit}"
    return f"INTERVAL '{micros / SECOND:.6f}' SECOND"


@dataclass
class Windowed(Relation):
    input: Relation
    kind: str
    sizes: list
    partition: list = field(default_factory=list)

    def __post_init__(self):
        self.time = "window_time"
        self.edges_of = ("window_start", "window_end")
        self.ordered = self.input.ordered
        more = () if self.kind in ("TUMBLE", "SESSION") else ("window_number",) if self.kind == "COUNT_WINDOW" else ("window_end",)
        self.unique = tuple(self.input.unique) + more if self.input.unique else ()

    def tick(self):
        return 1 if self.input.column(self.input.time).kind == "TIMESTAMP(6)" else 1000

    def edges(self):
        kind = "TIMESTAMP(6)" if self.tick() == 1 else "TIMESTAMP(3)"
        found = [Col("window_start", kind), Col("window_end", kind), Col("window_time", kind)]
        return found + ([Col("window_number", "BIGINT", 2000)] if self.kind == "COUNT_WINDOW" else [])

    def columns(self):
        return self.input.columns() + self.edges()

    def source(self, to, alias):
        if not to.ours:
            return f"{to.materialise(self)} AS {alias}"
        given = self.input
        inside = f"TABLE {given.source(to, '')[:-4]}" if isinstance(given, (Base, View)) else f"({given.query(to)})"
        by = f" PARTITION BY {', '.join(self.partition)}" if self.partition else ""
        sizes = map(str, self.sizes) if self.kind == "COUNT_WINDOW" else map(interval, self.sizes)
        return f"{self.kind}({inside}{by}, DESCRIPTOR({given.time}), {', '.join(sizes)}) AS {alias}"

    def query(self, to, hidden=True):
        return f"SELECT * FROM {self.source(to, 'w')}"


@dataclass
class Aggregate(Relation):
    input: Relation
    alias: str
    keys: list
    """Names with expressions; for a windowed aggregate the window's edges come first."""
    aggregates: Items
    where: Expr = None
    having: Expr = None
    sets: list = None
    """GROUPING SETS: a list of lists of indexes of keys."""
    windowed: bool = False
    time: str = None
    form: str = None
    """`ROLLUP` or `CUBE` instead of the sets."""

    def __post_init__(self):
        self.changes = not self.windowed
        self.unique = tuple(name for name, _ in self.keys) if not self.sets else ()
        self.key = self.unique if self.changes else ()
        self.edges_of = tuple(name for name, e in self.keys if e.ours.endswith((".window_start", ".window_end"))) if self.windowed else ()

    def columns(self):
        keys = [Col(name, e.kind, e.bound) for name, e in self.keys]
        return keys + self.aggregates.columns()

    def query(self, to, hidden=True):
        items = [f"{e.text(to)} AS {name}" for name, e in self.keys]
        items += [self.aggregates.text(to)] if self.aggregates.items else []
        keys = [e.text(to) for _, e in self.keys]
        by = ""
        if self.sets is not None:
            edges = [key for key, (_, e) in zip(keys, self.keys) if self.windowed and ".window_" in e.ours]
            sets = ", ".join("(" + ", ".join(keys[i] for i in chosen) + ")" for chosen in self.sets)
            if self.form:
                sets = ", ".join(key for key in keys if key not in edges)
            by = " GROUP BY " + ", ".join(edges + [f"{self.form or 'GROUPING SETS'} ({sets})"])
        elif keys:
            # Some keys are named twice, which changes nothing.
            again = [key for key, (name, _) in zip(keys, self.keys) if name.endswith(("0", "5"))]
            by = " GROUP BY " + ", ".join(keys + again)
        having = [self.having.text(to)] if self.having else []
        having = " HAVING " + " AND ".join(having) if having else ""
        more = f", {HIDDEN}" if not to.ours and hidden else ""
        condition = self.where.text(to) if self.where else None
        return f"SELECT {', '.join(items)}{more} FROM {self.input.source(to, self.alias)}{where(condition)}{by}{having}"


@dataclass
class Join(Relation):
    left: Relation
    la: str
    right: Relation
    ra: str
    kind: str
    on: list
    """Conditions, each an Expr."""
    items: Items
    way: str
    """`window`, `interval`, `stream`, `table`."""
    time: str = None
    edges_of: tuple = ()
    unique: tuple = ()
    where: Expr = None
    comma: bool = False
    """An inner join written as `FROM a, b WHERE …`."""
    broadcast: str = ""
    """The side that the hint names, if there is one: the answer is the same without it."""

    def __post_init__(self):
        self.changes = self.way == "stream" and (self.kind != "INNER" or self.left.changes or self.right.changes)
        self.table = False

    def columns(self):
        return self.items.columns()

    def query(self, to, hidden=True):
        place = (lambda side, alias: side.in_time(to, alias)) if self.way == "interval" else (lambda side, alias: side.source(to, alias))
        left, right = place(self.left, self.la), place(self.right, self.ra)
        on = " AND ".join(condition.text(to) for condition in self.on)
        more = "" if to.ours or not hidden else ", " + self.hidden()
        behind = self.where.text(to) if self.where else None
        if self.kind == "CROSS":
            joined, on = f"{left} CROSS JOIN {right}", None
        elif self.comma and self.kind == "INNER":
            joined, behind = f"{left}, {right}", " AND ".join(filter(None, [on, behind]))
        else:
            joined = f"{left} {self.kind} JOIN {right} ON {on}"
            if not to.ours and self.kind in ("LEFT SEMI", "LEFT ANTI"):
                joined = f"{left} {self.kind[5:]} JOIN {right} ON {on}"
        is_hinted = to.ours and self.broadcast and self.kind == "INNER" and not self.comma
        hint = f"/*+ BROADCAST({self.broadcast}) */ " if is_hinted else ""
        return f"SELECT {hint}{self.items.text(to)}{more} FROM {joined}{where(behind)}"

    def hidden(self):
        # A join with a table passes a stream's rows on unchanged.
        stream = self.ra if self.kind == "RIGHT" else self.la
        return f"{stream}._wm, NULL::BIGINT AS _p, NULL::BIGINT AS _pos" if self.way == "table" else HIDDEN


@dataclass
class Temporal(Relation):
    """A join of a stream with the versions of a table."""

    left: Relation
    la: str
    right: Base
    ra: str
    kind: str
    keys: list
    """Pairs of columns that are equal."""
    condition: Expr
    items: Items
    time: str = None
    unique: tuple = ()

    def columns(self):
        return self.items.columns()

    def query(self, to, hidden=True):
        la, ra = self.la, self.ra
        equal = " AND ".join(f"{la}.{a} = {ra}.{b}" for a, b in self.keys)
        condition = self.condition.text(to) if self.condition else None
        if to.ours:
            on = " AND ".join(filter(None, [equal, condition]))
            return f"SELECT {self.items.text(to)} FROM {self.left.source(to, la)} {self.kind} JOIN {self.right.name} FOR SYSTEM_TIME AS OF {la}.{self.left.time} AS {ra} ON {on}"
        in_time = "_wm IS NULL OR epoch_us({0}) >= _wm"
        left = f"(SELECT *, row_number() OVER () AS _n FROM {self.left.source(to, la)} WHERE {in_time.format(self.left.time)})"
        right = f"(SELECT * FROM {self.right.source(to, ra)} WHERE {in_time.format(self.right.time)})"
        names = [column.name for column in self.right.columns()]
        versions = ", ".join(f"{ra}.{name} AS r_{name}" for name in names)
        newest = f"row_number() OVER (PARTITION BY {la}._n ORDER BY {ra}.{self.right.time} DESC, {ra}._p DESC, {ra}._pos DESC)"
        pairs = f"SELECT {la}._n, {versions}, {newest} AS _newest FROM {left} AS {la} JOIN {right} AS {ra} ON {equal} AND {ra}.{self.right.time} <= {la}.{self.left.time}"
        renamed = ", ".join(f"r_{name} AS {name}" for name in names)
        version = f"(SELECT _n, {renamed} FROM ({pairs}) WHERE _newest = 1)"
        more = f", {HIDDEN}" if hidden else ""
        on = " AND ".join(filter(None, [f"{la}._n = {ra}._n", condition]))
        return f"SELECT {self.items.text(to)}{more} FROM {left} AS {la} {self.kind} JOIN {version} AS {ra} ON {on}"


@dataclass
class Exists(Relation):
    """IN and EXISTS, and their opposites, in WHERE."""

    input: Relation
    alias: str
    form: str
    sub: Relation
    sub_alias: str
    on: list
    probe: Expr
    chosen: Expr
    """For IN: the pairs that are compared."""
    items: Items
    way: str
    time: str = None
    unique: tuple = ()
    edges_of: tuple = ()
    where: Expr = None

    def __post_init__(self):
        self.changes = (self.way == "stream" and (self.form.startswith("NOT") or self.sub.changes)) or self.input.changes
        self.ordered = self.way == "table" and self.input.ordered

    def columns(self):
        return self.items.columns()

    def query(self, to, hidden=True):
        place = (lambda side, alias: side.in_time(to, alias)) if self.way == "interval" else (lambda side, alias: side.source(to, alias))
        on = [condition.text(to) for condition in self.on]
        a = self.alias
        if self.form.endswith("EXISTS"):
            test = f"{self.form} (SELECT 1 FROM {place(self.sub, self.sub_alias)}{where(*on)})"
        else:
            # Where neither side may be NULL, as `NOT IN` requires.
            probe, chosen = self.probe.text(to), self.chosen.text(to)
            nulls = [f"{chosen} IS NOT NULL"] if self.form == "NOT IN" else []
            test = f"{probe} {self.form} (SELECT {chosen} FROM {place(self.sub, self.sub_alias)}{where(*nulls, *on)})"
            test = f"{probe} IS NOT NULL AND {test}" if nulls else test
        more = "" if to.ours or not hidden else f", {a}._wm, {a}._p, {a}._pos" if self.way == "table" else ", " + HIDDEN
        behind = self.where.text(to) if self.where else None
        return f"SELECT {self.items.text(to)}{more} FROM {place(self.input, a)}{where(behind, test)}"


@dataclass
class Frame:
    """An OVER: `function` is an Expr whose arguments are `{0}`, …."""

    function: Expr
    partition: list
    frame: str
    peers: bool
    """Whether rows of one time are counted together; otherwise they are in the order of their partitions."""


@dataclass
class Over(Relation):
    input: Relation
    alias: str
    items: Items
    functions: list
    """Names with Frames."""
    time: str = None
    unique: tuple = ()

    def columns(self):
        made = [Col(name, f.function.kind, f.function.bound, f.function.approximate) for name, f in self.functions]
        return self.items.columns() + made

    def query(self, to, hidden=True):
        parts = [self.items.text(to)]
        for name, made in self.functions:
            by = f"PARTITION BY {', '.join(made.partition)} " if made.partition else ""
            order = f"{self.alias}.{self.input.time}"
            if not to.ours and not made.peers:
                order += f", {self.alias}._p, {self.alias}._pos"
            parts.append(f"{made.function.text(to)} OVER ({by}ORDER BY {order}{' ' + made.frame if made.frame else ''}) AS {name}")
        more = "" if to.ours or not hidden else f", {HIDDEN}"
        return f"SELECT {', '.join(parts)}{more} FROM {self.input.in_time(to, self.alias)}"


@dataclass
class TopN(Relation):
    input: Relation
    alias: str
    partition: list
    order: list
    """(column, `ASC` or `DESC`, the text about NULLs, whether they come first)"""
    rows: int
    number: str
    """The name of the row number, None if it is left out."""
    qualify: bool
    final: bool
    time: str = None
    """Whether the partition includes a window's edges."""

    def __post_init__(self):
        self.changes = not self.final
        self.unique = self.input.unique
        self.key = tuple(self.partition) + (self.number,) if self.number else ()

    def columns(self):
        return self.input.columns() + ([Col(self.number, "BIGINT", 2000)] if self.number else [])

    def query(self, to, hidden=True):
        by = f"PARTITION BY {', '.join(f'{self.alias}.{name}' for name in self.partition)} " if self.partition else ""
        orders = []
        for name, direction, nulls, first in self.order:
            text = nulls if to.ours else f" NULLS {'FIRST' if first else 'LAST'}"
            orders.append(f"{self.alias}.{name} {direction}{text}")
        over = f"ROW_NUMBER() OVER ({by}ORDER BY {', '.join(orders)})"
        names = ", ".join(column.name for column in self.input.columns())
        behind = f", {self.number}" if self.number else ""
        more = "" if to.ours or not hidden else f", {HIDDEN}"
        source = self.input.source(to, self.alias)
        if self.qualify and to.ours:
            shown = f", {over} AS {self.number}" if self.number else ""
            return f"SELECT {names}{shown} FROM {source} QUALIFY {over} <= {self.rows}"
        number = self.number or "rn"
        return f"SELECT {names}{behind}{more} FROM (SELECT {names}, {over} AS {number} FROM {source}) WHERE {number} <= {self.rows}"


@dataclass
class Union(Relation):
    inputs: list
    all: bool
    time: str = None

    def __post_init__(self):
        self.changes = any(given.changes for given in self.inputs)

    def columns(self):
        every = [given.columns() for given in self.inputs]
        found = []
        for columns in zip(*every):
            bounds = [column.bound for column in columns]
            bound = None if None in bounds else max(bounds)
            found.append(Col(columns[0].name, columns[0].kind, bound, any(column.approximate for column in columns)))
        return found

    def query(self, to, hidden=True):
        joiner = " UNION ALL " if self.all else " UNION "
        if to.ours or self.all or not hidden:
            return joiner.join(given.query(to, hidden) for given in self.inputs)
        return f"SELECT *, {HIDDEN} FROM ({joiner.join(given.query(to, False) for given in self.inputs)})"


@dataclass
class Scalar(Expr):
    """A subquery that returns one value."""

    sub: Relation = None

    def text(self, to):
        return f"({self.sub.query(to, False)})"
