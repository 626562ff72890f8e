"""The generator of queries: how parts are combined, within what docs/sql.md allows."""

import re

from . import known, values
from .aggregates import aggregate
from .dialects import Ours
from .expressions import Expr, Maker, Seen, call
from .joins import Joins
from .relations import Aggregate, Base, Frame, Items, Over, Project, Relation, Scalar, TopN, Union, View, Windowed
from .values import HOUR, MINUTE, SECOND

SIZES = [SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, MINUTE, SECOND // 2, 7 * SECOND]


def sql(relation):
    """The query, its views, and the names of its parts, by which known findings are recognized."""
    to = Ours()
    return "\n".join([to.statement(relation), *to.views.values(), *sorted(set(tried(relation)))])


def tried(node):
    """The names of all parts and expressions of a query."""
    if isinstance(node, Expr):
        for part in node.walk():
            if part.what:
                yield part.what
    elif isinstance(node, Relation):
        name = type(node).__name__
        yield " ".join(filter(None, [name, getattr(node, "kind", None), getattr(node, "way", None), getattr(node, "form", None)]))
    if isinstance(node, (list, tuple)):
        for part in node:
            yield from tried(part)
    elif isinstance(node, (Relation, Items, Frame, Expr)) and not (isinstance(node, Expr) and not isinstance(node, Scalar)):
        for value in vars(node).values():
            yield from tried(value)


class Generator(Joins):
    def __init__(self, rng, tables):
        self.rng, self.names, self.views, self.deep = rng, 0, [], 0
        bases = [Base(t.name, [column for column in t.visible()], t.time) for t in tables]
        self.streams = [base for base in bases if base.time]
        self.ended = [base for base in bases if not base.time]
        self.real = any(t.real for t in tables)
        self.sizes = [HOUR, 6 * HOUR, 24 * HOUR, 15 * MINUTE] if self.real else SIZES
        self.small = sum(t.row_count() for t in tables) <= 400

    def name(self, prefix="c"):
        self.names += 1
        return f"{prefix}{self.names}"

    def chance(self, probability):
        return self.rng.random() < probability

    def query(self, only=None):
        """A random query of a kind that matches `only`: (its kind, relation)."""
        kinds = [
            (10, "projection", lambda: self.projected(self.rows(), many=True, rejecting=True)),
            (10, "window aggregate", lambda: self.window_aggregate()),
            (4, "window rows", lambda: self.projected(self.windowed())),
            (6, "window join", self.window_join),
            (6, "interval join", self.interval_join),
            (6, "stream join", self.stream_join),
            (5, "table join", self.table_join),
            (4, "temporal join", self.temporal_join),
            (8, "semi and anti join", self.exists),
            (7, "OVER", self.over),
            (5, "top-N", self.top),
            (4, "window top-N", self.window_top),
            (5, "GROUPING SETS", self.sets),
            (4, "union", self.union),
            (7, "running aggregate", self.running),
            (5, "aggregate of an aggregate", self.running_twice),
            (3, "scalar subquery", self.scalar),
            (4, "windows of windows", self.windows_of_windows),
            (3, "DISTINCT", lambda: self.projected(self.rows(), distinct=True)),
            (4, "aggregate behind a join", self.behind_join),
        ]
        kinds = [kind for kind in kinds if not only or re.search(only, kind[1])]
        while True:
            weights = [weight for weight, _, _ in kinds]
            _, kind, make = self.rng.choices(kinds, weights)[0]
            made = make()
            if made is None:
                continue
            if self.chance(0.15):
                made = self.wrapped(made)
            if known.known(sql(made)) and not self.chance(known.MADE):
                continue
            return kind, made

    # Inputs.

    def scope(self, relation, alias):
        return [Seen(f"{alias}.{c.name}", c.kind, c.bound, c.approximate) for c in relation.columns()]

    def rows(self, time=False):
        """Rows that are not retracted: a table, a part of it, a view."""
        rng = self.rng
        if self.deep < 2 and self.chance(0.15):
            self.deep += 1
            made = rng.choice([self.union_rows, self.interval_join, self.table_join, self.temporal_join, self.over, lambda: self.window_aggregate(time=True)])()
            self.deep -= 1
            if made is not None and made.time and not made.changes:
                return made
        base = rng.choice(self.streams if time or not self.ended or self.chance(0.8) else self.ended)
        return self.part(base) if self.chance(0.4) else base

    def union_rows(self):
        """The rows of two tables together: each row keeps the watermark of its own partition."""
        first, second = self.rng.choice(self.streams), self.rng.choice(self.streams)
        if first.column(first.time).kind != second.column(second.time).kind:
            return None
        names, inputs = {}, []
        for column in first.columns():
            if column.name == first.time or any(column == other for other in second.columns()):
                names[column.name] = self.name()
        for base in (first, second):
            alias, time = self.name("a"), {first.time: base.time}
            items = []
            for name, new in names.items():
                column = base.column(time.get(name, name))
                items.append((new, Seen(f"{alias}.{column.name}", column.kind, column.bound).expr()))
            where = Maker(self.rng, self.scope(base, alias)).make("boolean", 2) if self.chance(0.4) else None
            inputs.append(Project(base, alias, Items(items), where))
        return Union(inputs, True, names[first.time])

    def part(self, base):
        """Some columns and rows of a table, sometimes as a view, which other queries use again."""
        if self.views and self.chance(0.3):
            fitting = [view for view in self.views if view.time]
            if fitting:
                return self.rng.choice(fitting)
        made = self.projected(base, keep_time=True)
        if self.chance(0.5):
            made = View(made, self.name("v"), self.chance(0.4))
            self.views.append(made)
        return made

    def projected(self, relation, many=False, rejecting=False, distinct=False, keep_time=False):
        rng, alias = self.rng, self.name("a")
        scope = self.scope(relation, alias)
        maker = Maker(rng, scope)
        items, unique, edges, renamed = [], [], [], {}
        for column in relation.columns():
            must = keep_time and (column.name in relation.unique or column.name == relation.time)
            if must or (not distinct and (column.name == "id" or self.chance(0.5))):
                name = self.name()
                items.append((name, Seen(f"{alias}.{column.name}", column.kind, column.bound, column.approximate).expr()))
                renamed[column.name] = name
        for _ in range(rng.randint(1, 5) if many else rng.randint(0, 2) + distinct):
            made = maker.rejecting() if rejecting and self.chance(0.15) else None
            items.append((self.name(), made or maker.any(1 if distinct else 3)))
        where = maker.make("boolean", 3) if self.chance(0.5) else None
        if rejecting and self.chance(0.1) and (failing := maker.rejecting()) is not None:
            # A cast that fails in a condition leaves its row out, too.
            op = rng.choice([">", "<", "<>"])
            where = call("BOOLEAN", f"({{0}} {op} 6)", [failing], what="a failing expression in WHERE")
        if not items:
            items.append((self.name(), maker.any_leaf()))
        whole = all(name in renamed for name in relation.unique)
        unique = tuple(renamed[name] for name in relation.unique) if whole and not distinct else ()
        edges = tuple(renamed[name] for name in relation.edges_of if name in renamed)
        return Project(relation, alias, Items(items), where, distinct, renamed.get(relation.time), unique, edges if len(edges) == 2 else ())

    def wrapped(self, made):
        """The query again, as an input: of a condition, a view, a subquery."""
        if isinstance(made, Project) and made.items.rejecting_any():
            return made
        return self.projected(made)

    # Windows.

    def windowed(self, relation=None, kinds=None):
        rng = self.rng
        relation = relation or self.rows(time=True)
        kind = rng.choice(kinds or ["TUMBLE", "TUMBLE", "HOP", "HOP", "CUMULATE", "SESSION", "SESSION", "COUNT_WINDOW"])
        size, partition = rng.choice(self.sizes), []
        if kind == "HOP":
            slide = rng.choice(self.sizes)
            sizes = [slide, max(size, slide // 2)] if size < 20 * slide else [size // 2, size]
        elif kind == "CUMULATE":
            sizes = [size, size * rng.randint(1, 5)]
        elif kind == "COUNT_WINDOW":
            if not relation.ordered:
                return self.windowed(relation, ["TUMBLE"])
            n = rng.randint(1, 5)
            sizes = [n] if self.chance(0.6) else [rng.randint(1, n), n]
        else:
            sizes = [size]
        if kind in ("SESSION", "COUNT_WINDOW") and self.chance(0.6):
            small = [c.name for c in relation.columns() if c.kind in ("STRING", "INT", "BOOLEAN") and c.name != relation.time and not c.approximate]
            partition = rng.sample(small, min(len(small), rng.choice([1, 1, 2])))
        return Windowed(relation, kind, sizes, partition)

    def window_aggregate(self, windowed=None, time=None, keys=None):
        rng = self.rng
        windowed = windowed or self.windowed()
        alias = self.name("a")
        scope = self.scope(windowed, alias)
        inner = [column for column in scope if ".window_" not in column.ref]
        edges = ["window_start", "window_end"]
        edges += ["window_number"] if windowed.kind == "COUNT_WINDOW" else []
        edges += ["window_time"] if time or (time is None and self.chance(0.3)) else []
        keys_ = [(self.name(), Seen(f"{alias}.{edge}", windowed.column(edge).kind).expr()) for edge in edges]
        at = keys_[edges.index("window_time")][0] if "window_time" in edges else None
        if windowed.kind in ("SESSION", "COUNT_WINDOW") and self.chance(0.7):
            keys_ += [(self.name(), Seen(f"{alias}.{name}", windowed.column(name).kind, windowed.column(name).bound).expr()) for name in windowed.partition]
        else:
            keys_ += self.keys(inner, rng.choice([0, 1, 1, 2]) if keys is None else keys)
        order = f"{alias}.{windowed.input.time}, {alias}._p, {alias}._pos" if windowed.ordered else None
        aggregates = [(self.name(), aggregate(rng, inner, order)) for _ in range(rng.randint(1, 4))]
        aggregates += self.alike(aggregates)
        having = self.having(inner, aggregates) if self.chance(0.25) else None
        where = Maker(rng, inner).make("boolean", 2) if self.chance(0.25) else None
        return Aggregate(windowed, alias, keys_, Items(aggregates), where, having, windowed=True, time=at)

    def alike(self, aggregates):
        """Sometimes one of the aggregates again, with its argument cast to another type: the two must be
        distinguished."""
        _, made = self.rng.choice(aggregates)
        if self.chance(0.15) and len(made.args) == 1 and made.what.startswith(("SUM", "COUNT", "MIN", "MAX")) and values.family(made.args[0].kind) in ("int", "double") and made.args[0].bound is not None:
            kind = "DOUBLE" if values.family(made.args[0].kind) == "int" else "BIGINT"
            inner = "CAST({0} AS DOUBLE)" if kind == "DOUBLE" else "CAST(trunc({0}) AS BIGINT)"
            cast = call(kind, f"CAST({{0}} AS {kind})", made.args, inner, bound=made.args[0].bound, what="the same aggregate of a CAST")
            return [(self.name(), Expr(made.kind if made.what.startswith("COUNT") else kind, made.ours, made.duck, [cast], made.bound, made.what))]
        return []

    def keys(self, scope, count):
        """Columns, mostly of few values, and sometimes expressions."""
        rng = self.rng
        found = []
        few = [c for c in scope if (c.kind in ("STRING", "BOOLEAN", "DATE", "DOUBLE", "FLOAT") or (c.bound or 1000) < 20) and not c.approximate]
        for _ in range(count):
            if self.chance(0.2):
                made = Maker(rng, scope).make(rng.choice(["int", "string", "boolean"]), 1)
                # A constant is not a key of GROUP BY, and a number there denotes a column.
                if not any("." in part.ours and not part.args for part in made.walk()):
                    continue
            elif few:
                made = rng.choice(few).expr()
            else:
                continue
            if made.ours not in [key.ours for _, key in found]:
                found.append((self.name(), made))
        return found

    def having(self, scope, aggregates):
        rng = self.rng
        fitting = [made for _, made in aggregates if values.family(made.kind) == "int" and not made.approximate]
        made = rng.choice(fitting) if fitting else call("BIGINT", "COUNT(*)", [], what="COUNT(*)")
        return call("BOOLEAN", f"({{0}} {rng.choice(['>', '<', '<>', '>='])} {rng.choice([0, 1, 2, 5])})", [made], what="HAVING")

    # Functions of earlier rows, and the first rows.

    def over(self):
        rng = self.rng
        input = self.rows(time=True)
        alias = self.name("a")
        scope = self.scope(input, alias)
        functions = []
        for _ in range(rng.randint(1, 3)):
            partition = [key.ours for _, key in self.keys(scope, rng.choice([0, 1, 1, 2])) if not key.args]
            roll = rng.randrange(5)
            order = f"{alias}.{input.time}, {alias}._p, {alias}._pos"
            if roll == 0:
                name = rng.choice(["ROW_NUMBER()", "RANK()", "DENSE_RANK()"])
                made = Frame(call("BIGINT", name, [], bound=2000), partition, "", name != "ROW_NUMBER()")
            elif roll == 1:
                a, n = Maker(rng, scope).any_leaf(), rng.randint(1, 3)
                made = Frame(call(a.kind, rng.choice(["LAG({0})", f"LAG({{0}}, {n})"]), [a], bound=a.bound), partition, "", False)
            else:
                function = aggregate(rng, scope, order, over=True)
                frame, peers = rng.choice([
                    (f"ROWS BETWEEN {rng.randint(0, 4)} PRECEDING AND CURRENT ROW", False),
                    ("ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", False),
                    (f"RANGE BETWEEN INTERVAL '{rng.choice([0, 1, 10])}' SECOND PRECEDING AND CURRENT ROW", True),
                    ("", True),
                ])
                if function.what.startswith(("FIRST", "LAST")) and peers:
                    # DuckDB doesn't define which of the rows of one time is last; with ROWS it does.
                    frame, peers = "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW", False
                made = Frame(function, partition, frame, peers)
            if not made.peers and not input.ordered:
                continue
            functions.append((self.name(), made))
        if not functions:
            return None
        items, renamed = self.join_items([(input, alias)])
        made = Over(input, alias, Items(items), functions, renamed[alias, input.time], tuple(renamed[alias, name] for name in input.unique))
        if self.chance(0.25):
            return self.window_aggregate(self.windowed(made, ["TUMBLE", "HOP", "SESSION"]))
        return made

    def order(self, relation, without=()):
        rng = self.rng
        names = [c.name for c in relation.columns() if c.name not in without and not c.approximate]
        chosen = rng.sample(names, min(len(names), rng.choice([0, 1, 1, 2])))
        chosen += [name for name in relation.unique if name not in chosen]
        orders = []
        for name in chosen:
            direction = rng.choice(["ASC", "DESC"])
            nulls = rng.choice(["", "", " NULLS FIRST", " NULLS LAST"])
            # NULL is less than every value, unless specified otherwise.
            first = nulls == " NULLS FIRST" if nulls else direction == "ASC"
            orders.append((name, direction, nulls, first))
        return orders

    def top(self):
        rng = self.rng
        roll = rng.random()
        input = self.rows() if roll < 0.6 else self.running() if roll < 0.85 else self.window_aggregate()
        if not input.unique:
            return None
        return self.top_of(input, [], False)

    def top_of(self, input, edges, final):
        rng = self.rng
        few = [c.name for c in input.columns() if c.kind in ("STRING", "BOOLEAN", "DATE") or (c.bound or 1000) < 20]
        partition = list(edges) + rng.sample(few, min(len(few), rng.choice([0, 1, 1, 2])))
        number = self.name() if self.chance(0.5) else None
        return TopN(input, self.name("a"), list(dict.fromkeys(partition)), self.order(input, edges), rng.choice([1, 1, 2, 3, 10]), number, self.chance(0.5), final)

    def window_top(self):
        windowed = self.windowed(kinds=["TUMBLE", "HOP", "CUMULATE", "SESSION"])
        if self.chance(0.5):
            windowed = self.window_aggregate(windowed)
        if not windowed.unique or len(windowed.edges_of) != 2:
            return None
        return self.top_of(windowed, windowed.edges_of, True)

    # Aggregates.

    def running(self, input=None):
        rng = self.rng
        input = input or self.rows()
        alias = self.name("a")
        scope = self.scope(input, alias)
        keys = self.keys(scope, rng.choice([0, 1, 1, 1, 2]))
        order = f"{alias}.{input.time}, {alias}._p, {alias}._pos" if input.ordered and input.time and not input.changes else None
        aggregates = [(self.name(), aggregate(rng, scope, order, changes=input.changes)) for _ in range(rng.randint(1, 3))]
        aggregates += self.alike(aggregates)
        having = self.having(scope, aggregates) if self.chance(0.25) else None
        where = Maker(rng, scope).make("boolean", 2) if self.chance(0.2) else None
        return Aggregate(input, alias, keys, Items(aggregates), where, having)

    def running_twice(self):
        return self.running(self.running() if self.chance(0.7) else self.stream_join())

    def behind_join(self):
        made = self.rng.choice([self.interval_join, self.window_join, self.table_join, self.temporal_join])()
        if made is None:
            return None
        if made.time and self.chance(0.6):
            return self.window_aggregate(self.windowed(made, ["TUMBLE", "HOP"]))
        return self.running(made)

    def sets(self):
        rng = self.rng
        if self.chance(0.6):
            made = self.window_aggregate(self.windowed(kinds=["TUMBLE", "HOP"]), keys=3)
        else:
            made = self.running()
        edges = [key for key in made.keys if ".window_" in key[1].ours]
        others = [key for key in made.keys if ".window_" not in key[1].ours]
        if any(e.args for _, e in others) or not others:
            return None
        subsets = {tuple(n for n in range(len(others)) if self.chance(0.6)) for _ in range(rng.randint(1, 3))}
        # Each key is in some set.
        others = [key for n, key in enumerate(others) if any(n in chosen for chosen in subsets)]
        if not others:
            return None
        subsets = {tuple(n for n in range(len(others)) if self.chance(0.6)) for _ in range(rng.randint(1, 3))} | {tuple(range(len(others)))}
        numbered = [[len(edges) + n for n in chosen] for chosen in sorted(subsets)]
        made = Aggregate(made.input, made.alias, edges + others, made.aggregates, made.where, None, numbered, made.windowed)
        if self.chance(0.3):
            made.form = rng.choice(["ROLLUP", "CUBE"])
        if self.chance(0.5):
            refs = ", ".join(e.ours for _, e in others)
            made.aggregates.items.append((self.name(), call("BIGINT", f"GROUPING({refs})", [], bound=8, what="GROUPING")))
        return made

    def union(self):
        rng = self.rng
        first = self.projected(self.rows(), many=True)
        kinds = [e.kind for _, e in first.items.items]
        inputs = [first]
        for _ in range(rng.choice([1, 1, 2])):
            base, alias = rng.choice(self.streams), self.name("a")
            maker = Maker(rng, self.scope(base, alias))
            items = []
            for (name, _), kind in zip(first.items.items, kinds):
                made = maker.make(values.family(kind), 2)
                items.append((name, made if made.kind == kind else call(kind, f"CAST(NULL AS {kind})", [], f"CAST(NULL AS {values.duck_type(kind)})", what="NULL")))
            inputs.append(Project(base, alias, Items(items), maker.make("boolean", 2) if self.chance(0.5) else None))
        made = Union(inputs, self.chance(0.6))
        return self.running(made) if self.chance(0.3) else made

    def scalar(self):
        """A value compared with an aggregate of all rows."""
        rng = self.rng
        input, other = self.rows(time=True), self.rows(time=True)
        a, b = self.name("a"), self.name("b")
        left, right = Maker(rng, self.scope(input, a)), Maker(rng, self.scope(other, b))
        x, y = left.column("int", True), right.column("int", True)
        if x is None or y is None:
            return None
        name = rng.choice(["AVG", "MAX", "MIN", "COUNT", "SUM"])
        equal = self.equal(other, b, input, a) if self.chance(0.4) else []
        where = equal[0] if equal else right.make("boolean", 1) if self.chance(0.4) else None
        inner = Aggregate(other, b, [], Items([(self.name(), call("BIGINT", name + "({0})", [y]))]), where)
        sub = Scalar("BIGINT", "", "", what="scalar subquery", sub=inner)
        test = call("BOOLEAN", f"({{0}} {rng.choice(['>', '<=', '<>', '='])} {{1}})", [x, sub], what="scalar subquery")
        items, _ = self.join_items([(input, a)])
        made = Project(input, a, Items(items), test)
        made.changes = True
        return made

    def windows_of_windows(self):
        rng = self.rng
        first = self.window_aggregate(self.windowed(kinds=["TUMBLE", "HOP", "SESSION", "CUMULATE"]), time=True)
        if first.time is None:
            return None
        view = View(first, self.name("v")) if self.chance(0.5) else first
        if self.chance(0.3):
            # The same window again.
            alias = self.name("a")
            keys = [(self.name(), Seen(f"{alias}.{name}", first.column(name).kind).expr()) for name in first.edges_of]
            scope = [c for c in self.scope(first, alias) if c.ref.split(".")[1] not in first.edges_of]
            aggregates = [(self.name(), aggregate(rng, scope)) for _ in range(rng.randint(1, 2))]
            return Aggregate(view, alias, keys, Items(aggregates), windowed=True)
        return self.window_aggregate(self.windowed(view, ["TUMBLE", "HOP", "SESSION"]))
