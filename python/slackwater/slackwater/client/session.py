"""Sessions of a server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import convert
from ..base import BaseSession
from ..errors import QueryError, SqlError, wrong
from . import forms, jobs, refusals, statements
from .forms import LINES
from .jobs import Job
from .push import ServerTable
from .query import ServerQuery, body
from .statements import Statement
from .wire import Wire

# How long an answer may take to begin. The server gives up after 30 s.
_TIMEOUT_S = 60.0

_EXPLAIN = "EXPLAIN "


def connect(
    url: str,
    token: str | None = None,
    *,
    ca: str | None = None,
    timeout: float = _TIMEOUT_S,
    latency_target: str | timedelta | None = None,
    parallelism: int | str | None = None,
    **settings: object,
) -> ServerSession:
    """A session whose queries run in a server, `slackwater serve`.

        session = slackwater.connect("http://127.0.0.1:7480")
        session.sql("CREATE MATERIALIZED VIEW busy AS SELECT ip, COUNT(*) AS n FROM visits GROUP BY ip")
        frame = session.sql("SELECT * FROM busy ORDER BY n DESC LIMIT 10").to_pandas()

    `url`: the address of the server's `--http`; with https:// that of what speaks TLS before it. `token`: the
    server's; SLACKWATER_TOKEN unless given. `ca`: a file with the certificate of the authority that signed
    the server's. `timeout`: the seconds to wait for a connection, for an answer, and for each piece of it.
    `latency_target`, `parallelism` and further settings are those of the jobs that the session creates.

    The server is asked once, so a wrong address or token is an error here.
    """
    session = ServerSession(Wire(url, token, ca, timeout))
    if isinstance(latency_target, timedelta):
        latency_target = f"{latency_target.total_seconds() * 1000:.3f} ms"
    given = {"latency_target": latency_target, "parallelism": parallelism, **settings}
    for name, value in given.items():
        if value is not None:
            session._settings[name] = str(value).lower() if isinstance(value, bool) else str(value)
    session._greet()
    return session

# The methods of `Session` that a server's does not have, and what to do instead.
_OF_THE_ENGINE = {
    "register": "declare a table, and push the frame: session.table(name, frame).push(frame)",
    "source": "declare a table, and push the rows: session.table(name, schema).push(rows)",
    "sink": "read the rows of a query or of a materialized view: for batch in session.changes(name)",
}


class ServerSession(BaseSession):
    """A session of a server, with the methods of `Session`: `slackwater.connect` makes it.

    Tables, views and jobs are the server's, and shared with its other clients. What SET changes is kept here,
    and holds for what this session sends later. A session may be used by several threads; the rows of one run
    are read by one of them.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._settings: dict[str, str] = {}

    def sql(self, text: str, parameters: Sequence[Any] = ()) -> ServerQuery | None:
        """Takes statements, separated by semicolons.

        CREATE, DROP, ALTER and the like run at once, and None is returned. SELECT, SUBSCRIBE, SHOW and INSERT
        INTO make a `ServerQuery`, which runs when its rows are read, or with `run()`; it has to be the last
        statement. `parameters` are the values of $1, $2, … in a SELECT.

        A SELECT without parameters and an INSERT are checked now, which is a request of its own. Others are
        checked by the server when they run.
        """
        before, query = statements.parted(text)
        if parameters and (before or query is None):
            reason, hint = "there are parameters, and no query of its own", "give the query alone to sql()"
            raise wrong(reason, hint)
        self._run(text, before)
        if query is None:
            return None
        if query.can_be_explained and not parameters:
            self._explained(text, query)
        return ServerQuery(self, text, query, dict(self._settings), parameters)

    def execute(self, text: str) -> Job | None:
        """Takes statements, and runs the query among them: an INSERT makes a job, which is returned as soon
        as it runs; rows of others are dropped."""
        query = self.sql(text)
        if query is None:
            return None
        started = query.start()
        if isinstance(started, Job):
            return started
        started.wait()
        return None

    def explain(self, text: str) -> str:
        """How a query would run: its graph, where its parts run, and what the latency target costs."""
        found = statements.split(text)
        if len(found) != 1:
            reason = f"there are {len(found)} statements"
            raise SqlError(f"{reason}\n  = explain one", reason, "explain one")
        return self._explained(text, found[0])

    def changes(self, view: str) -> ServerQuery:
        """The rows of a materialized view, and then every change as it happens, until the view has ended.

        Batches have a first column `op`: `+I` a new row, `+U` a row that replaces the one with the same key,
        `-D` a row that is gone, and sometimes `-U` the old value of a row, before its `+U`. Changes that
        break off raise an error; who reads them again begins with all rows.
        """
        query = self.sql(f"SUBSCRIBE {convert.quoted(view)}")
        assert query is not None
        return query

    def table(
        self,
        name: str,
        schema: Any = None,
        *,
        event_time: str | None = None,
        watermark: str | float | timedelta | None = None,
        **options: object,
    ) -> ServerTable:
        """A table into which this process pushes rows.

        With a `schema` it is created, as by `Session.table`, with the connector `http` and the format `json`;
        `options` are further ones of its WITH: `format="csv"`, `acknowledge="checkpoint"`. Without, it is one
        that the server has.
        """
        if schema is not None:
            columns = convert.declared(schema, event_time, watermark)
            given = {"connector": "http", "format": "json", **options}
            listed = ", ".join(f"{_literal(key)} = {_literal(value)}" for key, value in given.items())
            self.sql(f"CREATE TABLE {convert.quoted(name)} ({columns}) WITH ({listed})")
        elif event_time is not None or watermark is not None or options:
            reason = f"table '{name}' has its columns and options already"
            hint = "give a schema to create it"
            raise wrong(reason, hint)
        for known in self._objects("tables"):
            if known["name"] == name:
                return ServerTable(self._wire, known)
        hint = "session.tables() lists them; a schema creates one"
        reason = f"there is no table '{name}'"
        raise wrong(reason, hint)

    def tables(self) -> list[str]:
        """The names of the tables and views."""
        return [str(known["name"]) for kind in ("tables", "views") for known in self._objects(kind)]

    def drop(self, name: str) -> None:
        """Drops a table or a view; a materialized one with its job."""
        for kind in ("tables", "views"):
            for known in self._objects(kind):
                if known["name"] == name:
                    self.sql(f"DROP {str(known['kind']).upper()} {convert.quoted(name)}")
                    return
        reason, hint = f"there is no table or view '{name}'", "session.tables() lists them"
        raise wrong(reason, hint)

    def jobs(self) -> list[Job]:
        """The server's jobs."""
        return jobs.listed(self._wire)

    def job(self, name: str) -> Job:
        """A job, by its name; that of a materialized view or a sink is its name."""
        job = Job(self._wire, {"name": name, "status": "unknown", "reason": None})
        job._ask()
        return job

    def close(self) -> None:
        """Closes connections that wait for requests. The session stays usable."""
        self._wire.close()

    def __enter__(self) -> ServerSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<slackwater.ServerSession {self._wire.url}>"

    def _greet(self) -> None:
        """Asks for something that needs the token, with the settings, so that what is wrong is said now."""
        self._send("SHOW JOBS", 0, "", dict(self._settings))

    def _run(self, text: str, before: list[Statement]) -> None:
        """Runs statements, and keeps what is set."""
        if not before:
            return
        end = before[-1].begin + len(before[-1].text)
        begin = before[0].begin
        self._send(text[begin:end], begin, text, dict(self._settings))
        for one in before:
            statements.set_by(one, self._settings)

    def _send(
        self, sent: str, begin: int, text: str, settings: dict[str, str]
    ) -> list[tuple[str, list[str]]]:
        answer = self._wire.ask(
            "POST",
            "/v1/sql",
            body=body(sent, settings),
            kind="application/json",
            accept=LINES,
            changes=True,
        )
        return forms.done_lines(answer, text, begin)

    def _insert(self, text: str, statement: Statement, settings: dict[str, str]) -> Job:
        """Runs an INSERT or a statement set, and returns its job."""
        for _, notices in self._send(statement.text, statement.begin, text, settings):
            for notice in notices:
                if (name := forms.job_of(notice)) is not None:
                    return self.job(name)
        reason, hint = "the server has not named the job that it made", "session.jobs() lists the jobs"
        raise QueryError(f"{reason}\n  = {hint}", reason, hint)

    def _explained(self, text: str, one: Statement) -> str:
        answer = self._wire.ask(
            "POST",
            "/v1/sql",
            body=body(_EXPLAIN + one.text, dict(self._settings)),
            kind="application/json",
            accept=LINES,
        )
        reader = forms.Reader(answer, text, one.begin - len(_EXPLAIN))
        lines: list[str] = []
        while (batch := reader.next()) is not None:
            lines += [str(line) for line in batch.column(0).to_pylist()]
        return "\n".join(lines)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> None:
            """What only the engine in this process can do."""
            if name in _OF_THE_ENGINE:
                raise AttributeError(f"a server's session has no '{name}': {_OF_THE_ENGINE[name]}")
            raise AttributeError(f"'ServerSession' has no '{name}'")

    def _objects(self, kind: str) -> list[dict[str, Any]]:
        said = self._wire.ask("GET", f"/v1/{kind}").json()
        wanted = {"name", "kind", "columns", "definition"}
        listed: list[Any] = said if isinstance(said, list) else [None]
        if not all(isinstance(one, dict) and wanted <= one.keys() for one in listed):
            raise refusals.not_ours(self._wire.url, f"it is not a list of {kind}")
        return listed


def _literal(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return "'" + text.replace("'", "''") + "'"
