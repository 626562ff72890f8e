"""The command of the query itself, `slackwater run`, and what agents are told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from .. import program
from ..hosts import Limits


@dataclass(frozen=True)
class Query:
    """A query, wherever it is run."""

    file: str
    hosts: Limits
    state: Optional[str]
    binary: str
    cpus: Optional[int]
    port: int
    metrics: Optional[str]
    more: List[str]

    def place(self, address: str) -> Place:
        """Where it listens on a node with this address."""
        port = self.port or program.free_port(address)
        metrics = self.metrics or program.at("127.0.0.1", program.free_port("127.0.0.1"))
        return Place(program.at(address, port), metrics)

    def command(self, binary: str, place: Place, secret: str) -> List[str]:
        """The command that runs it."""
        command = [binary, "run", self.file, "--listen", place.join, "--secret", secret]
        command += ["--hosts", str(self.hosts), "--metrics", place.metrics]
        command += ["--state", self.state] if self.state else []
        if not any(option.startswith("rescale=") for option in self.more):
            # Nodes that come are to be used.
            command += ["--set", "rescale=auto"]
        return command + self.more

    def told(self, place: Place, key: str) -> Dict[str, Any]:
        """What Ray's side is told."""
        return {
            "key": key, "join": place.join, "metrics": place.metrics, "binary": self.binary,
            "cpus": self.cpus, "hosts": [self.hosts.min, self.hosts.max], "options": [],
        }


@dataclass(frozen=True)
class Place:
    """Where agents join a query, and where it says how many it wants."""

    join: str
    metrics: str
