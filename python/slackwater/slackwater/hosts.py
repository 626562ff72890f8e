"""How many hosts a query wants: parsed from the command line, and read while it runs."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Optional

from .problem import USAGE, Problem

# The query answers within half a second, or with what it knew before.
READ_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Limits:
    """At least and at most so many hosts."""

    min: int
    max: int

    def __str__(self) -> str:
        return f"{self.min}..{self.max}" if self.min != self.max else str(self.min)

    def clamp(self, hosts: int) -> int:
        """The nearest number within the limits."""
        return max(self.min, min(self.max, hosts))


def parse(text: str) -> Limits:
    """`3` or `1..4`."""
    first, _, last = text.partition("..")
    try:
        limits = Limits(int(first), int(last if ".." in text else first))
    except ValueError:
        limits = Limits(0, 0)
    if not 0 < limits.min <= limits.max:
        reason = f"--hosts {text}: expected a number of hosts, or the fewest and the most"
        raise Problem(reason, "write 3, or 1..4", USAGE)
    return limits


@dataclass(frozen=True)
class Known:
    """What a running query says of its hosts."""

    wanted: int
    joined: int
    reason: str


def known(body: bytes) -> Optional[Known]:
    """Reads the answer of `/v1/hosts`; nothing before the first look, or if it is something else."""
    try:
        said = json.loads(body)
        return Known(int(said["wanted"]), int(said["joined"]), str(said["reason"]))
    except (ValueError, KeyError, TypeError):
        return None


def read(metrics: str, token: Optional[str]) -> Optional[Known]:
    """Asks the query whose metrics are at an address; nothing while it doesn't answer."""
    request = urllib.request.Request(f"http://{metrics}/v1/hosts")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    # Never by a proxy: it is the same node.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=READ_PATIENCE_S) as answer:
            return known(answer.read(1 << 16))
    except (OSError, urllib.error.URLError, ValueError):
        return None
