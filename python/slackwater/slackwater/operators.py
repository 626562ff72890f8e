"""Operators of SQL that are written in Python: functions that take tables and return a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from .errors import wrong
from .loaded import _slackwater

_H = TypeVar("_H", bound=Callable[..., Any])

_Columns = Mapping[str, str]

# What workers of CREATE FUNCTION run, too: one class works in both.
_worker: dict[str, Any] = {"__name__": "slackwater_worker", "__file__": "slackwater_worker.py"}
exec(compile(_slackwater.OPERATORS, "slackwater_worker.py", "exec"), _worker)


class _Call:
    """Runs a call of an operator in this process."""

    def __init__(self, handler: Callable[..., Any], told: str) -> None:
        given = {"table": json.loads(told)}
        kind = "Keyed" if given["table"]["state"] is not None else "Table"
        self.of = _worker[kind](handler, given, None)

    def keyed(self, keeps, timers, stored, steps, columns, limit, is_careful):
        run = _worker["Run"](self.of, keeps, timers, stored, steps, columns, [0], is_careful)
        done = run.run(limit)
        return (
            done, run.keeps, run.fired, run.timers, run.stored, run.keys, run.times, run.out._numbers,
            run.emitted(), run.failed, run.failed_timers, run.reasons, run.out._retracted,
        )

    def table(self, columns):
        of, made = self.of.made(columns, [0])
        return of, list(map(list, zip(*made))) or [[] for _ in self.of.own or [None]]

    def check(self, of, columns):
        """Raises an error that names the row of a value that is not of its type."""
        self.of.written(of, list(zip(*columns)))


def operator(
    inputs: _Columns | Sequence[_Columns] | None,
    returns: _Columns,
    *,
    state: _Columns | None = None,
    arguments: _Columns | None = None,
    name: str | None = None,
    order: bool = False,
    forgets: bool = False,
    outputs: Sequence[str] = (),
    version: int = 1,
    updates: bool = False,
    emits_updates: bool = False,
) -> Callable[[_H], _H]:
    """Makes an operator of SQL of a class, or without `state` of a function.

        @slackwater.operator({"value": "DOUBLE"}, {"old": "DOUBLE", "new": "DOUBLE"},
                             state={"last": "DOUBLE"}, arguments={"least": "DOUBLE"})
        class changes:
            def __init__(self, least=0.0):
                self.least = least

            def on_row(self, state, row, out):
                if state.last is None or abs(row.value - state.last) > self.least:
                    out.emit(state.last, row.value)
                    state.last = row.value

        session.sql("SELECT * FROM changes(TABLE readings PARTITION BY sensor ORDER BY ts, 0.5)")

    `inputs` are the columns that it gets, and their types; a list has those of several tables, and None is
    all columns. `returns` are its own columns, none for a filter. A function without a state gets a row's
    values, and returns True or False, or rows. `arguments` are constants of a call: BOOLEAN, BIGINT, DOUBLE,
    STRING or INTERVAL. What a row raises rejects it, and changes nothing.

    `docs/python-operators.md` describes classes and functions, and the options: they are those of CREATE
    FUNCTION … RETURNS TABLE, which runs the same class in processes of its own. `name` is that of the class
    or function unless it is given; a function in Python that has it is replaced.
    """

    def define(handler: _H) -> _H:
        own = name if name is not None else handler.__name__
        if state is not None and not hasattr(handler, "on_row"):
            raise wrong(f"the operator {own} has no on_row", "it needs on_row(self, state, row, out)")
        called = {own: handler}
        if state is not None:
            called = {name: getattr(handler, name, None) for name in ("on_row", "on_time", "on_new_key")}
        for method, function in called.items():
            if reason := _worker["never_runs"](function, state is not None):
                raise wrong(f"the operator {own}: {method} {reason}", "otherwise it would never run")
        tables = [inputs] if inputs is None or isinstance(inputs, Mapping) else list(inputs)
        needs_state = len(tables) > 1 or outputs or forgets or order or version != 1 or emits_updates
        if state is None and needs_state:
            raise wrong(
                f"the operator {own} has no state, and takes one table, no outputs and no order, and does "
                "not retract rows",
                "give it a state, or leave these out",
            )
        _slackwater.define_operator(
            own,
            lambda told: _Call(handler, told),
            [None if table is None else list(table.items()) for table in tables],
            list(returns.items()),
            None if state is None else list(state.items()),
            list((arguments or {}).items()),
            (version, order, forgets, list(outputs), updates, emits_updates),
        )
        return handler

    return define
