"""Queries that a server runs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import date, datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..base import BaseQuery, BaseRun, Batch
from ..errors import QueryError, ServerError
from ..report import Report
from . import forms, refusals
from .batch import Rows
from .forms import ARROW, LINES, Reader
from .statements import Statement

if TYPE_CHECKING:
    from .jobs import Job
    from .session import ServerSession


class ServerRun(BaseRun):
    """The rows of a query, on their way from the server.

    One thread reads them; `stop` may be called from any. A run that nobody refers to any more is ended.
    """

    def __init__(self, reader: Reader, ended: Callable[[], None], broken: Callable[[str], None]) -> None:
        self._reader, self._ended, self._broken = reader, ended, broken
        self._was_stopped = False
        self._drain: Drain | None = None

    @property
    def is_running(self) -> bool:
        """Whether there may be further rows."""
        return not self._reader.has_ended

    def _next(self) -> Batch | None:
        had_ended = self._reader.has_ended
        try:
            batch = self._reader.next()
        except ServerError as error:
            self._reader.close()
            self._broken(error.message)
            raise
        if batch is None and not had_ended and not self._was_stopped:
            self._ended()
        return batch

    def __iter__(self) -> Iterator[Batch]:
        try:
            while (batch := self._next()) is not None:
                yield batch
        finally:
            self._reader.close()

    async def __aiter__(self) -> AsyncIterator[Batch]:
        try:
            while (batch := await asyncio.to_thread(self._next)) is not None:
                yield batch
        finally:
            # The thread may still wait for rows.
            self.stop()

    def rows(self) -> Rows:
        """Waits for the end; the rows."""
        batches = list(self)
        return Rows(self._reader.names, batches, self._reader.schema)

    def stop(self) -> None:
        """Ends it, in the server too: a reader gets no further rows."""
        self._was_stopped = True
        self._reader.abort()

    def wait(self, timeout: float | None = None) -> Report | None:
        """Waits for the end, but no longer than `timeout` seconds; rows are dropped.

        A read of a server has no report, so None is returned: `is_running` says whether it has ended.
        """
        if timeout is None and self._drain is None:
            for _ in self:
                pass
            return None
        if self._drain is None:
            self._drain = Drain(self)
            self._drain.start()
        self._drain.join(timeout)
        if not self._drain.is_alive() and self._drain.error is not None:
            raise self._drain.error
        return None

    def progress(self) -> dict[str, Any] | None:
        """None: a server counts what its jobs do, not its reads."""
        return None

    @property
    def report(self) -> Report | None:
        """None: a read of a server has no report."""
        return None

    def __enter__(self) -> ServerRun:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class Drain(threading.Thread):
    """Drops the rows of a run, for a thread that waits only so long."""

    def __init__(self, run: ServerRun) -> None:
        super().__init__(name="slackwater-drain", daemon=True)
        self._run = run
        self.error: Exception | None = None

    def run(self) -> None:
        """The thread."""
        try:
            for _ in self._run:
                pass
        except Exception as error:  # noqa: BLE001 - it is raised where somebody waits
            self.error = error


class ServerQuery(BaseQuery):
    """A query that a server runs each time it is read.

    Iterating gives batches as they come; a reader that stops (`break`, Ctrl-C, a cancelled task) ends the
    query in the server, too. An INSERT makes a job: `start()` returns it.

    With pyarrow, batches are Arrow. Without, they are values from JSON, in which infinity and NaN are None.
    """

    def __init__(
        self,
        session: ServerSession,
        text: str,
        statement: Statement,
        settings: dict[str, str],
        parameters: Sequence[Any] = (),
    ) -> None:
        self._session, self._text, self._statement = session, text, statement
        self._settings, self._parameters = settings, list(parameters)

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The names of the columns, and their types in SQL; none of an INSERT."""
        if self._statement.inserts:
            return []
        reader = self._reader(LINES)
        try:
            return reader.columns()
        finally:
            reader.close()

    def start(self) -> ServerRun | Job:
        """Starts the query, and returns while it runs; of an INSERT, returns the job once it runs."""
        if self._statement.inserts:
            return self._session._insert(self._text, self._statement, self._settings)
        return self._read()

    def run(self) -> Report | None:
        """Runs the query to its end; rows of a SELECT are dropped. The job of an INSERT ends when its
        inputs do."""
        return self.start().wait()

    def rows(self) -> Rows:
        """Waits for the end; the rows as an object that Arrow's consumers read."""
        return Rows([], []) if self._statement.inserts else self._read().rows()

    def to_polars(self) -> Any:
        """Waits for the end; a `polars.DataFrame`. It needs no pyarrow."""
        import polars

        if self._statement.inserts or forms.has_pyarrow():
            return polars.DataFrame(self.rows())
        answer = self._answer(ARROW).checked(ARROW, text=self._text, begin=self._statement.begin)
        return polars.read_ipc_stream(answer.read_all())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule interface, by way of pyarrow."""
        return self.rows().__arrow_c_stream__(requested_schema)

    def _read(self) -> ServerRun:
        reader = self._reader(ARROW if forms.has_pyarrow() else LINES)
        return ServerRun(reader, self._check_end, self._explain_break)

    def _reader(self, form: str) -> Reader:
        return Reader(self._answer(form), self._text, self._statement.begin)

    def _answer(self, form: str) -> Any:
        return self._session._wire.ask(
            "POST",
            "/v1/sql",
            body=body(self._statement.text, self._settings, self._parameters),
            kind="application/json",
            # What has no rows is answered in lines.
            accept=f"{form}, {LINES};q=0.1",
            lasts=self._statement.follows,
            # SHOW and SELECT may be sent twice.
            changes=False,
        )

    def _check_end(self) -> None:
        """The end of changes: the server tells a view that has finished and one that was stopped alike."""
        if not self._statement.follows:
            return
        name = _view_of(self._statement.text)
        jobs = {job.name: job for job in self._session.jobs()}
        status = jobs[name]._known["status"] if name in jobs else "dropped"
        if status != "finished":
            hint = "read them again when the job runs: they begin with all rows"
            reason = f"the changes of '{name}' ended because its job is not at its end, but {status}"
            raise QueryError(f"{reason}\n  = {hint}", reason, hint)

    def _explain_break(self, message: str) -> None:
        """Raises a better error for changes that broke off, if the server is still there to say why."""
        if not self._statement.follows:
            return
        hint = "read them again: they begin with all rows. A reader that is too slow is cut off"
        raise refusals.server_error(f"{message}; changes have no place to resume from", hint)


def body(text: str, settings: dict[str, str], parameters: Sequence[Any] = ()) -> bytes:
    """What `POST /v1/sql` takes."""
    said: dict[str, Any] = {"query": text}
    if settings:
        said["settings"] = settings
    if parameters:
        said["parameters"] = [_parameter(value) for value in parameters]
    return json.dumps(said, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _parameter(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    return plain_time(value) if isinstance(value, date) else str(value)


def plain_time(value: date) -> str:
    """A date or a time as SQL writes it, in UTC."""
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = value.astimezone(timezone.utc).replace(tzinfo=None)
        return value.isoformat(sep=" ")
    return value.isoformat()


def _view_of(text: str) -> str:
    """The name in `SUBSCRIBE name`."""
    name = text.strip().split(None, 1)[1].strip()
    quote = name[:1]
    return name[1:-1].replace(quote * 2, quote) if quote in ('"', "`") else name
