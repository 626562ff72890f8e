"""Sources that are written in Python: a generator for each partition, on a thread of its own.

A thread calls the function, hands on what its generator yields, and waits while the query is not as fast.
When the query ends, the generator is closed at its next `yield`. One that does not come there within
`GRACE_S` gets a GeneratorExit where it is, once it runs Python again; one that stays blocked is left behind.
"""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

from . import convert, stored
from .errors import SqlError, wrong
from .loaded import _slackwater

# How long a generator may take to its next `yield` before it is interrupted there where it is.
GRACE_S = 1.0

# The most partitions of a source: each has a thread.
PARTITIONS_MAX = _slackwater.PARTITIONS_MAX

# The characters of a traceback that an error has: its end names what was raised.
_TRACEBACK_MAX = 4_000

# The characters of a rejected row.
_RECORD_MAX = 4_096

# A row that could not be made: its number, why, and its text.
_Bad = tuple[int, str, str]


class Source:
    """A function that makes generators."""

    def __init__(
        self, name: str, function: Callable[..., Any], partitions: int, ends: bool
    ) -> None:
        self.name = name
        self.function = function
        self.partitions, self.ends = partitions, ends
        if not callable(function):
            hint = "@session.source(…) stands before a function with yield"
            raise wrong(f"table '{name}': {type(function).__name__} is not a function", hint)
        if not isinstance(partitions, int) or not 1 <= partitions <= PARTITIONS_MAX:
            hint = f"a number from 1 to {PARTITIONS_MAX}: each partition has a thread"
            raise wrong(f"table '{name}': partitions={partitions!r:.100} is not possible", hint)
        self.arguments = _arguments(name, function)
        self.has_offsets = "offset" in self.arguments
        if partitions != 1 and "partition" not in self.arguments:
            hint = "def read(partition, offset): …"
            raise wrong(
                f"table '{name}' has {partitions} partitions, and its function has no parameter 'partition'",
                hint,
            )

    def start(self, outlet: _slackwater.Outlet) -> Reading:
        """Starts to read a partition."""
        reading = Reading(self, outlet)
        name = f"{self.name}[{outlet.partition}]"
        threading.Thread(target=reading.run, name=name, daemon=True).start()
        return reading

    def parts(self, item: Any) -> tuple[Any, str | None]:
        """The rows and the offset of what was yielded."""
        if not self.has_offsets:
            return item, None
        if not isinstance(item, tuple) or len(item) != 2:
            hint = "yield rows, offset; a function without the parameter 'offset' yields rows only"
            raise wrong(f"{_kind(item)} was yielded instead of rows and an offset", hint)
        return item[0], stored.dumps(item[1], "the offset")


class Reading:
    """A partition that is read by a thread."""

    def __init__(self, source: Source, outlet: _slackwater.Outlet) -> None:
        self._source = source
        self._outlet = outlet
        self._names = outlet.column_names
        self._lock = threading.Lock()
        self._is_stopped = False
        # The thread, while it runs code of the generator.
        self._inside: int | None = None
        self._timer: threading.Timer | None = None
        # How an async generator is cancelled.
        self._cancel: Callable[[], object] | None = None

    def stop(self) -> None:
        """Closes the generator soon."""
        with self._lock:
            self._is_stopped = True
            cancel = self._cancel
            if cancel is None:
                self._timer = threading.Timer(GRACE_S, self._interrupt)
                self._timer.daemon = True
                self._timer.start()
        if cancel is not None:
            try:
                cancel()
            except RuntimeError:
                pass  # Its loop has ended by now.

    def run(self) -> None:
        """Reads the partition to its end."""
        outlet = self._outlet
        try:
            try:
                outlet.wait_for_turn()
                self._read()
            finally:
                self._settle()
        except BaseException as error:
            if not self._is_stopped:
                outlet.fail(*_told(error))
            elif not isinstance(error, (GeneratorExit, asyncio.CancelledError)):
                traceback.print_exception(type(error), error, _own_frames(error))
        finally:
            outlet.end()

    def _read(self) -> None:
        given: dict[str, Any] = {}
        if "partition" in self._source.arguments:
            given["partition"] = self._outlet.partition
        if self._source.has_offsets:
            offset = self._outlet.offset
            given["offset"] = None if offset is None else stored.loads(offset)
        made = self._inside_of(lambda: self._source.function(**given))
        if isinstance(made, AsyncIterator):
            asyncio.run(self._drain(made))
            return
        rows = (str, bytes, Sequence, Mapping)
        is_rows = isinstance(made, rows) or hasattr(made, "__arrow_c_stream__")
        if inspect.isawaitable(made) or is_rows or not hasattr(made, "__iter__"):
            if inspect.iscoroutine(made):
                made.close()
            raise wrong(f"the function has returned {_kind(made)}, and not a generator", "use yield")
        iterator = iter(made)
        try:
            while True:
                try:
                    item = self._inside_of(lambda: next(iterator))
                except StopIteration:
                    return
                if not self._outlet.push(*self._piece(item), True):
                    self._is_stopped = True
                    return
        finally:
            self._settle()
            if hasattr(iterator, "close"):
                iterator.close()

    async def _drain(self, generator: AsyncIterator[Any]) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "it runs as a task"
        with self._lock:
            if self._is_stopped:
                return
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            async for item in generator:
                piece = self._piece(item)
                taken = self._outlet.push(*piece, False)
                if taken is None:
                    # What else runs in the loop must not wait.
                    taken = await asyncio.to_thread(self._outlet.push, *piece, True)
                if not taken:
                    self._is_stopped = True
                    return
        finally:
            if hasattr(generator, "aclose"):
                await generator.aclose()

    def _piece(self, item: Any) -> tuple[_slackwater.Rows, list[_Bad], str | None]:
        try:
            rows, offset = self._source.parts(item)
            native = convert.arrow_rows(rows)
            if native is not None:
                return native, [], offset
            columns, places, bad = _columns(rows, self._names)
            native, more = self._outlet.rows(columns)
        except (SqlError, ValueError, TypeError) as error:
            raise _Wrong(error) from error
        if places is not None:
            more = [(places[number], reason, record) for number, reason, record in more]
        return native, bad + more, offset

    def _inside_of(self, call: Callable[[], Any]) -> Any:
        """Calls what may be interrupted."""
        with self._lock:
            if self._is_stopped:
                raise GeneratorExit
            self._inside = threading.get_ident()
        try:
            return call()
        finally:
            with self._lock:
                self._inside = None

    def _interrupt(self) -> None:
        with self._lock:
            if self._inside is not None:
                _raise_in(self._inside, GeneratorExit)

    def _settle(self) -> None:
        """From now on nothing is interrupted."""
        with self._lock:
            self._inside = None
            if self._timer is not None:
                self._timer.cancel()
            _raise_in(threading.get_ident(), None)


class _Wrong(Exception):
    """What was yielded is wrong, and not how it was made."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.reason = getattr(error, "message", str(error))
        self.hint = getattr(error, "hint", "") or "yield rows with the columns of the table"


def _raise_in(thread: int, exception: type[BaseException] | None) -> None:
    """Raises an exception in a thread, or takes back one that has not come there yet."""
    raised = None if exception is None else ctypes.py_object(exception)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


def _own_frames(error: BaseException) -> Any:
    """The traceback without the frames of this module."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return frames


def _told(error: BaseException) -> tuple[str, str]:
    """Why reading has failed, and what to do."""
    if isinstance(error, _Wrong):
        return error.reason, error.hint
    if isinstance(error, SqlError) and _own_frames(error) is None:
        return error.message, error.hint
    lines = traceback.format_exception(type(error), error, _own_frames(error))
    text = "".join(lines).rstrip()[-_TRACEBACK_MAX:]
    hint = "what is raised ends the query: catch what may pass"
    return f"the source has raised:\n{text}", hint


def _arguments(name: str, function: Callable[..., Any]) -> list[str]:
    """Which of `partition` and `offset` the function takes."""
    hint = "its parameters are 'partition' and 'offset', each if it is needed"
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise wrong(f"table '{name}': the parameters of its function are not known", hint) from None
    known = ("partition", "offset")
    for parameter in parameters:
        is_open = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        is_optional = is_open or parameter.default is not parameter.empty
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.name in known:
            raise wrong(f"table '{name}': '{parameter.name}' is given by its name", "leave out the '/'")
        if parameter.name not in known and not is_optional:
            raise wrong(f"table '{name}': its function has a parameter '{parameter.name}'", hint)
    return [parameter.name for parameter in parameters if parameter.name in known]


def _kind(value: Any) -> str:
    """What a value is, with its article left out: `a tuple of 3` or `int`."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"'{type(value).__name__}'"


def _columns(
    rows: Any, names: Sequence[str]
) -> tuple[list[list[Any]], list[int] | None, list[_Bad]]:
    """Lists of values for these columns; the numbers of their rows, if there are others; and those."""
    if isinstance(rows, Mapping):
        unknown = [str(name) for name in rows if name not in names]
        if unknown:
            hint = f"the columns are {', '.join(names)}"
            raise wrong(f"the columns {', '.join(unknown)} are not in the table", hint)
        return convert.columns_of(rows, names), None, []
    rows = rows if isinstance(rows, list) else list(convert.as_rows(rows))
    if all(type(row) is tuple and len(row) == len(names) for row in rows):
        columns = [list(column) for column in zip(*rows)]
        return columns or [[] for _ in names], None, []
    columns, places, bad = [[] for _ in names], [], []
    known = set(names)
    for number, row in enumerate(rows):
        reason = _why_not(row, names, known)
        if reason is not None:
            bad.append((number, reason, _shown(row)))
            continue
        values: Iterator[Any] = iter(row)
        if isinstance(row, Mapping):
            values = (row.get(name) for name in names)
        for column, value in zip(columns, values):
            column.append(value)
        places.append(number)
    return columns, places, bad


def _why_not(row: Any, names: Sequence[str], known: set[str]) -> str | None:
    """Why this is not a row of the table; None if it is."""
    if isinstance(row, Mapping):
        if known.isdisjoint(row):
            return f"the row has none of the columns {', '.join(names)}"
        return None
    if not isinstance(row, Sequence) or isinstance(row, (str, bytes)):
        return f"'{type(row).__name__}' is not a row, which is a dictionary or a tuple"
    if len(row) != len(names):
        return f"the row has {len(row)} values for the {len(names)} columns {', '.join(names)}"
    return None


def _shown(row: Any) -> str:
    """A row as a dead letter has it."""
    try:
        return repr(row)[:_RECORD_MAX]
    except Exception as error:
        return f"'{type(row).__name__}', which can't be shown: {error}"
