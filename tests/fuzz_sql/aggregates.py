"""Aggregates and functions of OVER, in both dialects."""

from . import values
from .expressions import Expr, Maker, call

MOMENTS = ["STDDEV", "STDDEV_POP", "VAR_POP", "VAR"]
FILTER = "<filter>"
"""Placeholder for a FILTER that is not at the end."""
PAIRS = ["CORR", "COVAR_SAMP", "COVAR_POP", "REGR_SLOPE", "REGR_AVGX", "REGR_AVGY", "REGR_COUNT", "REGR_SXX", "REGR_SXY", "REGR_R2", "REGR_INTERCEPT"]
DUCK = {"VAR": "VAR_SAMP"}


def aggregate(rng, scope, order=None, changes=False, over=False):
    """A random aggregate over the scope. `order`: what FIRST_VALUE is ordered by; None if that is not known
    (rows of a join)."""
    maker = Maker(rng, scope)
    made = plain(rng, maker, order, changes, over)
    if made is None:
        made = call("BIGINT", "COUNT(*)", [], what="COUNT(*)", bound=2000)
    # DuckDB does not support FILTER in FIRST_VALUE(…) OVER.
    if rng.random() < 0.2 and "WITHIN" not in made.ours and not (over and "_VALUE" in made.ours):
        condition = maker.make("boolean", 1)
        holder = "{" + str(len(made.args)) + "}"
        duck = made.duck.replace(FILTER, f" FILTER (WHERE {holder})") if FILTER in made.duck else made.duck[:-1] + f" AND {holder})" if made.duck.endswith("NOT NULL)") else made.duck + f" FILTER (WHERE {holder})"
        # IGNORE NULLS follows FILTER.
        call_, nulls, _ = made.ours.partition(" IGNORE NULLS")
        made = Expr(made.kind, call_ + f" FILTER (WHERE {holder})" + nulls, duck, made.args + [condition], made.bound, made.what + " FILTER", approximate=made.approximate)
    made.duck = made.duck.replace(FILTER, "")
    return made


def plain(rng, maker, order, changes, over):
    which = rng.randrange(17)
    if which < 2:
        return None
    if which == 2:
        a = maker.any(1)
        return call("BIGINT", "COUNT({0})", [a], what="COUNT(x)", bound=2000)
    if which < 5:
        return summed(rng, maker, "SUM")
    if which == 5:
        return summed(rng, maker, "AVG")
    if which < 8:
        a = maker.any(1)
        if values.family(a.kind) == "boolean":
            return None
        return call(a.kind, rng.choice(["MIN", "MAX"]) + "({0})", [a], bound=a.bound)
    if which == 8:
        a = maker.any_leaf()
        return call("BIGINT", "COUNT(DISTINCT {0})", [a], what="COUNT(DISTINCT)", bound=2000)
    if which == 9:
        a = maker.make("int", 1, True)
        return call("BIGINT", "SUM(DISTINCT {0})", [a], what="SUM(DISTINCT)", bound=a.bound * 200) if a.bound is not None else None
    if which == 10 and not over:
        a, b = maker.any_leaf(), maker.any_leaf()
        # A pair counts if neither of the two is NULL.
        return call("BIGINT", "COUNT(DISTINCT {0}, {1})", [a, b], "COUNT(DISTINCT ({0}, {1})) FILTER (WHERE {0} IS NOT NULL AND {1} IS NOT NULL)", what="COUNT(DISTINCT a, b)", bound=2000)
    if which < 13 and order and not changes:
        a = maker.any_leaf()
        name, nulls = rng.choice(["FIRST", "LAST"]), rng.random() < 0.3
        if over:
            return call(a.kind, name + "_VALUE({0})" + (" IGNORE NULLS" if nulls else ""), [a], name + "_VALUE({0}" + (" IGNORE NULLS)" if nulls else ")"), bound=a.bound, what=name + "_VALUE")
        duck = f"{name}({{0}} ORDER BY {order})" + (" FILTER (WHERE {0} IS NOT NULL)" if nulls else "")
        return call(a.kind, name + "_VALUE({0})" + (" IGNORE NULLS" if nulls else ""), [a], duck, bound=a.bound, what=name + "_VALUE" + (" IGNORE NULLS" if nulls else ""))
    if which == 13:
        return call("BOOLEAN", rng.choice(["BOOL_AND", "BOOL_OR"]) + "({0})", [maker.make("boolean", 1)])
    if which == 14:
        a = maker.make("int", 1)
        return call(a.kind, rng.choice(["BIT_AND", "BIT_OR", "BIT_XOR"]) + "({0})", [a])
    if which == 15:
        a = maker.make("double", 1, True)
        if a.bound is None or a.kind != "DOUBLE":
            return None
        if rng.random() < 0.5:
            name = rng.choice(MOMENTS)
            return call("DOUBLE", name + "({0})", [a], DUCK.get(name, name) + "({0})", approximate=True)
        if over:
            return None
        part = rng.choice(["0.5", "0.9", "0.25", "0.0", "1.0"])
        if rng.random() < 0.4:
            return call("DOUBLE", "MEDIAN({0})", [a], approximate=True)
        return call("DOUBLE", f"PERCENTILE_CONT({part}) WITHIN GROUP (ORDER BY {{0}})", [a], f"quantile_cont({{0}}, {part})", approximate=True, what="PERCENTILE_CONT")
    if over:
        return None
    a, b = maker.make("double", 1, True), maker.make("double", 1, True)
    if a.bound is None or b.bound is None or "DOUBLE" not in (a.kind, b.kind) or a.kind != b.kind:
        return None
    name = rng.choice(PAIRS)
    if name == "REGR_COUNT":
        return call("BIGINT", name + "({0}, {1})", [a, b])
    # If all values are the same the slope is NULL, as in PostgreSQL; DuckDB returns NaN.
    return call("DOUBLE", name + "({0}, {1})", [a, b], f"nullif({name}({{0}}, {{1}}){FILTER}, 'nan'::DOUBLE)", approximate=True)


def summed(rng, maker, name):
    a = maker.make(rng.choice(["int", "int", "double", "decimal"] if name == "SUM" else ["int", "double"]), 1, True)
    if a.bound is None or a.kind == "FLOAT":
        return None
    if name == "AVG":
        return call("DOUBLE", "AVG({0})", [a], what="AVG " + values.family(a.kind))
    kind = {"int": "BIGINT", "double": "DOUBLE"}.get(values.family(a.kind), "DECIMAL(38, 6)" if a.kind.endswith("6)") else "DECIMAL(38, 3)")
    return call(kind, "SUM({0})", [a], bound=a.bound * 200, what="SUM " + values.family(a.kind))
