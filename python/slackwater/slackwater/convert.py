"""Rows from what users have, and data frames from rows."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .errors import SqlError, wrong

if TYPE_CHECKING:
    from . import _slackwater

# Units of a duration in a text, in seconds.
_UNITS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0}
_UNITS |= {"h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0}


def seconds(duration: str | float | timedelta) -> float:
    """The seconds of `"5 s"`, `"2 minutes"`, a number of seconds, or a timedelta."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, (int, float)):
        return float(duration)
    number, _, unit = duration.strip().partition(" ")
    unit = unit.strip().lower()
    factor = _UNITS.get(unit, _UNITS.get(unit.removesuffix("s")))
    try:
        return float(number) * factor  # type: ignore[operator]
    except (TypeError, ValueError):
        reason = f"'{duration}' is not a duration"
        raise SqlError(f"{reason}\n  = write '5 s'", reason, "write '5 s'") from None


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def engine(what: str) -> ModuleType:
    """The engine's module, which a client of a server may lack."""
    try:
        return importlib.import_module(".loaded", __package__).load()  # type: ignore[no-any-return]
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{what}: the engine is not part of this installation of slackwater\n"
            "  = install a wheel: docs/python.md says which; or write a schema as {'a': 'BIGINT'}"
        ) from error


def declared(
    schema: Any,
    event_time: str | None,
    watermark: str | float | timedelta | None,
) -> str:
    """What CREATE TABLE has in its parentheses."""
    names: list[str] | None = None
    if isinstance(schema, str):
        columns = schema
    elif hasattr(schema, "__arrow_c_schema__"):
        columns = engine("a schema of Arrow").sql_columns(schema)
    elif (rows := arrow_rows(schema)) is not None:
        columns = rows.sql_columns()
    else:
        pairs = _pairs(schema)
        names = [name for name, _ in pairs]
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in pairs)
    if event_time is not None:
        if names is not None and event_time not in names:
            reason = f"event_time='{event_time}' is not a column"
            raise wrong(reason, f"the columns are {', '.join(names)}")
        lag = seconds(watermark if watermark is not None else 0)
        name = quoted(event_time)
        columns += f", WATERMARK FOR {name} AS {name} - INTERVAL '{lag:.3f}' SECOND"
    elif watermark is not None:
        hint = "event_time='…' names it"
        reason = "a watermark needs the column with the event time"
        raise wrong(reason, hint)
    return columns


def _pairs(schema: Any) -> list[tuple[str, str]]:
    """The names and types of a schema that is a dictionary or pairs."""
    pairs = list(schema.items()) if isinstance(schema, Mapping) else schema
    is_pairs = isinstance(pairs, Sequence) and all(
        isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
        for pair in pairs
    )
    if not is_pairs or not pairs:
        reason = f"a schema is a dictionary of columns, and not {schema!r:.100}"
        raise wrong(reason, "write {'sensor': 'STRING', 'ts': 'TIMESTAMP(3)'}")
    return [(str(name), str(kind)) for name, kind in pairs]


def arrow_rows(data: Any) -> _slackwater.Rows | None:
    """The rows of data with Arrow's methods, or of an old data frame of pandas; None of other data."""
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        kind: type[_slackwater.Rows] = engine("Arrow's methods").Rows
        return data if isinstance(data, kind) else kind.of(data)
    if type(data).__module__.partition(".")[0] == "pandas":
        arrow = pyarrow("a data frame of this version of pandas")
        table = arrow.Table.from_pandas(data, preserve_index=False)
        rows: _slackwater.Rows = engine("a data frame").Rows.of(table)
        return rows
    return None


def columns_of(rows: Any, names: Sequence[str]) -> list[list[Any]]:
    """Lists of values for these columns: of a dictionary of columns, or of rows that are dictionaries or
    tuples. What a dictionary lacks is NULL."""
    if isinstance(rows, Mapping):
        _only_known(rows, names)
        columns = [list(rows.get(name, ())) for name in names]
        length = max(map(len, columns), default=0)
        for name, column in zip(names, columns):
            if name in rows and len(column) != length:
                reason = f"column '{name}' has {len(column)} values, and others have {length}"
                raise wrong(reason, "each column has a value for each row; None is NULL")
        return [column or [None] * length for column in columns]
    columns = [[] for _ in names]
    known = set(names)
    for row in as_rows(rows):
        if isinstance(row, Mapping):
            if not known.issuperset(row):
                _only_known(row, names)
            values: Iterable[Any] = (row.get(name) for name in names)
        else:
            values = tuple(row)
            if len(values) != len(names):
                hint = f"the columns are {', '.join(names)}"
                reason = f"a row has {len(values)} values for {len(names)} columns"
                raise wrong(reason, hint)
        for column, value in zip(columns, values):
            column.append(value)
    return columns


def _only_known(given: Mapping[Any, Any], names: Sequence[str]) -> None:
    """A name that the table does not have is mistyped."""
    unknown = [str(name) for name in given if name not in names]
    if unknown:
        hint = f"the columns are {', '.join(names)}"
        reason = f"there is no column '{unknown[0]}'"
        raise wrong(reason, hint)


def as_rows(rows: Any) -> Iterable[Any]:
    """The rows of an iterable."""
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        hint = "give a list of dictionaries or tuples, or a data frame"
        reason = f"{type(rows).__name__} is not rows"
        raise wrong(reason, hint)
    return rows


def pyarrow(what: str) -> ModuleType:
    """The package pyarrow."""
    try:
        return importlib.import_module("pyarrow")
    except ModuleNotFoundError as error:
        raise ImportError(f"{what} needs pyarrow\n  = pip install pyarrow") from error


def untimed(error: SqlError) -> SqlError:
    """An error about the event time of a table in Python."""
    if not error.message.startswith("event time must be"):
        return error
    hint = "make it one first, as pandas.to_datetime does; or write the schema as the text of CREATE TABLE"
    return wrong(error.message, hint)


def pandas_of(rows: Any) -> Any:
    """A pandas.DataFrame, by way of pyarrow."""
    arrow = pyarrow("to_pandas()")
    if hasattr(rows, "__arrow_c_stream__"):
        return arrow.table(rows).to_pandas()
    return arrow.record_batch(rows).to_pandas()
