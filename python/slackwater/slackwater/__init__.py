"""Slackwater in Python: SQL over streams, told a latency target, met with the least CPU time.

    import slackwater

    session = slackwater.Session(latency_target="50 ms")
    session.sql("CREATE TABLE flights (…) WITH ('connector' = 'file', 'path' = 'flights.csv')")
    for batch in session.sql("SELECT carrier, COUNT(*) AS n FROM flights GROUP BY carrier"):
        print(batch.to_pandas())

`Session` runs queries in this process, and `connect` makes one whose queries run in a server. `udf` and
`udaf` make functions of SQL, and `Session.source` and `Session.sink` tables of generators and of functions.
Results are Arrow: pandas, polars, pyarrow and DuckDB read them without copies. `python -m slackwater.ray`
runs a query on the nodes of a Ray cluster. `connect` and Ray need no engine here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from .errors import Error, QueryError, ServerError, SqlError

if TYPE_CHECKING:
    from ._slackwater import Array, RecordBatch, Rows
    from .base import BaseQuery, BaseRun, BaseSession, BaseTable, Batch
    from .client import Job, ServerQuery, ServerRun, ServerSession, ServerTable, connect
    from .functions import udaf, udf
    from .operators import operator
    from .report import Report
    from .session import Query, Run, Session, Table
    from .sinks import Sink

__version__ = "0.1.0"

__all__ = [
    "Array",
    "BaseQuery",
    "BaseRun",
    "BaseSession",
    "BaseTable",
    "Batch",
    "Error",
    "Job",
    "Query",
    "QueryError",
    "RecordBatch",
    "Report",
    "Rows",
    "Run",
    "ServerError",
    "ServerQuery",
    "ServerRun",
    "ServerSession",
    "ServerTable",
    "Session",
    "Sink",
    "SqlError",
    "Table",
    "connect",
    "operator",
    "udaf",
    "udf",
]

# Loaded when they are used, so that the Ray launcher and clients of servers run without the engine.
_MODULES = {
    "Array": "_slackwater",
    "RecordBatch": "_slackwater",
    "Rows": "_slackwater",
    "BaseQuery": "base",
    "BaseRun": "base",
    "BaseSession": "base",
    "BaseTable": "base",
    "Batch": "base",
    "Job": "client",
    "ServerQuery": "client",
    "ServerRun": "client",
    "ServerSession": "client",
    "ServerTable": "client",
    "connect": "client",
    "Report": "report",
    "Query": "session",
    "Run": "session",
    "Session": "session",
    "Sink": "sinks",
    "operator": "operators",
    "Table": "session",
    "udaf": "functions",
    "udf": "functions",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'slackwater' has no attribute '{name}'")
    try:
        if _MODULES[name] == "_slackwater":
            importlib.import_module(".loaded", __name__)
        module = importlib.import_module(f".{_MODULES[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name != "slackwater._slackwater":
            raise
        raise ImportError(
            "the engine is not part of this installation of slackwater\n"
            "  = install a wheel: docs/python.md says which"
        ) from error
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
