"""What sessions have in common, whether the engine is in this process or in a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from . import convert
from .report import Report

if TYPE_CHECKING:
    from .client.jobs import Job


class Column(Protocol):
    """A column of a batch."""

    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> Any: ...
    @property
    def type(self) -> str: ...
    @property
    def null_count(self) -> int: ...
    def to_pylist(self) -> list[Any]: ...
    def to_numpy(self) -> Any: ...


class Batch(Protocol):
    """Some rows of a result, as columns."""

    @property
    def num_rows(self) -> int: ...
    @property
    def num_columns(self) -> int: ...
    @property
    def column_names(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def column(self, which: int | str, /) -> Column: ...
    def __getitem__(self, which: int | str, /) -> Column: ...
    def to_pylist(self) -> list[dict[str, Any]]: ...
    def to_arrow(self) -> Any: ...
    def to_pandas(self) -> Any: ...
    def to_polars(self) -> Any: ...


class Result(Protocol):
    """All rows of a result."""

    @property
    def num_rows(self) -> int: ...
    @property
    def column_names(self) -> list[str]: ...
    @property
    def batches(self) -> Sequence[Batch]: ...
    def __len__(self) -> int: ...
    def to_pylist(self) -> list[dict[str, Any]]: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class BaseRun(ABC):
    """A query that runs."""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether it has not ended."""

    @abstractmethod
    def __iter__(self) -> Iterator[Batch]: ...

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[Batch]: ...

    @abstractmethod
    def rows(self) -> Result:
        """Waits for the end; the rows."""

    @abstractmethod
    def stop(self) -> None:
        """Ends the query."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> Report | None:
        """Waits for the end, and returns the report; None after `timeout` seconds."""

    @abstractmethod
    def progress(self) -> dict[str, Any] | None:
        """The counts so far; None while there are none."""

    @property
    @abstractmethod
    def report(self) -> Report | None:
        """What it cost, as far as that is known."""

    @abstractmethod
    def __enter__(self) -> BaseRun: ...

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class BaseQuery(ABC):
    """A query, which runs each time it is read."""

    @property
    @abstractmethod
    def columns(self) -> list[tuple[str, str]]:
        """The names and types of the columns; none of an INSERT."""

    @abstractmethod
    def start(self) -> BaseRun:
        """Starts the query, and returns while it runs."""

    @abstractmethod
    def run(self) -> Report | None:
        """Runs the query to its end; rows of a SELECT are dropped."""

    @abstractmethod
    def rows(self) -> Result:
        """Waits for the end; the rows as an object that Arrow's consumers read."""

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.start())

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self.start().__aiter__()

    def to_pylist(self) -> list[dict[str, Any]]:
        """Waits for the end; the rows as dictionaries."""
        return self.rows().to_pylist()

    def to_arrow(self) -> Any:
        """Waits for the end; a `pyarrow.Table`."""
        return convert.pyarrow("to_arrow()").table(self.rows())

    def to_pandas(self) -> Any:
        """Waits for the end; a `pandas.DataFrame`, by way of pyarrow."""
        return convert.pandas_of(self.rows())

    def to_polars(self) -> Any:
        """Waits for the end; a `polars.DataFrame`."""
        import polars

        return polars.DataFrame(self.rows())

    @abstractmethod
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule interface: `pyarrow.table(query)`, `polars.DataFrame(query)`, DuckDB."""

    def __repr__(self) -> str:
        return f"<slackwater.{type(self).__name__}>"


class BaseTable(ABC):
    """A table into which this process pushes rows."""

    name: str

    @abstractmethod
    def push(self, rows: Any, *, timeout: float | None = None) -> int:
        """Pushes rows, and returns how many."""

    @abstractmethod
    def close(self) -> None:
        """Pushes no further rows."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class BaseSession(ABC):
    """What `Session` and a server's client (`connect`) both do."""

    @abstractmethod
    def sql(self, text: str) -> BaseQuery | None:
        """Takes statements, separated by semicolons; the query among them, which runs when it is read."""

    @abstractmethod
    def execute(self, text: str) -> Report | Job | None:
        """Takes statements, and runs the query among them."""

    @abstractmethod
    def explain(self, text: str) -> str:
        """How a query would run."""

    @abstractmethod
    def table(
        self,
        name: str,
        schema: Any,
        *,
        event_time: str | None = None,
        watermark: str | float | timedelta | None = None,
    ) -> BaseTable:
        """Declares a table into which this process pushes rows."""

    @abstractmethod
    def tables(self) -> list[str]:
        """The names of the tables and views."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Forgets a table or a view."""
