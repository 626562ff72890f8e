"""Random expressions, each in our dialect and in DuckDB's.

Where the two differ by design, the translation handles that; no comparison leaves anything out because of
it.
"""

from dataclasses import dataclass, field

from . import values
from .functions import ADDED, FUNCTIONS
from .values import DAY, SECOND


@dataclass
class Expr:
    kind: str
    ours: str
    """The text, with `{0}`, `{1}`, … for the arguments."""
    duck: str
    args: list = field(default_factory=list)
    bound: float = None
    """The largest magnitude, if it is known to be small: see `tables.Column`."""
    what: str = ""
    """The name under which it is counted."""
    rejects: str = None
    """For an expression that may fail: when it does, as a condition of DuckDB. Only the outermost one in a
    SELECT item may fail."""
    approximate: bool = False

    def text(self, to):
        """The expression in the dialect of `to`: `relations.Ours` or `relations.Duck`."""
        return (self.ours if to.ours else self.duck).format(*(arg.text(to) for arg in self.args))

    def rejecting(self, to):
        return self.rejects.format(*(arg.text(to) for arg in self.args))

    def walk(self):
        yield self
        for arg in self.args:
            yield from arg.walk()


@dataclass
class Seen:
    """A column that an expression may use."""

    ref: str
    kind: str
    bound: float = None
    approximate: bool = False

    def expr(self):
        return Expr(self.kind, self.ref, self.ref, bound=self.bound, approximate=self.approximate)


def escape(text):
    return text.replace("{", "{{").replace("}", "}}")


def lit(kind, cell, bound=None):
    text = escape(values.literal(kind, cell))
    if bound is None and isinstance(cell, (int, float)) and not isinstance(cell, bool) and values.family(kind) in ("int", "double"):
        bound = abs(cell) if abs(cell) < 1e6 else None
    return Expr(kind, text, text, bound=bound)


def call(kind, ours, args, duck=None, bound=None, what=None, **more):
    return Expr(kind, ours, duck or ours, list(args), bound, what or ours.split("(")[0].strip("{0} ") or ours, **more)


def whole_number(kind):
    """A string as an integer: ours accepts surrounding spaces, but no exponent; DuckDB's TRY_CAST accepts
    one, and rounds '1.5'."""
    return f"CASE WHEN regexp_full_match({{0}}, '\\s*[+-]?[0-9]+\\s*') THEN TRY_CAST({{0}} AS {values.duck_type(kind)}) END"


WIDER = {"TINYINT": 0, "SMALLINT": 1, "INT": 2, "BIGINT": 3}
UNITS = ["SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"]
COMPARE = ["=", "<>", "<", "<=", ">", ">="]


class Maker:
    """Generates expressions over a scope: a list of `Seen`."""

    def __init__(self, rng, scope):
        self.rng, self.scope = rng, [column for column in scope if not column.approximate]

    # Leaves.

    def columns(self, family, small=False):
        return [c for c in self.scope if values.family(c.kind) == family and (c.bound is not None or not small)]

    def column(self, family, small=False):
        found = self.columns(family, small)
        return self.rng.choice(found).expr() if found else None

    def leaf(self, family, small=False):
        column = self.column(family, small) if self.rng.random() < 0.92 else None
        if column is None and family == "boolean" and self.scope and self.rng.random() < 0.9:
            # Constant conditions are rare, because they make whole parts of a query disappear.
            return call("BOOLEAN", "({0} IS NOT NULL)", [self.any_leaf()], what="IS NULL")
        return column or self.literal(family)

    def literal(self, family):
        rng = self.rng
        if family == "int":
            return lit("BIGINT", rng.choice([0, 1, 2, 3, -1, 7, 10, 50, -20]))
        if family == "double":
            return lit("DOUBLE", rng.choice([0.0, 0.5, 1.25, -2.75, 10.0, 100.5]))
        if family == "decimal":
            return lit("DECIMAL(12, 3)", rng.choice(["0.5", "1.250", "-2.500", "0", "0.001"]), 10)
        if family == "string":
            return lit("STRING", rng.choice(["a", "b", "", "ab", "x,y", "it's", "Z", "é"]))
        if family == "boolean":
            return lit("BOOLEAN", rng.random() < 0.5)
        if family == "date":
            return lit("DATE", rng.choice([0, 19782, 19783, -1, 11016]))
        return lit("TIMESTAMP(3)", rng.choice([1_704_067_200, 1_704_067_210, 0, -1]) * SECOND + rng.choice([0, 0, 500_000]))

    def any(self, depth=2):
        families = sorted({values.family(column.kind) for column in self.scope} | {"int", "string", "boolean"})
        return self.make(self.rng.choice(families), depth)

    def make(self, family, depth=2, small=False):
        """An expression of the family; with `small`, one whose bound is known."""
        if depth <= 0 or self.rng.random() < 0.25:
            return self.leaf(family, small)
        for _ in range(5):
            made = self.function(family, depth - 1) if self.rng.random() < 0.15 else getattr(self, "of_" + family)(depth - 1)
            if made is None or (small and made.bound is None):
                continue
            if any("." in part.ours and not part.args for part in made.walk()) or not self.scope or self.rng.random() < 0.05:
                return made
        return self.leaf(family, small)

    # Expressions of every family.

    def common(self, family, depth):
        rng = self.rng
        small = rng.random() < 0.6
        a = self.make(family, depth, small)
        b = self.make(family, depth, small)
        if family in ("time", "decimal", "int", "double") and a.kind != b.kind:
            # Where kinds differ, each dialect has its own common type; with a single kind both agree.
            b = a if rng.random() < 0.5 else lit(a.kind, None)
        bound = None if a.bound is None or b.bound is None else max(a.bound, b.bound)
        which = rng.randrange(6)
        if which == 0:
            return call(a.kind, "COALESCE({0}, {1})", [a, b], bound=bound)
        if which == 1:
            return call(a.kind, "NULLIF({0}, {1})", [a, b], bound=a.bound)
        if which == 2:
            condition = self.make("boolean", depth)
            return call(a.kind, "CASE WHEN {0} THEN {1} ELSE {2} END", [condition, a, b], bound=bound, what="CASE")
        if which == 3:
            condition = self.make("boolean", depth)
            return call(a.kind, "IF({0}, {1}, {2})", [condition, a, b], "CASE WHEN {0} THEN {1} ELSE {2} END", bound=bound, what="IF")
        if which == 4 and family != "boolean":
            key = self.leaf("string")
            return call(a.kind, "CASE {0} WHEN 'a' THEN {1} WHEN 'b' THEN {2} END", [key, a, b], bound=bound, what="CASE x WHEN")
        if family in ("int", "string", "double", "date", "time", "decimal"):
            name = rng.choice(["GREATEST", "LEAST"])
            return call(a.kind, name + "({0}, {1})", [a, b], bound=bound)
        return None

    def function(self, family, depth):
        """One of the functions that are defined only by their SQL."""
        rng = self.rng
        if family == "time" and rng.random() < 0.5:
            a = self.column("time")
            ours, duck = rng.choice(ADDED)
            return a and call(a.kind, ours, [a], duck)
        fitting = [f for f in FUNCTIONS if values.family(f[0]) == family]
        kind, wanted, ours, duck, bound = rng.choice(fitting)
        args = [self.make(name.split(" ")[-1], depth if name != "time" else 0, name.startswith("small")) for name in wanted]
        if any(name.startswith("small") and (arg.bound is None or arg.bound > 100_000) for name, arg in zip(wanted, args)):
            return None
        if "ARRAY[" in ours and args[0].kind != args[-1].kind:
            return None
        return call(args[1].kind if ours.endswith("[2]") else kind, ours, args, duck, bound)

    def of_int(self, depth):
        rng = self.rng
        which = rng.randrange(16)
        if which < 3:
            return self.common("int", depth)
        if which < 8:
            return self.arithmetic(depth)
        if which == 8:
            a = self.make("string", depth)
            return call("BIGINT", "CHAR_LENGTH({0})", [a], "length({0})", bound=100)
        if which == 9:
            a = self.make("int", depth, True)
            return call(a.kind, "ABS({0})", [a], bound=a.bound) if a.bound is not None else None
        if which == 10:
            a = self.make("boolean", depth)
            return call("BIGINT", "CAST({0} AS BIGINT)", [a], bound=1, what="CAST boolean to int")
        if which == 11:
            a, unit = self.leaf("time"), rng.choice(["YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "QUARTER", "WEEK"])
            if unit == "SECOND":
                # Flink's SECOND(ts) is an integer; so is DuckDB's EXTRACT.
                return call("BIGINT", "SECOND({0})", [a], "extract(second FROM {0})", bound=60)
            if rng.random() < 0.5:
                return call("BIGINT", unit + "({0})", [a], f"extract({unit} FROM {{0}})", bound=10_000)
            return call("BIGINT", f"CAST(EXTRACT({unit} FROM {{0}}) AS BIGINT)", [a], f"extract({unit} FROM {{0}})", bound=10_000, what="EXTRACT")
        if which == 12:
            a = self.column("double", True) or self.column("decimal", True)
            if a is None:
                return None
            # Ours truncates, as Rust and Flink do; DuckDB's CAST rounds.
            return call("BIGINT", "CAST({0} AS BIGINT)", [a], "CAST(trunc({0}) AS BIGINT)", bound=a.bound, what=f"CAST {values.family(a.kind)} to int")
        if which == 13 and rng.random() < 0.3:
            # A column with itself, which gives 0, 1 or the column, except where it is NULL.
            a = self.column("int", True)
            ours, duck = rng.choice([("({0} - {0})", None), ("({0} ^ {0})", "xor({0}, {0})"), ("({0} & {0})", None), ("({0} | {0})", None), ("({0} * 0)", None), ("({0} % 1)", None), ("(0 / (ABS({0}) + 1))", "(0 // (abs({0}) + 1))"), ("({0} & 0)", None)])
            return a and call("BIGINT" if "0" in ours.replace("{0}", "") or "1" in ours else a.kind, ours, [a], duck, bound=a.bound, what="a column twice: " + ours)
        if which == 13:
            a, b = self.make("int", depth, True), self.make("int", depth, True)
            operator, duck = rng.choice([("&", "({0} & {1})"), ("|", "({0} | {1})"), ("^", "xor({0}, {1})")])
            if a.bound is None or b.bound is None or a.kind != b.kind:
                return None
            return call(a.kind, f"({{0}} {operator} {{1}})", [a, b], duck, bound=2 * (a.bound + b.bound) + 2, what=operator)
        if which == 14:
            a, b = self.leaf("time"), self.leaf("time")
            unit, micros = rng.choice([("SECOND", SECOND), ("MINUTE", 60 * SECOND), ("HOUR", 3600 * SECOND), ("DAY", DAY)])
            duck = f"CAST(trunc((epoch_us({{1}}) - epoch_us({{0}})) // {micros}) AS BIGINT)"
            return call("BIGINT", f"TIMESTAMPDIFF({unit}, {{0}}, {{1}})", [a, b], duck)
        a = self.column("string")
        if a is None:
            return None
        kind = rng.choice(["INT", "BIGINT"])
        duck = whole_number(kind)
        return call(kind, f"TRY_CAST({{0}} AS {kind})", [a], duck, what="TRY_CAST string to int")

    def arithmetic(self, depth):
        rng = self.rng
        a, b = self.make("int", depth, True), self.make("int", depth, True)
        if a.bound is None or b.bound is None:
            return None
        kind = a.kind if WIDER[a.kind] >= WIDER[b.kind] else b.kind
        operator = rng.choice(["+", "-", "*", "/", "%"])
        if operator in "/%":
            b = lit("BIGINT", rng.choice([2, 3, 7, -2]))
            duck = "({0} // {1})" if operator == "/" else "({0} % {1})"
            return call("BIGINT", f"({{0}} {operator} {{1}})", [a, b], duck, bound=a.bound, what="int " + operator)
        bound = a.bound * b.bound if operator == "*" else a.bound + b.bound
        # No overflow in the narrowest type that either engine may compute in.
        if bound >= min(values.INTEGERS[kind], 10**9):
            return None
        return call(kind, f"({{0}} {operator} {{1}})", [a, b], bound=bound, what="int " + operator)

    def of_double(self, depth):
        rng = self.rng
        which = rng.randrange(8)
        if which < 3:
            return self.common("double", depth)
        if which < 6:
            a, b = self.make("double", depth, True), self.make("double", depth, True)
            if a.bound is None or b.bound is None:
                return None
            operator = rng.choice(["+", "-", "*"])
            bound = a.bound * b.bound if operator == "*" else a.bound + b.bound
            # Multiples of small powers of two: exact in whatever order they are added.
            if bound > 1e6 or "DOUBLE" not in (a.kind, b.kind):
                return None
            return call("DOUBLE", f"({{0}} {operator} {{1}})", [a, b], bound=bound, what="double " + operator)
        a = self.make("double", depth, True)
        if a.bound is None:
            a = self.make("int", depth, True)
            return call("DOUBLE", "CAST({0} AS DOUBLE)", [a], bound=a.bound, what="CAST int to double") if a.bound is not None else None
        name = rng.choice(["ABS", "FLOOR", "CEIL", "ROUND", "-"])
        return call(a.kind, name + "({0})", [a], bound=a.bound + 1, what="double " + name)

    def of_decimal(self, depth):
        rng = self.rng
        a = self.leaf("decimal", True)
        which = rng.randrange(6)
        if which == 0:
            return self.common("decimal", 0)
        if which == 5:
            # A number with exactly three decimals: both round half away from zero.
            return call("DECIMAL(12, 3)", "ROUND({0}, 0)", [a], bound=a.bound, what="decimal ROUND")
        if which == 1:
            return call("DECIMAL(14, 3)", "(({0} + {1}))", [a, self.leaf("decimal", True)], bound=40, what="decimal +")
        if which == 2:
            return call("DECIMAL(12, 1)", "CAST({0} AS DECIMAL(12, 1))", [a], bound=a.bound, what="CAST decimal to fewer decimals")
        if which == 3:
            return call(a.kind, "ABS({0})", [a], bound=a.bound, what="decimal ABS")
        b = self.leaf("decimal", True)
        if rng.random() < 0.4 and a.kind == "DECIMAL(12, 3)":
            a = call(a.kind, "ROUND({0}, 0)", [a], "CAST(ROUND({0}, 0) AS DECIMAL(12, 3))", bound=a.bound, what="decimal ROUND")
        return call("DECIMAL(25, 6)", "({0} * {1})", [a, b], bound=200, what="decimal *")

    def of_string(self, depth):
        rng = self.rng
        which = rng.randrange(12)
        if which < 2:
            return self.common("string", depth)
        a = self.make("string", depth)
        if which == 2:
            return call("STRING", "({0} || {1})", [a, self.make("string", depth)], what="||")
        if which == 3:
            return call("STRING", "CONCAT({0}, {1})", [a, self.make("string", depth)])
        if which == 4:
            n, m = rng.randint(1, 3), rng.randint(0, 3)
            return call("STRING", f"SUBSTRING({{0}}, {n}, {m})", [a])
        if which == 5:
            return call("STRING", "REPLACE({0}, 'a', 'bb')", [a])
        if which == 6:
            name, more = rng.choice([("UPPER", ""), ("LOWER", ""), ("TRIM", ""), ("REVERSE", ""), ("LEFT", ", 1"), ("RIGHT", ", 1"), ("LPAD", ", 4, '*'"), ("RPAD", ", 3, '-'")])
            return call("STRING", f"{name}({{0}}{more})", [a])
        if which == 7:
            b = self.leaf("int")
            return call("STRING", "CAST({0} AS STRING)", [b], "CAST({0} AS VARCHAR)", what="CAST int to string")
        if which == 8:
            b = self.leaf("date")
            return call("STRING", "CAST({0} AS STRING)", [b], "strftime({0}, '%Y-%m-%d')", what="CAST date to string")
        if which == 9:
            b = self.leaf("time")
            if rng.random() < 0.5:
                # The smallest sufficient number of decimals of 0, 3 and 6.
                forms = [f"strftime({{0}}, '%Y-%m-%d %H:%M:%S{decimals}')" for decimals in ("", ".%g", ".%f")]
                duck = f"CASE WHEN epoch_us({{0}}) % 1000000 = 0 THEN {forms[0]} WHEN epoch_us({{0}}) % 1000 = 0 THEN {forms[1]} ELSE {forms[2]} END"
                return call("STRING", "CAST({0} AS STRING)", [b], duck, what="CAST time to string")
            return call("STRING", "DATE_FORMAT({0}, 'yyyy-MM-dd HH:mm:ss')", [b], "strftime({0}, '%Y-%m-%d %H:%M:%S')")
        if which == 10:
            i = rng.randint(0, 2)
            return call("STRING", f"SPLIT_INDEX({{0}}, 'b', {i})", [a], f"str_split({{0}}, 'b')[{i + 1}]")
        b = self.leaf("boolean")
        return call("STRING", "CAST({0} AS STRING)", [b], "CAST({0} AS VARCHAR)", what="CAST boolean to string")

    def of_boolean(self, depth):
        rng = self.rng
        which = rng.randrange(21)
        if which == 20:
            return self.twice()
        if which == 0:
            return self.common("boolean", depth)
        if which < 5:
            a, b = self.make("boolean", depth), self.make("boolean", depth)
            name = rng.choice(["AND", "OR", "OR"])
            return call("BOOLEAN", f"({{0}} {name} {{1}})", [a, b], what=name)
        if which == 5:
            return call("BOOLEAN", "(NOT {0})", [self.make("boolean", depth)], what="NOT")
        if which == 6:
            a, form = self.make("boolean", depth), rng.choice(["TRUE", "FALSE", "NOT TRUE", "NOT FALSE", "UNKNOWN", "NOT UNKNOWN"])
            duck = form.replace("UNKNOWN", "NULL")
            return call("BOOLEAN", f"({{0}} IS {form})", [a], f"({{0}} IS {duck})", what="IS TRUE …")
        if which == 7:
            a = self.any_leaf()
            return call("BOOLEAN", f"({{0}} IS {rng.choice(['', 'NOT '])}NULL)", [a], what="IS NULL")
        if which == 8:
            family = rng.choice(["int", "string"])
            a = self.make(family, depth)
            items = [self.literal(family).ours for _ in range(rng.randint(1, 3))] + (["NULL"] if rng.random() < 0.15 else [])
            form = rng.choice(["IN", "NOT IN"])
            return call("BOOLEAN", f"({{0}} {form} ({', '.join(items)}))", [a], what=form)
        if which == 9:
            form = rng.choice(["{0} LIKE 'a%'", "{0} LIKE '%b%'", "{0} NOT LIKE '_'", "{0} ILIKE 'A%'", "{0} LIKE '10\\%'"])
            duck = form + (" ESCAPE '\\'" if "\\" in form else "")
            return call("BOOLEAN", f"({form})", [self.make("string", depth)], f"({duck})", what="LIKE")
        if which == 10:
            pattern, form = rng.choice(["a", "^a", "b$", ".*", "", "[ab]+", "a|b"]), rng.choice(["~", "!~"])
            not_ = "NOT " if form == "!~" else ""
            return call("BOOLEAN", f"({{0}} {form} '{pattern}')", [self.make("string", depth)], f"({not_}regexp_matches({{0}}, '{pattern}'))", what="regex " + form)
        if which == 11:
            return self.cast_compared()
        if which == 12:
            a = self.column("time")
            if a is None:
                return None
            at, days, op = self.literal("time"), rng.choice(["'1' DAY", "'10' SECOND", "'1' HOUR", "'0' DAY"]), rng.choice(COMPARE)
            return call("BOOLEAN", f"({{0}} - {{1}} {op} INTERVAL {days})", [a, at], f"((epoch_us({{0}}) - epoch_us({{1}})) {op} epoch_us(TIMESTAMP '1970-01-01' + INTERVAL {days}))", what="difference of times compared")
        family = rng.choice([f for f in ("int", "int", "double", "decimal", "string", "date", "time") if self.columns(f)] or ["int"])
        a = self.make(family, depth)
        b = self.make(family, depth) if rng.random() < 0.8 else self.literal(family)
        if family in ("int", "double", "decimal") and rng.random() < 0.2:
            b = self.leaf(rng.choice(["int", "double", "decimal"]))
        if which < 15:
            form = rng.choice(["DISTINCT FROM", "NOT DISTINCT FROM"])
            if rng.random() < 0.4:
                return call("BOOLEAN", f"({{0}} IS {form} {{1}})", [a, b], what=f"{values.family(a.kind)} IS DISTINCT FROM {values.family(b.kind)}")
            c = self.literal(family)
            not_ = rng.choice(["", "NOT "])
            return call("BOOLEAN", f"({{0}} {not_}BETWEEN {{1}} AND {{2}})", [a, b, c], what=f"{values.family(a.kind)} BETWEEN {values.family(b.kind)}")
        op = rng.choice(COMPARE)
        return call("BOOLEAN", f"({{0}} {op} {{1}})", [a, b], what=f"{values.family(a.kind)} {op} {values.family(b.kind)}")

    def twice(self):
        """Conditions that use one column twice, which optimizers like to simplify while ignoring NULL."""
        rng = self.rng
        a = self.column(rng.choice(["int", "string", "double", "date", "boolean", "decimal"]))
        if a is None:
            return None
        family = values.family(a.kind)
        b, c = self.literal(family), self.literal(family)
        form = rng.choice([
            "({0} NOT IN ({1}) OR {0} NOT IN ({2}))", "({0} IN ({1}, {2}) AND {0} IN ({2}))", "({0} IN ({1}) AND {0} IN ({2}))", "({0} = {0})", "({0} <> {0})", "({0} <= {0})",
            "({0} = {1} OR {0} <> {1})", "({0} < {1} AND {0} > {2})", "(NOT ({0} < {1} OR {0} >= {1}))", "({0} IS NULL OR {0} = {1} OR {0} <> {1})", "({0} BETWEEN {1} AND {2} AND {0} NOT BETWEEN {1} AND {2})",
            "({0} = {1} AND {0} = {2})", "({0} IN ({1}, {2}) OR {0} = {1})", "({0} <> {1} AND {0} <> {2})", "(({0} = {1}) = ({0} = {2}))", "(({0} > {1}) IS NOT TRUE)", "(NULLIF({0}, {1}) = {1})", "(COALESCE({0}, {1}) = {1})",
            "({0} NOT IN ({1}, {2}) AND {0} IN ({1}))", "({0} >= {1} OR {0} IS NULL)",
        ])
        return call("BOOLEAN", form, [a, b, c], what="a column twice: " + form)

    def any_leaf(self):
        return self.rng.choice(self.scope).expr() if self.scope else self.literal("int")

    def cast_compared(self):
        """A comparison of a cast with a constant, which optimizers like to rewrite."""
        rng, op = self.rng, self.rng.choice(COMPARE)
        a = self.any_leaf()
        family = values.family(a.kind)
        if family == "decimal":
            if rng.random() < 0.5:
                return call("BOOLEAN", f"(CAST({{0}} AS BIGINT) {op} 0)", [a], f"(CAST(trunc({{0}}) AS BIGINT) {op} 0)", what="CAST decimal to int, compared")
            return call("BOOLEAN", f"(CAST({{0}} AS DECIMAL(12, 1)) {op} CAST(0.3 AS DECIMAL(12, 1)))", [a], what="CAST decimal, compared")
        if family == "int":
            kind = rng.choice(["SMALLINT", "TINYINT", "INT"])
            return call("BOOLEAN", f"(TRY_CAST({{0}} AS {kind}) {op} {rng.choice([1, 100, -5])})", [a], what="TRY_CAST int, compared")
        if family == "time":
            micros = rng.choice(["1704067200000010", "1704067200000000", "1704067210500000"])
            finer = rng.choice(["2024-01-01 00:00:00.0005", "2024-01-01 00:00:10", "2024-01-01 00:00:00.000001"])
            if rng.random() < 0.5:
                return call("BOOLEAN", f"(CAST(CAST({{0}} AS TIMESTAMP(6)) AS BIGINT) {op} {micros})", [a], f"(epoch_us({{0}}) {op} {micros})", what="CAST time to int, compared")
            if rng.random() < 0.5:
                return call("BOOLEAN", f"(CAST({{0}} AS TIMESTAMP(0)) {op} TIMESTAMP '2024-01-01 00:00:10')", [a], f"(date_trunc('second', {{0}}) {op} TIMESTAMP '2024-01-01 00:00:10')", what="CAST time to coarser, compared")
            return call("BOOLEAN", f"({{0}} {op} TIMESTAMP '{finer}')", [a], what="time against a finer literal")
        if family == "double" and a.bound is not None:
            return call("BOOLEAN", f"(CAST({{0}} AS BIGINT) {op} 0)", [a], f"(CAST(trunc({{0}}) AS BIGINT) {op} 0)", what="CAST double to int, compared")
        if family == "date":
            return call("BOOLEAN", f"(CAST({{0}} AS TIMESTAMP(3)) {op} TIMESTAMP '2024-03-01 12:00:00')", [a], f"(CAST({{0}} AS TIMESTAMP) {op} TIMESTAMP '2024-03-01 12:00:00')", what="CAST date to time, compared")
        return call("BOOLEAN", f"(CAST({{0}} AS STRING) {op} 'b')", [a], f"(CAST({{0}} AS VARCHAR) {op} 'b')", what="CAST, compared") if family == "string" else None

    def of_date(self, depth):
        if self.rng.random() < 0.4:
            return self.common("date", depth)
        return call("DATE", "CAST({0} AS DATE)", [self.make("time", depth)], what="CAST time to date")

    def of_time(self, depth):
        rng = self.rng
        if rng.random() < 0.25:
            return self.common("time", depth)
        a = self.column("time")
        if a is None:
            return None
        which = rng.randrange(4)
        unit = rng.choice(UNITS)
        if which == 0:
            # Ours keeps the type; a DATE or TIMESTAMP of DuckDB always becomes a TIMESTAMP of microseconds.
            return call(a.kind, f"FLOOR({{0}} TO {unit})", [a], f"CAST(date_trunc('{unit}', {{0}}) AS TIMESTAMP)", what="FLOOR TO")
        if which == 1:
            return call(a.kind, f"date_trunc('{unit.lower()}', {{0}})", [a], f"CAST(date_trunc('{unit}', {{0}}) AS TIMESTAMP)")
        if which == 2:
            return call("TIMESTAMP(0)", "CAST({0} AS TIMESTAMP(0))", [a], "CAST(date_trunc('second', {0}) AS TIMESTAMP)", what="CAST time to coarser")
        inner = f"date_trunc('{unit.lower()}', {{0}})"
        return call(a.kind, f"({inner} + INTERVAL '90' SECOND)", [a], f"(CAST({inner} AS TIMESTAMP) + INTERVAL '90' SECOND)", what="time + interval")

    def rejecting(self):
        """An expression that fails for some rows, which are then left out."""
        rng = self.rng
        which = rng.randrange(4)
        if which == 0 and (a := self.column("string")):
            kind = rng.choice(["INT", "BIGINT"])
            cast = whole_number(kind)
            return call(kind, f"CAST({{0}} AS {kind})", [a], cast, rejects=f"({{0}} IS NOT NULL AND ({cast}) IS NULL)", what="CAST that fails")
        if which == 1 and (b := self.column("int", True)):
            return call("BIGINT", "(100 / {0})", [b], "(100 // {0})", rejects="COALESCE({0} = 0, FALSE)", what="division by zero", bound=100)
        if which == 2 and (a := self.column("int")):
            kind = rng.choice(["TINYINT", "SMALLINT", "INT"])
            cast = f"TRY_CAST({{0}} AS {values.duck_type(kind)})"
            return call(kind, f"CAST({{0}} AS {kind})", [a], cast, rejects=f"({{0}} IS NOT NULL AND {cast} IS NULL)", what="CAST that overflows")
        if which == 3 and (a := self.column("int")):
            kind = values.INTEGERS[a.kind]
            duck = f"CASE WHEN CAST({{0}} AS HUGEINT) + CAST({{0}} AS HUGEINT) BETWEEN -{kind} AND {kind - 1} THEN CAST({{0}} AS HUGEINT) + CAST({{0}} AS HUGEINT) END"
            return call(a.kind, "({0} + {0})", [a], duck, rejects=f"({{0}} IS NOT NULL AND ({duck}) IS NULL)", what="overflow")
        return None
