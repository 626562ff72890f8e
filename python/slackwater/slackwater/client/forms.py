"""Reads the rows of an answer."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..base import Batch
from ..errors import ServerError
from . import refusals
from .batch import ArrowBatch, ValueBatch, of_json
from .wire import Answer

if TYPE_CHECKING:
    import pyarrow

ARROW = "application/vnd.apache.arrow.stream"
LINES = "application/x-ndjson"

# Rows of a batch that is made of lines.
_ROWS_MAX = 8192


def has_pyarrow() -> bool:
    """Whether rows can come as Arrow."""
    try:
        import pyarrow.ipc  # noqa: F401
    except ImportError:
        return False
    return True


class Reader:
    """The batches of an answer. `text` is what the user wrote, and what was sent begins at `begin`."""

    def __init__(self, answer: Answer, text: str, begin: int) -> None:
        self._answer = answer.checked(ARROW, LINES, text=text, begin=begin)
        self._text, self._begin = text, begin
        #: The names of the columns, as soon as they are known.
        self.names: list[str] = []
        self.schema: Any = None
        #: How the statement ended, such as "SELECT 3", if the form says so.
        self.done: str | None = None
        self.has_ended = False
        self._stream: pyarrow.RecordBatchReader | None = None
        self._columns: list[tuple[str, str]] = []
        self._lines: list[bytes] = []
        if answer.kind == ARROW:
            self._stream = self._opened()

    @property
    def was_aborted(self) -> bool:
        """Whether somebody has ended it."""
        return self._answer.was_aborted

    def next(self) -> Batch | None:
        """The next batch, as soon as rows have come; None at the end."""
        if self.has_ended:
            return None
        batch = self._next_of_arrow() if self._stream is not None else self._next_of_lines()
        if batch is None:
            self.has_ended = True
            self._answer.close()
        return batch

    def columns(self) -> list[tuple[str, str]]:
        """The columns of lines, of which no rows are read."""
        while not self._columns and not self.has_ended:
            self._lines = self._lines or self._answer.lines()
            if not self._lines:
                break
            self._take(self._lines.pop(0), [])
        return self._columns

    def abort(self) -> None:
        """Ends it, from any thread."""
        self.has_ended = True
        self._answer.abort()

    def close(self) -> None:
        """Gives up what was not read, which ends it in the server."""
        self.has_ended = True
        self._answer.close()

    def _opened(self) -> pyarrow.RecordBatchReader:
        import pyarrow

        try:
            stream = pyarrow.ipc.open_stream(pyarrow.PythonFile(_File(self._answer), mode="r"))
        except pyarrow.ArrowException as error:
            raise self._not_arrow(error) from error
        self.schema, self.names = stream.schema, list(stream.schema.names)
        return stream

    def _next_of_arrow(self) -> Batch | None:
        import pyarrow

        assert self._stream is not None
        while True:
            try:
                batch = self._stream.read_next_batch()
            except StopIteration:
                # What follows the end of the stream: nothing, by which the connection can be used again.
                self._answer.read_some()
                return None
            except pyarrow.ArrowException as error:
                if self.was_aborted:
                    return None
                raise self._not_arrow(error) from error
            if batch.num_rows:
                return ArrowBatch(batch)

    def _not_arrow(self, error: Exception) -> ServerError:
        self._answer.close()
        return refusals.not_ours(self._answer.url, f"it is not a stream of Arrow ({error})")

    def _next_of_lines(self) -> Batch | None:
        rows: list[list[Any]] = []
        while self.done is None and not self.was_aborted:
            self._lines = self._lines or self._answer.lines()
            if not self._lines:
                if self.was_aborted:
                    break
                raise refusals.broke_off(self._answer.url, "its last line is missing")
            while self._lines and len(rows) < _ROWS_MAX and self.done is None:
                self._take(self._lines.pop(0), rows)
            if rows:
                return ValueBatch(self._columns, rows)
        if not self.was_aborted:
            self._answer.read_some()
        return None

    def _take(self, line: bytes, rows: list[list[Any]]) -> None:
        """Takes a line: columns, a row, the end, or an error."""
        try:
            # A number with a point stays a text, because a decimal is no double.
            said = json.loads(line, parse_float=str)
            if "row" in said:
                row = said["row"]
                rows.append([of_json(row[name], kind) for name, kind in self._columns])
            elif "columns" in said:
                self._columns = [(str(one["name"]), str(one["type"])) for one in said["columns"]]
                self.names = [name for name, _ in self._columns]
            elif "done" in said:
                self.done = str(said["done"])
                warn(said["notices"])
            else:
                error = dict(said["error"])
                self.close()
                raise refusals.of_error(error, self._text, self._begin, url=self._answer.url)
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
            self.close()
            shown = line[:80].decode("utf-8", "replace")
            raise refusals.not_ours(self._answer.url, f"a line of it is {shown!r}") from error


class _File:
    """An answer as a file of Python, for pyarrow."""

    closed = False

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def read(self, count: int = -1) -> bytes:
        return self._answer.read(count)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        pass


def done_lines(answer: Answer, text: str, begin: int) -> list[tuple[str, list[str]]]:
    """How statements without rows ended, with what the server notes about them."""
    if answer.kind != LINES:
        answer.checked(LINES, text=text, begin=begin)
    # Of any status: an error may come after statements that were done.
    body = answer.read_all()
    found: list[tuple[str, list[str]]] = []
    for line in body.splitlines():
        try:
            said = json.loads(line)
            if "done" in said:
                found.append((str(said["done"]), [str(notice) for notice in said["notices"]]))
                warn(found[-1][1])
                continue
            error = said.get("error")
        except (ValueError, TypeError, KeyError, AttributeError):
            shown = line[:80].decode("utf-8", "replace")
            raise refusals.not_ours(answer.url, f"a line of it is {shown!r}") from None
        if error is not None:
            raise refusals.of_error(dict(error), text, begin, answer.status, answer.url)
    return found


def warn(notices: list[str]) -> None:
    """Shows what the server notes, where warnings of Python are shown; not that a job runs."""
    for notice in notices:
        if not job_of(notice):
            warnings.warn(str(notice), stacklevel=_level())


def job_of(notice: str) -> str | None:
    """The name of the job that an INSERT has made: `job 'x' runs; STOP JOB x stops it`."""
    begin, middle = "job '", "' runs; STOP JOB "
    if not notice.startswith(begin) or not notice.endswith(" stops it"):
        return None
    rest = notice[len(begin) : -len(" stops it")]
    half = (len(rest) - len(middle)) // 2
    name = rest[:half]
    return name if half > 0 and rest == f"{name}{middle}{name}" else None


def _level() -> int:
    """The frames between a warning and the user's line."""
    import sys

    frame, level = sys._getframe(2), 2
    package = __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    return level
