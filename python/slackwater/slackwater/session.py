"""Queries in this process."""

from __future__ import annotations

import asyncio
import atexit
import json
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import convert, sinks, sources
from .base import BaseQuery, BaseRun, BaseSession, BaseTable
from .errors import SqlError, wrong
from .loaded import _slackwater
from .report import Report

if TYPE_CHECKING:
    from ._slackwater import RecordBatch, Rows

_F = TypeVar("_F", bound=Callable[..., Any])

# How often a thread that waits for an `async for` looks whether its task was cancelled.
_POLL_S = 0.25

# Threads of the engine would call functions of an interpreter that is gone.
atexit.register(_slackwater.shutdown)


class Session(BaseSession):
    """Tables, views and settings, and queries over them that run in this process.

        session = Session(latency_target="50 ms")
        session.sql("CREATE TABLE … WITH ('connector' = 'kafka', …)")
        for batch in session.sql("SELECT …"):
            …

    `latency_target`: the 99th percentile of the latency that the engine meets with the least CPU time:
    "50 ms", or a timedelta. `parallelism`: the number of threads of each part of a query, or "auto".
    `state`: the folder (or the object store) in which a query stores checkpoints, and resumes from;
    `from_scratch` drops what is there. Further settings are those of SET: `Session(memory_limit="1 GB")`.

    A session may be used by several threads. Its queries are independent of each other.
    """

    def __init__(
        self,
        *,
        latency_target: str | timedelta | None = None,
        parallelism: int | str | None = None,
        state: str | None = None,
        from_scratch: bool = False,
        **settings: object,
    ) -> None:
        if isinstance(latency_target, timedelta):
            latency_target = f"{latency_target.total_seconds() * 1000:.3f} ms"
        given = {"latency_target": latency_target, "parallelism": parallelism, **settings}
        strings = [(name, _text(value)) for name, value in given.items() if value is not None]
        self._session = _slackwater.Session(strings, state, from_scratch)

    def sql(self, text: str) -> Query | None:
        """Takes statements, separated by semicolons.

        CREATE, DROP and SET are kept for what follows, and None is returned. SELECT and INSERT INTO make a
        `Query`, which runs when its rows are read, or with `run()`.
        """
        took = self._session.take(text)
        if isinstance(took, str):
            hint = "Session.explain returns its text"
            raise SqlError(f"EXPLAIN is not a query\n  = {hint}", "EXPLAIN is not a query", hint)
        return None if took is None else Query(took)

    def execute(self, text: str) -> Report | None:
        """Takes statements, and runs the query among them to its end; rows of a SELECT are dropped."""
        query = self.sql(text)
        return None if query is None else query.run()

    def explain(self, text: str) -> str:
        """How a query would run: its graph, where its parts run, and what the latency target costs."""
        return str(self._session.take(f"EXPLAIN {text}"))

    def table(
        self,
        name: str,
        schema: Any,
        *,
        event_time: str | None = None,
        watermark: str | float | timedelta | None = None,
    ) -> Table:
        """Declares a table into which this process pushes rows.

        `schema`: `{"sensor": "STRING", "ts": "TIMESTAMP(3)"}`, the text of CREATE TABLE's columns, or a
        schema of Arrow. `event_time` names the column with the time of a row, and `watermark` says how
        much later than newer rows a row may come: "5 s", a number of seconds, or a timedelta.
        """
        columns = convert.declared(schema, event_time, watermark)
        return Table(name, self._session.pushed(name, columns))

    def register(
        self,
        name: str,
        data: Any,
        *,
        schema: Any = None,
        event_time: str | None = None,
        watermark: str | float | timedelta | None = None,
    ) -> None:
        """Makes a data frame a table that has an end.

        `data`: a data frame of pandas or polars, a table of pyarrow, a relation of DuckDB: anything with
        Arrow's PyCapsule methods, whose columns are not copied if SQL has their types. Or a list of
        dictionaries or tuples, with a `schema` as in `table`. A table of this name is replaced.
        """
        rows = convert.arrow_rows(data)
        if rows is None:
            if schema is None:
                hint = "schema={'a': 'BIGINT', …}"
                reason = f"rows of {type(data).__name__} need a schema"
                raise wrong(reason, hint)
            columns = convert.declared(schema, None, None)
            names = _slackwater.column_names(columns)
            rows = _slackwater.Rows.of_values(columns, convert.columns_of(data, names))
        columns = convert.declared(schema or rows.sql_columns(), event_time, watermark)
        self._session.forget(name, True)
        try:
            self._session.kept(name, columns, rows)
        except SqlError as error:
            raise convert.untimed(error) from None

    def source(
        self,
        name: str,
        schema: Any,
        *,
        event_time: str | None = None,
        watermark: str | float | timedelta | None = None,
        partitions: int = 1,
        ends: bool = False,
        **options: object,
    ) -> Callable[[_F], _F]:
        """Declares a table that a generator fills.

            @session.source("readings", {"sensor": "STRING", "v": "DOUBLE"}, partitions=2)
            def readings(partition, offset):
                while rows := fetch(partition, after=offset):
                    offset = rows[-1]["id"]
                    yield rows, offset

        The function is called once for each partition, on a thread of its own, and may block. It takes
        `partition` (from 0) and `offset`, each if it has such a parameter. Rows are a list of dictionaries or
        tuples, a dictionary of columns, or anything with Arrow's PyCapsule methods. A partition ends when its
        generator does. `async def` works, too.

        With the parameter `offset`, each `yield` gives rows and the offset after them, which may be anything
        that can be pickled. The table is exactly once: when a query resumes from a checkpoint, the function
        is called with the offset of the last rows that it contains (None at first), and must then give the
        rows that follow, in the same order. Without it, `yield rows`: the table is at most once, as the
        function begins again.

        `schema`, `event_time` and `watermark` are those of `table`. With `ends`, all generators end, so that
        a query may need the end: ORDER BY, LIMIT, the table of a join. Further options are those of every
        table that is read: `idle_timeout="5 s"`, `on_error="fail"`, `dead_letter="PATH"`. What the function
        raises ends the query; rows with wrong values are rejected. A table of this name is replaced.
        """
        columns = convert.declared(schema, event_time, watermark)
        given = [(option, _text(value)) for option, value in options.items()]

        def declare(function: _F) -> _F:
            reader = sources.Source(name, function, partitions, ends)
            self._session.forget(name, True)
            self._session.source(name, columns, given, reader)
            return function

        return declare

    def sink(
        self,
        name: str,
        schema: Any,
        sink: Callable[[RecordBatch], object] | Any,
        *,
        exactly_once: bool = False,
        changes: bool = False,
        **options: object,
    ) -> None:
        """Declares a table whose rows go to Python: `INSERT INTO name SELECT …`.

        `sink`: a function of a `RecordBatch`, or an object with the methods of `Sink`. It is called by one
        thread at a time. A function is at least once: what was written since the last checkpoint is written
        again after a failure. With `exactly_once`, the object has the methods `begin`, `prepare` and
        `commit`, and the session a folder for checkpoints. With `changes`, batches have a first column
        `change` (`+I`, `-U`, `+U`, `-D`), and rows may be taken back. `schema` is that of `table`. A table of
        this name is replaced.
        """
        methods = sinks.Methods(name, sink, exactly_once)
        given = [(option, _text(value)) for option, value in options.items()]
        if changes:
            given.append(("changelog", "change"))
        self._session.forget(name, True)
        columns = convert.declared(schema, None, None)
        self._session.sink(name, columns, given, exactly_once, methods)

    def tables(self) -> list[str]:
        """The names of the tables and views."""
        return self._session.names()

    def drop(self, name: str) -> None:
        """Forgets a table or a view."""
        self._session.forget(name, False)


class Query(BaseQuery):
    """A query that runs each time it is read.

    Iterating gives `RecordBatch`es as they come; a reader that is slow slows the query down, and one that
    stops ends it. `async for` works, too. If rows change earlier ones (GROUP BY without a window), each
    batch has a first column `change`: `+I` a new row, `-U` and `+U` the old and the new value of a row,
    `-D` a row that is gone. `to_arrow`, `to_pandas`, `to_polars` and `rows` wait for the end, and return
    the rows that are left.
    """

    def __init__(self, native: _slackwater.Query) -> None:
        self._native = native
        self._last: Run | None = None

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The names of the columns of a batch, and their Arrow types; none of an INSERT."""
        return self._native.columns

    def start(self) -> Run:
        """Starts the query, and returns while it runs."""
        self._last = Run(self._native.start())
        return self._last

    def run(self) -> Report | None:
        """Runs the query to its end; rows of a SELECT are dropped."""
        return self.start().wait()

    def __iter__(self) -> Iterator[RecordBatch]:
        return iter(self.start())

    def __aiter__(self) -> AsyncIterator[RecordBatch]:
        return self.start().__aiter__()

    def rows(self) -> Rows:
        """Waits for the end; the rows as an object that Arrow's consumers read."""
        return self.start().rows()

    def progress(self) -> dict[str, Any] | None:
        """The counts of the newest run; None before there is one."""
        return None if self._last is None else self._last.progress()

    @property
    def report(self) -> Report | None:
        """What the newest run cost, once it has ended."""
        return None if self._last is None else self._last.report

    def __arrow_c_schema__(self) -> object:
        return self._native.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule interface: `pyarrow.table(query)`, `polars.DataFrame(query)`, DuckDB.

        The consumer reads the rows as they come; if rows change earlier ones, it gets those that are left.
        """
        if self._native.changes:
            return self.rows().__arrow_c_stream__()
        return self.start()._job.stream()

    def __repr__(self) -> str:
        columns = ", ".join(name for name, _ in self.columns)
        return f"<slackwater.Query ({columns})>" if columns else "<slackwater.Query>"


class Run(BaseRun):
    """A query that runs. It is stopped when nothing refers to it any more, and at the end of a `with`."""

    def __init__(self, job: _slackwater.Job) -> None:
        self._job = job

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._job.is_running

    def __iter__(self) -> Iterator[RecordBatch]:
        job = self._job
        try:
            while (batch := job.next()) is not None:
                yield batch
        finally:
            job.abandon()

    async def __aiter__(self) -> AsyncIterator[RecordBatch]:
        job = self._job
        try:
            ended = False
            while not ended:
                batch, ended = await asyncio.to_thread(job.poll, _POLL_S)
                if batch is not None:
                    yield batch
        finally:
            job.abandon()

    def rows(self) -> Rows:
        """Waits for the end, and returns the rows that are left then."""
        return self._job.collect()

    def stop(self) -> None:
        """Ends the query: open windows are not emitted. What it has made is still read."""
        self._job.stop()

    def wait(self, timeout: float | None = None) -> Report | None:
        """Waits for the end, and returns the report; None after `timeout` seconds. Rows of a SELECT that
        nobody reads are dropped."""
        self._job.drain()
        ended = self._job.wait(timeout)
        return None if ended is None else Report.parse(ended[0])

    def progress(self) -> dict[str, Any] | None:
        """The counts so far: rows, late and bad rows, CPU time, latencies by sink. None while the query is
        compiled."""
        text = self._job.progress()
        return None if text is None else json.loads(text)

    @property
    def report(self) -> Report | None:
        """What it cost, once it has ended."""
        return Report.parse(self._job.report())

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._job.abandon()


class Table(BaseTable):
    """A table into which this process pushes rows.

    Rows wait until a query reads them: 64 MiB, and then `push` waits. Each row is read once, by the query
    that reads the table at the time. At the end of a `with` the table is closed.
    """

    def __init__(self, name: str, feed: _slackwater.Feed) -> None:
        self.name = name
        self._feed = feed

    def push(self, rows: Any, *, timeout: float | None = None) -> int:
        """Pushes rows, and returns how many.

        `rows`: anything with Arrow's PyCapsule methods (data frames, tables, batches), whose columns are
        found by their names, and not copied if they have the table's types; a list of dictionaries or
        tuples; or a dictionary of columns. Waits for room, but no longer than `timeout` seconds.
        """
        given = convert.arrow_rows(rows)
        if given is None:
            given = self._feed.rows(convert.columns_of(rows, self._feed.column_names))
        return self._feed.push(given, timeout)

    def close(self) -> None:
        """There are no further rows: a query ends after those that wait."""
        self._feed.close()

    def __enter__(self) -> Table:
        return self


def _text(value: object) -> str:
    """A setting's value as SET writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
