"""Sinks that are written in Python."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from . import stored
from .errors import wrong

if TYPE_CHECKING:
    from ._slackwater import RecordBatch


class Sink:
    """A sink whose methods the engine calls, one at a time, though on different threads.

        class Folder(slackwater.Sink):
            def begin(self):
                self.rows = []                 # forget rows that no checkpoint has: they come again

            def write(self, batch):
                self.rows += batch.to_pylist()

            def prepare(self, checkpoint):     # durable, but not visible
                staged = write_and_sync(f"staged/{checkpoint}.json", self.rows)
                self.rows = []
                return staged

            def commit(self, staged):          # visible; again after a crash, so it may be done already
                rename_if_there(staged, "visible")

    At least once: `write` is needed; `flush` writes out what `write` has kept, before a checkpoint contains
    it. Exactly once: `begin`, `prepare` and `commit` are needed, too.

    What a method raises ends the query. If it is `commit`, the query first starts again from its checkpoint,
    and commits again.
    """

    def begin(self) -> None:
        """Called before the first row of each run, and again when a run starts again after a failure: rows
        that were written and not prepared come again. What was prepared and counts is committed by then, so
        what else is staged may be removed."""

    def write(self, batch: RecordBatch) -> None:
        """Takes rows: columns of Arrow, `batch.to_pylist()`, `batch.to_pandas()` and so on."""
        raise NotImplementedError(f"{type(self).__name__} has no method write(batch)")

    def flush(self) -> None:
        """Writes out the rows that `write` has kept. Not called if the sink is exactly once."""

    def close(self) -> None:
        """Called at the end of each run, also if it has failed."""


class Methods:
    """A sink as the engine calls it."""

    def __init__(self, name: str, sink: Any, exactly_once: bool) -> None:
        self._sink = sink
        is_object = not callable(sink) or hasattr(sink, "write")
        if isinstance(sink, type):
            hint = f"give an object: {sink.__name__}()"
            raise wrong(f"table '{name}': the sink is a class", hint)
        if is_object and not callable(getattr(sink, "write", None)):
            hint = "give a function of a batch, or an object with write(batch): see slackwater.Sink"
            raise wrong(f"table '{name}': '{type(sink).__name__}' is not a sink", hint)
        if exactly_once:
            _check_exactly_once(name, sink)
        self._write = sink.write if is_object else sink
        names = ("begin", "write", "flush", "prepare", "commit", "close")
        for method in (sink if not is_object else None, *(getattr(sink, m, None) for m in names)):
            if inspect.iscoroutinefunction(method):
                hint = "use a function without async; it may call asyncio.run"
                raise wrong(f"table '{name}': the sink is async, which is not supported", hint)

    def begin(self) -> None:
        """Begins to write."""
        self._call("begin")

    def write(self, batch: RecordBatch) -> None:
        """Writes rows."""
        self._write(batch)

    def flush(self) -> None:
        """Writes rows out."""
        self._call("flush")

    def prepare(self, checkpoint: str) -> str:
        """Prepares a checkpoint."""
        return stored.dumps(self._sink.prepare(checkpoint), "what prepare has returned")

    def commit(self, prepared: str) -> None:
        """Commits what was prepared."""
        self._sink.commit(stored.loads(prepared))

    def close(self) -> None:
        """Ends writing."""
        self._call("close")

    def _call(self, method: str) -> None:
        """Calls a method that a sink may have; functions have none."""
        if hasattr(self._sink, "write"):
            call = getattr(self._sink, method, None)
            if call is not None:
                call()


def _check_exactly_once(name: str, sink: Any) -> None:
    """Rejects a sink that can't be exactly once."""
    methods = ("begin", "prepare", "commit")
    missing = [method for method in methods if not callable(getattr(sink, method, None))]
    if not missing and getattr(type(sink), "begin", None) is Sink.begin:
        missing = ["begin"]
    if missing:
        reason = f"table '{name}': exactly_once=True, but the sink has no method {' and no '.join(missing)}"
        hint = (
            "it needs begin(), write(batch), prepare(checkpoint) and commit(prepared): see slackwater.Sink; "
            "without exactly_once it is at least once"
        )
        raise wrong(reason, hint)
