"""The jobs of a server."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any

from ..base import BaseRun, Batch
from ..errors import QueryError
from ..report import Report
from . import refusals
from .batch import Rows
from .wire import Wire, part

# How often a job is asked whether it has ended: after a twentieth of a second, and then less often.
_ASK_S, _ASK_MAX_S = 0.05, 1.0

_ENDED = ("stopped", "finished", "failed")


class Job(BaseRun):
    """A job of a server: a materialized view, a sink or an INSERT.

    It goes on in the server, whatever becomes of this object, until `stop` or `drop`. Its rows are not read
    here: iterating gives none.
    """

    def __init__(self, wire: Wire, known: dict[str, Any]) -> None:
        self._wire, self._known = wire, known
        self._report: Report | None = None
        self._path = f"/v1/jobs/{part(self.name)}"

    @property
    def name(self) -> str:
        """Its name."""
        return str(self._known["name"])

    @property
    def status(self) -> str:
        """What it does now: starting, running, stopped, finished or failed."""
        return str(self._ask()["status"])

    @property
    def reason(self) -> str | None:
        """Why it has failed."""
        reason = self._ask()["reason"]
        return None if reason is None else str(reason)

    @property
    def is_running(self) -> bool:
        """Whether it starts or runs."""
        return self.status not in _ENDED

    @property
    def report(self) -> Report | None:
        """Its counts and its plan, as the server tells them (`counts`, `job`), with `rows_in`, `rows_out`,
        `rows_late`, `rows_bad` and `cpu_s`. Once it has ended, what was known last; None if nothing was."""
        self._ask()
        return self._report

    def progress(self) -> dict[str, Any] | None:
        """The counts so far; None while it does not run."""
        report = self._ask().get("report")
        return report["counts"] if report else None

    def why(self) -> list[str]:
        """Why nothing comes out, and why rows are late, in words."""
        said = self._wire.ask("GET", f"{self._path}/why").json()
        why = said.get("why") if isinstance(said, dict) else None
        return [str(one) for one in why] if isinstance(why, list) else [str(why)] if why else []

    def stop(self) -> None:
        """Stores its state and ends its process."""
        self._change({"status": "stopped"})

    def start(self) -> None:
        """Continues it where it stopped."""
        self._change({"status": "running"})

    def set(self, **settings: object) -> None:
        """Changes settings: `job.set(latency_target="20 ms")`. Latency targets change while it runs."""
        plain = {name: value if isinstance(value, (bool, int, float)) else str(value)
                 for name, value in settings.items()}  # fmt: skip
        self._change({"settings": plain})

    def drop(self, *, cascade: bool = False) -> None:
        """Drops it with its state, and with `cascade` what depends on it."""
        parameters = {"cascade": "true"} if cascade else None
        self._wire.ask("DELETE", self._path, parameters=parameters, changes=True).json()

    def wait(self, timeout: float | None = None) -> Report | None:
        """Waits until it has finished or was stopped, and returns the report that was known last; None after
        `timeout` seconds. Raises an error if it has failed."""
        end = None if timeout is None else time.monotonic() + timeout
        pause = _ASK_S
        while True:
            known = self._ask()
            if known["status"] == "failed":
                reason = f"job '{self.name}' has failed: {known['reason']}"
                hint = "job.start() tries again"
                raise QueryError(f"{reason}\n  = {hint}", reason, hint)
            if known["status"] in _ENDED:
                return self._report if self._report is not None else Report()
            if end is not None and time.monotonic() >= end:
                return None
            time.sleep(pause if end is None else max(0.0, min(pause, end - time.monotonic())))
            pause = min(pause * 1.5, _ASK_MAX_S)

    def rows(self) -> Rows:
        """Waits for the end. A job has no rows for a reader, so there are none."""
        self.wait()
        return Rows([], [])

    def __iter__(self) -> Iterator[Batch]:
        return iter(())

    async def __aiter__(self) -> AsyncIterator[Batch]:
        for batch in iter(self):
            yield batch

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """The job goes on."""

    def __repr__(self) -> str:
        return f"<slackwater.Job {self.name} ({self._known['status']})>"

    def _ask(self) -> dict[str, Any]:
        return self._took(self._wire.ask("GET", self._path).json())

    def _change(self, change: dict[str, Any]) -> None:
        answer = self._wire.ask(
            "PATCH", self._path, body=json.dumps(change).encode(), kind="application/json", changes=True
        )
        self._took(answer.json())

    def _took(self, said: Any) -> dict[str, Any]:
        known = checked(self._wire, said)
        self._known = known
        if isinstance(known.get("report"), dict):
            try:
                self._report = summed(known["report"])
            except (KeyError, TypeError) as error:
                raise refusals.not_ours(self._wire.url, f"a report without {error}") from None
        return known


def checked(wire: Wire, said: Any) -> dict[str, Any]:
    """What a server says of a job, if it does."""
    if not isinstance(said, dict) or not {"name", "status", "reason"} <= said.keys():
        raise refusals.not_ours(wire.url, "it is not a job")
    return said


def listed(wire: Wire) -> list[Job]:
    """All jobs."""
    said = wire.ask("GET", "/v1/jobs").json()
    if not isinstance(said, list):
        raise refusals.not_ours(wire.url, "it is not a list of jobs")
    return [Job(wire, checked(wire, one)) for one in said]


def summed(said: dict[str, Any]) -> Report:
    """The report of a job that runs, with the sums that the report of a run has."""
    counts = said["counts"]
    sources, sinks = counts["sources"], counts["sinks"]
    return Report(
        said,
        rows_in=sum(one["rows"] for one in sources),
        rows_out=sum(one["rows"] for one in sinks),
        rows_late=counts["late_elsewhere"] + sum(one["late"] for one in sources),
        rows_bad=counts["bad_elsewhere"] + sum(one["bad"] for one in sources),
        cpu_s=counts["cpu_s"],
    )


