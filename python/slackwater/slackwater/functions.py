"""Functions of SQL that are written in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .errors import wrong
from .loaded import _slackwater

_F = TypeVar("_F", bound=Callable[..., Any])
_C = TypeVar("_C", bound=type)


def udf(
    inputs: Sequence[str] | str,
    output: str,
    *,
    name: str | None = None,
    scalar: bool = False,
    nulls: bool = False,
) -> Callable[[_F], _F]:
    """Makes a function of SQL, for all queries of this process that are made from now on.

        @slackwater.udf(["DOUBLE", "DOUBLE"], "DOUBLE")
        def distance(x, y):
            return numpy.hypot(x, y)

    The function gets a `slackwater.Array` for each argument, with the rows of a chunk, and returns as many
    values: an array of NumPy, Arrow or this package, or a list. `numpy.asarray` reads an `Array` without
    copying it. With `scalar`, it gets the values of one row as Python objects, and returns one.

    Rows with a NULL are left out, and their result is NULL, unless the function takes `nulls`. What it raises
    rejects the row that it can't compute, with the traceback as the reason: rejected rows are counted,
    and kept in the table's dead-letter file. (A function of columns is called again with fewer rows, to
    find that row.)

    The result must depend on the arguments alone. `name` is that of the Python function unless it is given; a
    function in Python that has it is replaced.
    """

    def define(function: _F) -> _F:
        own = name if name is not None else function.__name__
        given = [inputs] if isinstance(inputs, str) else list(inputs)
        _slackwater.define_function(own, function, given, output, scalar, nulls)
        return function

    return define


def udaf(
    inputs: Sequence[str] | str,
    output: str,
    *,
    name: str | None = None,
    nulls: bool = False,
) -> Callable[[_C], _C]:
    """Makes an aggregate function of SQL of a class whose objects have the state of a group.

        @slackwater.udaf("DOUBLE", "DOUBLE")
        class geometric_mean:
            def __init__(self):
                self.n, self.logs = 0, 0.0

            def accumulate(self, value):
                self.n, self.logs = self.n + 1, self.logs + math.log(value)

            def merge(self, other):
                self.n, self.logs = self.n + other.n, self.logs + other.logs

            def finish(self):
                return math.exp(self.logs / self.n) if self.n else None

    Rows come in any order and in parts that are merged: the value must be the same. `retract(…)`, if the
    class has it, takes a row back; without it, the values of a group are kept where rows may be taken
    back. Rows with a NULL are left out, unless the function takes `nulls`. Objects are pickled for
    checkpoints. What `finish` raises rejects the group's row; what another method raises ends the query.
    """

    def define(group: _C) -> _C:
        methods = ("accumulate", "merge", "finish")
        missing = [method for method in methods if not hasattr(group, method)]
        if missing:
            reason = f"the aggregate {group.__name__} has no method {' and no method '.join(missing)}"
            hint = "it needs accumulate(self, …), merge(self, other) and finish(self)"
            raise wrong(reason, hint)
        own = name if name is not None else group.__name__
        given = [inputs] if isinstance(inputs, str) else list(inputs)
        _slackwater.define_aggregate(own, group, given, output, nulls)
        return group

    return define
