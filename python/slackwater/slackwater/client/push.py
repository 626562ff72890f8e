"""Rows that are pushed into a table of a server.

Each push has a producer, drawn when the table's object is made, and a number. A push without an answer is
sent again under the same number, and the server reads it once.
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from .. import convert
from ..base import BaseTable
from ..errors import ServerError, SqlError, wrong
from . import refusals
from .query import plain_time
from .wire import Wire, part

# Bytes and rows of a push: it is read as a whole, and the server takes at most 4 MiB.
_PUSH_BYTES, _PUSH_ROWS = 1 << 20, 8192

# What says that nothing was read, or that nobody knows: the same push is sent again.
_AGAIN = {"not_running", "starting", "busy", "unconfirmed", "limit"}

# How long the server is asked again, if `push` has no timeout.
_PATIENCE_S = 30.0
_PAUSE_S, _PAUSE_MAX_S = 0.05, 1.0

# The digits that a double has: the server reads the numbers of JSON as doubles.
_DIGITS_MAX = 15


class ServerTable(BaseTable):
    """A table of a server, with the connector `http`, into which this process pushes rows.

    A push is answered when the jobs that read the table have its rows, or with the option
    `'acknowledge' = 'checkpoint'` when a stored checkpoint has them. Threads take turns.
    """

    def __init__(self, wire: Wire, known: dict[str, Any]) -> None:
        self.name = str(known["name"])
        self._wire, self._form = wire, _form(str(known["definition"]))
        self._columns = [str(one["name"]) for one in known["columns"]]
        self._computed = _computed(str(known["definition"]), self._columns)
        self._producer, self._sequence = f"python-{uuid.uuid4().hex}", 0
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def column_names(self) -> list[str]:
        """The columns that are pushed: not those that the table computes."""
        return [name for name in self._columns if name not in self._computed]

    def push(self, rows: Any, *, timeout: float | None = None) -> int:
        """Pushes rows, and returns how many were accepted.

        `rows`: a data frame of pandas or polars, a table or a batch of pyarrow; a list of dictionaries or
        tuples; a dictionary of columns; or a text in the table's format. They are sent in pieces of up to
        8192 rows, each of which is read as a whole or not at all. While the server is busy, restarts or
        can't be reached, a piece is sent again, for `timeout` seconds (30 unless given); it is read once.
        """
        if self._is_closed:
            raise SqlError(f"table '{self.name}' was closed", f"table '{self.name}' was closed")
        if isinstance(rows, (str, bytes)):
            pieces: Iterable[bytes] = [rows.encode() if isinstance(rows, str) else rows]
        else:
            pieces = self._pieces(rows)
        accepted = 0
        with self._lock:
            for piece in pieces:
                try:
                    accepted += self._send(piece, timeout)
                except (SqlError, ServerError) as error:
                    if not accepted:
                        raise
                    raise _after(accepted, error) from error
        return accepted

    def close(self) -> None:
        """Pushes no further rows from here. A table of a server has no end: its jobs wait for more."""
        self._is_closed = True

    def __enter__(self) -> ServerTable:
        return self

    def _send(self, piece: bytes, timeout: float | None) -> int:
        """Sends a piece until there is an answer. The sequence tells the server that it is the same."""
        self._sequence += 1
        end = time.monotonic() + (_PATIENCE_S if timeout is None else timeout)
        pause = _PAUSE_S
        while True:
            try:
                answer = self._wire.ask(
                    "POST",
                    f"/v1/tables/{part(self.name)}",
                    parameters={"producer": self._producer, "sequence": str(self._sequence)},
                    body=piece,
                    kind="text/plain; charset=utf-8",
                    timeout=min(self._wire.timeout, max(1.0, end - time.monotonic())),
                )
                said = answer.json()
                if not isinstance(said, dict) or not isinstance(said.get("rows"), int):
                    raise refusals.not_ours(self._wire.url, "it has no number of rows")
                return int(said["rows"])
            except ServerError as error:
                is_unknown = not error.kind
                if not (is_unknown or error.kind in _AGAIN) or time.monotonic() + pause > end:
                    raise
            time.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX_S)

    def _pieces(self, rows: Any) -> Iterator[bytes]:
        """The rows as text, in pieces."""
        write = self._form.writer(self.name, self.column_names)
        lines: list[str] = []
        size = 0
        for number, row in enumerate(self._rows(rows), 1):
            line = write(row, number)
            if lines and (size + len(line) > _PUSH_BYTES or len(lines) == _PUSH_ROWS):
                yield self._form.joined(lines, self.column_names)
                lines, size = [], 0
            lines.append(line)
            size += len(line.encode()) + 1
        if lines:
            yield self._form.joined(lines, self.column_names)

    def _rows(self, rows: Any) -> Iterator[Sequence[Any]]:
        names = self.column_names
        listed = _frame_rows(rows)
        if listed is None and isinstance(rows, Mapping):
            yield from zip(*convert.columns_of(rows, names))
            return
        for row in convert.as_rows(rows) if listed is None else listed:
            # One at a time, so that the rows may come from a generator.
            yield [column[0] for column in convert.columns_of([row], names)]


def _after(accepted: int, error: SqlError | ServerError) -> SqlError | ServerError:
    """An error of a push of which a part was accepted."""
    message = f"{accepted} rows were accepted, and then: {error.message}"
    hint = f"push the rows after these {accepted} again. {error.hint}".rstrip()
    told = type(error)(f"{message}\n  = {hint}", message, hint, error.line, error.column)
    told.kind = error.kind
    return told


class _Form:
    """The format of a table's rows."""

    def __init__(self, word: str, header: bool, delimiter: str, null: str) -> None:
        self.word, self.header, self.delimiter, self.null = word, header, delimiter, null

    def writer(self, table: str, names: list[str]) -> Callable[[Sequence[Any], int], str]:
        """What writes a row, which has a number."""
        if self.word == "json":
            return lambda row, number: _json_line(names, row, number)
        if self.word == "csv":
            return lambda row, number: self.delimiter.join(self._field(value) for value in row)
        reason = f"rows for table '{table}' can't be written in its format, {self.word}"
        hint = "push them as text in this format, or create the table with 'format' = 'json'"
        raise wrong(reason, hint)

    def joined(self, lines: list[str], names: list[str]) -> bytes:
        """The body of a push."""
        if self.word == "csv" and self.header:
            lines = [self.delimiter.join(_quoted(name) for name in names), *lines]
        return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")

    def _field(self, value: Any) -> str:
        value = _plain(value)
        if value is None:
            return self.null
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, (list, dict)):
            reason = "the format csv has no arrays and rows"
            raise SqlError(f"{reason}\n  = use 'format' = 'json'", reason, "use 'format' = 'json'")
        return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _json_line(names: list[str], row: Sequence[Any], number: int) -> str:
    try:
        values = {name: _plain(value) for name, value in zip(names, row) if value is not None}
        return json.dumps(values, ensure_ascii=False, allow_nan=False, default=_exact)
    except (ValueError, TypeError) as error:
        # Only JSON's own limits come here: NaN and infinity, and types that it has no form for.
        reason = f"row {number} can't be written as JSON: {error}"
        hint = "create the table with 'format' = 'csv', which has NaN, infinity and exact decimals"
        raise wrong(reason, hint) from None


def _exact(value: Any) -> Any:
    """A decimal as a number of JSON, if the server reads all of its digits."""
    if isinstance(value, Decimal) and value.is_finite() and len(value.as_tuple().digits) <= _DIGITS_MAX:
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, Decimal):
        raise ValueError(f"the decimal {value} has more than {_DIGITS_MAX} digits")
    raise TypeError(f"{type(value).__name__} is not a value of SQL")


def _plain(value: Any) -> Any:
    """A value as Python's own."""
    if isinstance(value, date):
        return plain_time(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, (str, bool, int, float, Decimal)):
        return value
    # Scalars and arrays of NumPy.
    for method in ("item", "tolist"):
        if hasattr(value, method) and (method == "tolist" or getattr(value, "ndim", 0) == 0):
            return _plain(getattr(value, method)())
    return value


def _frame_rows(rows: Any) -> Iterable[Mapping[str, Any]] | None:
    """The rows of a data frame, as dictionaries; None of other data."""
    package = type(rows).__module__.partition(".")[0]
    if package == "pandas":
        import pandas

        frame = rows.to_frame() if isinstance(rows, pandas.Series) else rows
        # Values of Python, with None for what pandas writes as NaN, NaT or NA.
        plain = frame.astype(object).where(frame.notna(), None)
        return plain.to_dict("records")  # type: ignore[no-any-return]
    if package == "polars":
        return rows.iter_rows(named=True)  # type: ignore[no-any-return]
    if hasattr(rows, "to_pylist") and not isinstance(rows, Mapping):
        return rows.to_pylist()  # type: ignore[no-any-return]
    if hasattr(rows, "__arrow_c_stream__"):
        import pyarrow

        return pyarrow.table(rows).to_pylist()  # type: ignore[no-any-return]
    return None


def _form(definition: str) -> _Form:
    """The format that CREATE TABLE names."""

    def option(name: str, default: str) -> str:
        found = re.search(rf"'{re.escape(name)}'\s*=\s*'((?:[^']|'')*)'", definition, re.IGNORECASE)
        return found[1].replace("''", "'") if found else default

    delimiter = option("csv.delimiter", ",").replace("\\t", "\t")
    header = option("csv.header", "false").lower() == "true"
    return _Form(option("format", "csv").lower(), header, delimiter, option("csv.null", ""))


def _computed(definition: str, names: list[str]) -> set[str]:
    """The columns that CREATE TABLE computes: `name AS …`."""
    columns = definition.partition("(")[2]
    found = set()
    for name in names:
        written = "|".join(re.escape(form) for form in (name, convert.quoted(name), f"`{name}`"))
        if re.search(rf"(?:^|,)\s*(?:{written})\s+AS\b", columns, re.IGNORECASE):
            found.add(name)
    return found
