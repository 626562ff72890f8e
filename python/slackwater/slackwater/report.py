"""What a query cost."""

from __future__ import annotations

import json
from typing import Any


class Report(dict[str, Any]):
    """The report of a run, as `slackwater run --report` writes it; fields are attributes, too.

    `rows_in`, `rows_out`, `rows_late`, `rows_bad`, `wall_s`, `cpu_s`, `latency_ms` and so on: docs/cli.md.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the report has no field '{name}'") from None

    @classmethod
    def parse(cls, text: str | None) -> Report | None:
        """The report of a JSON text; None of None."""
        return None if text is None else cls(json.loads(text))
