"""Random joins of all kinds, a part of `queries.Generator`."""

from . import values
from .expressions import Expr, Maker, Seen, call
from .relations import Exists, Items, Join, Temporal, Windowed, interval
from .values import SECOND


class Joins:
    def join_items(self, sides, nullable=()):
        """Columns of both sides, always including those that identify rows: (items, names by (alias,
        column))."""
        items, renamed = [], {}
        for relation, alias in sides:
            for column in relation.columns():
                if column.name in relation.unique or column.name in relation.edges_of or column.name == relation.time or self.chance(0.4):
                    name = self.name()
                    items.append((name, Seen(f"{alias}.{column.name}", column.kind, column.bound, column.approximate).expr()))
                    renamed[alias, column.name] = name
        if not items:
            relation, alias = sides[0]
            items.append((self.name(), self.scope(relation, alias)[0].expr()))
        return items, renamed

    def equal(self, left, la, right, ra, count=1):
        """Equality conditions between columns with few values of the two sides."""
        rng, found = self.rng, []
        for _ in range(count):
            pairs = []
            for a in left.columns():
                for b in right.columns():
                    alike = a.kind == b.kind or (values.family(a.kind) == values.family(b.kind) == "int")
                    few = a.kind in ("STRING", "BOOLEAN", "DATE") or (a.bound or 10_000) < 200 or self.chance(0.05)
                    if alike and few and not a.approximate and not b.approximate and not values.is_time(a.kind):
                        pairs.append((a, b))
            if pairs:
                a, b = rng.choice(pairs)
                found.append(call("BOOLEAN", "{0} = {1}", [Expr(a.kind, f"{la}.{a.name}", f"{la}.{a.name}"), Expr(b.kind, f"{ra}.{b.name}", f"{ra}.{b.name}")], what=f"join by {values.family(a.kind)}"))
        return found

    def condition(self, sides):
        scope = [column for relation, alias in sides for column in self.scope(relation, alias)]
        return Maker(self.rng, scope).make("boolean", 2)

    def same(self, left, la, right, ra, names):
        return [call("BOOLEAN", "{0} = {1}", [Expr("TIMESTAMP(3)", f"{la}.{a}", f"{la}.{a}"), Expr("TIMESTAMP(3)", f"{ra}.{b}", f"{ra}.{b}")], what="join by window") for a, b in names]

    def windowed_side(self, kind, sizes):
        """An input of a window join: rows with their windows, or an aggregate of them."""
        windowed = Windowed(self.rows(time=True), kind, sizes)
        return windowed if self.chance(0.6) else self.window_aggregate(windowed, time=False)

    def window_sides(self):
        rng = self.rng
        kind = rng.choice(["TUMBLE", "HOP", "CUMULATE"])
        sizes = self.windowed(self.streams[0], [kind]).sizes
        left, right = self.windowed_side(kind, sizes), self.windowed_side(kind, sizes)
        if len(left.edges_of) != 2 or len(right.edges_of) != 2:
            return None
        return left, right

    def window_join(self):
        rng = self.rng
        sides = self.window_sides()
        if not sides:
            return None
        left, right = sides
        la, ra = self.name("l"), self.name("r")
        pairs = list(zip(left.edges_of, right.edges_of))
        on = self.same(left, la, right, ra, pairs) + self.equal(left, la, right, ra, rng.choice([0, 1, 1]))
        if self.chance(0.3):
            on.append(self.condition([(left, la), (right, ra)]))
        kind = rng.choice(["INNER", "INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI"])
        items, renamed = self.join_items([(left, la), (right, ra)] if kind[5:] not in ("SEMI", "ANTI") else [(left, la)])
        made = Join(left, la, right, ra, kind, on, Items(items), "window", comma=self.chance(0.2))
        if kind not in ("RIGHT", "FULL"):
            made.edges_of = (renamed[la, left.edges_of[0]], renamed[la, left.edges_of[1]])
        return made

    def interval_join(self):
        rng = self.rng
        left, right = self.rows(time=True), self.rows(time=True)
        la, ra = self.name("l"), self.name("r")
        low, high = rng.choice([0, SECOND, 5 * SECOND, -SECOND]), rng.choice([0, SECOND, 10 * SECOND])
        if self.real:
            low, high = low * 600, high * 600
        if high < -low:
            low = 0
        on = self.within(la, left, ra, right, low, high) + self.equal(left, la, right, ra, rng.choice([0, 1, 1]))
        if self.chance(0.3):
            on.append(self.condition([(left, la), (right, ra)]))
        kind = rng.choice(["INNER", "INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI"])
        items, renamed = self.join_items([(left, la), (right, ra)] if kind[5:] not in ("SEMI", "ANTI") else [(left, la)])
        unique = tuple(renamed[alias, name] for side, alias in ((left, la), (right, ra)) for name in side.unique if (alias, name) in renamed)
        time = renamed[la, left.time] if kind not in ("RIGHT", "FULL") else None
        if not left.unique or not right.unique:
            unique = ()
        return Join(left, la, right, ra, kind, on, Items(items), "interval", time, unique=unique, comma=self.chance(0.2),
                    broadcast=rng.choice(["", "", la, ra]))

    def within(self, la, left, ra, right, low, high):
        a, b = Expr("TIMESTAMP(3)", f"{la}.{left.time}", f"{la}.{left.time}"), Expr("TIMESTAMP(3)", f"{ra}.{right.time}", f"{ra}.{right.time}")
        start = f"{{1}} - {interval(low)}" if low > 0 else f"{{1}} + {interval(-low)}" if low < 0 else "{1}"
        end = f"{{1}} + {interval(high)}" if high > 0 else "{1}" if high == 0 else f"{{1}} - {interval(-high)}"
        if self.chance(0.6):
            return [call("BOOLEAN", f"{{0}} BETWEEN {start} AND {end}", [a, b], what="interval")]
        more, less = self.rng.choice([">=", ">"]), self.rng.choice(["<=", "<"])
        return [call("BOOLEAN", f"{{0}} {more} {start}", [a, b], what="interval"), call("BOOLEAN", f"{{0}} {less} {end}", [a, b], what="interval")]

    def side(self):
        """An input of a join of streams: rows, or a result that changes."""
        roll = self.rng.random()
        if roll < 0.65:
            return self.rows(time=True)
        return self.running() if roll < 0.85 else self.window_aggregate()

    def stream_join(self):
        rng = self.rng
        left, right = self.side(), self.side()
        la, ra = self.name("l"), self.name("r")
        on = self.equal(left, la, right, ra, rng.choice([1, 1, 2]) if self.chance(0.9) else 0)
        if self.chance(0.35) or not on:
            on.append(self.condition([(left, la), (right, ra)]))
        kind = rng.choice(["INNER", "INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI"])
        items, renamed = self.join_items([(left, la), (right, ra)] if kind[5:] not in ("SEMI", "ANTI") else [(left, la)])
        return Join(left, la, right, ra, kind, on, Items(items), "stream", comma=self.chance(0.2))

    def table_join(self):
        rng = self.rng
        if not self.ended:
            return None
        left, right = self.rows(time=True), rng.choice(self.ended)
        if self.chance(0.4):
            right = self.projected(right)
        la, ra = self.name("l"), self.name("r")
        kind = rng.choice(["INNER", "INNER", "LEFT", "CROSS", "RIGHT", "LEFT SEMI", "LEFT ANTI"])
        if kind == "RIGHT":
            left, right = right, left
        on = self.equal(left, la, right, ra, rng.choice([0, 1, 1, 2]))
        if (self.chance(0.3) or not on) and kind != "CROSS":
            on.append(self.condition([(left, la), (right, ra)]))
        items, renamed = self.join_items([(left, la), (right, ra)] if kind[5:] not in ("SEMI", "ANTI") else [(left, la)])
        unique = tuple(renamed[alias, name] for side, alias in ((left, la), (right, ra)) for name in side.unique if (alias, name) in renamed)
        if not left.unique or not right.unique:
            unique = ()
        time = renamed[ra, right.time] if kind == "RIGHT" else renamed[la, left.time]
        made = Join(left, la, right, ra, kind, on, Items(items), "table", time, unique=unique, comma=self.chance(0.2))
        if self.chance(0.3):
            return self.window_aggregate(self.windowed(made, ["TUMBLE", "HOP", "SESSION"]))
        return made

    def temporal_join(self):
        rng = self.rng
        left, right = self.rows(time=True), rng.choice(self.streams)
        la, ra = self.name("l"), self.name("r")
        equal = self.equal(left, la, right, ra, rng.choice([1, 1, 2]))
        if not equal:
            return None
        keys = sorted({tuple(arg.ours.split(".")[1] for arg in e.args) for e in equal})
        if any(left.column(a).kind != right.column(b).kind for a, b in keys):
            return None
        condition = self.condition([(left, la), (right, ra)]) if self.chance(0.3) else None
        items, renamed = self.join_items([(left, la), (right, ra)])
        unique = tuple(renamed[la, name] for name in left.unique)
        return Temporal(left, la, right, ra, rng.choice(["INNER", "LEFT"]), keys, condition, Items(items), renamed[la, left.time], unique)

    def exists(self):
        rng = self.rng
        way = rng.choice(["window", "interval", "table", "stream", "stream"])
        a, s = self.name("a"), self.name("s")
        on = []
        if way == "window":
            sides = self.window_sides()
            if not sides:
                return None
            input, sub = sides
            on = self.same(input, a, sub, s, zip(input.edges_of, sub.edges_of))
        elif way == "interval":
            input, sub = self.rows(time=True), self.rows(time=True)
            on = self.within(a, input, s, sub, rng.choice([0, 5 * SECOND]), rng.choice([0, 10 * SECOND]))
        elif way == "table":
            if not self.ended:
                return None
            input, sub = self.rows(time=True), rng.choice(self.ended)
        else:
            input, sub = self.rows(time=True), self.side()
        form = rng.choice(["EXISTS", "NOT EXISTS", "IN", "NOT IN"])
        equal = self.equal(input, a, sub, s)
        probe = chosen = None
        if form.endswith("IN"):
            if not equal:
                return None
            probe, chosen = equal[0].args
            if way == "table" and form == "NOT IN" and self.chance(0.5):
                on = []
        elif self.chance(0.8) or (way == "stream"):
            on += equal
        if self.chance(0.3):
            on.append(self.condition([(input, a), (sub, s)]))
        items, renamed = self.join_items([(input, a)])
        where = Maker(rng, self.scope(input, a)).make("boolean", 1) if self.chance(0.2) else None
        final = way != "stream"
        time = renamed.get((a, input.time)) if final else None
        unique = tuple(renamed[a, name] for name in input.unique)
        return Exists(input, a, form, sub, s, on, probe, chosen, Items(items), way, time, unique, where=where)
