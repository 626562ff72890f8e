"""A server's client: sessions whose queries run in `slackwater serve`, over its HTTP API (docs/http.md).

Only the standard library is needed. Where pyarrow is installed, rows come as Arrow, and otherwise as JSON.

`wire` holds connections, `refusals` makes exceptions of what a server answers, `statements` finds the query
among statements, `forms` reads rows, `batch` holds them, `query` and `jobs` run, `push` pushes, `session` is
what users have.
"""

from __future__ import annotations

from .jobs import Job
from .push import ServerTable
from .query import ServerQuery, ServerRun
from .session import ServerSession, connect

__all__ = ["Job", "ServerQuery", "ServerRun", "ServerSession", "ServerTable", "connect"]
