"""Follows the wish of a query: starts agents on nodes that have none, and drains those that are too many.

The decisions alone: nodes are whatever `Nodes` says, so that tests need no Ray.

- Hosts that have joined without being started here count, too: those of an earlier fleet, whose Ray has gone.
- A host that the query has lost is replaced at once: Ray may take long to notice that a node is dead.
- A node on which an agent has failed is left alone for a while, longer each time.
- While the query doesn't answer, nothing is drained, and as many hosts are wanted as before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Dict, List, Optional, Protocol, Tuple

from .hosts import Known, Limits

PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 60.0
# An agent that was started so long ago has joined, or is lost.
JOIN_PATIENCE_S = 10.0


@dataclass(frozen=True)
class Node:
    """A node that is alive."""

    id: str
    address: str
    cpus: float

    def __str__(self) -> str:
        return f"node {self.address} ({self.id[:8]})"


@dataclass(frozen=True)
class Gone:
    """How an agent ended."""

    is_failure: bool
    said: str


class Nodes(Protocol):
    """The nodes of a cluster."""

    def alive(self) -> List[Node]:
        """Nodes on which an agent could run."""

    def start(self, node: Node) -> None:
        """Starts an agent on a node."""

    def drain(self, node: str) -> None:
        """Tells the agent on a node to leave its query; again, kills it."""

    def ended(self) -> List[Tuple[str, Gone]]:
        """The nodes whose agent has ended since this was last asked."""

    def request(self, hosts: int) -> None:
        """Asks for so many nodes."""


@dataclass
class _Agent:
    node: Node
    started_s: float
    drained: bool = False


@dataclass
class _Failed:
    pause_s: float
    until_s: float


@dataclass
class Fleet:
    """The agents of one query."""

    nodes: Nodes
    limits: Limits
    tell: Callable[[str], None]
    _agents: Dict[str, _Agent] = field(default_factory=dict)
    _failed: Dict[str, _Failed] = field(default_factory=dict)
    _wanted: int = 0
    _requested: int = 0
    _told: str = ""

    def tick(self, now_s: float, known: Optional[Known]) -> None:
        """Does what is to be done now."""
        # The query was asked before: agents that have ended since are among the hosts that it knows.
        counted = len(self._agents)
        for node_id, gone in self.nodes.ended():
            self._has_ended(node_id, gone, now_s)
        if known is not None:
            wanted = self.limits.clamp(known.wanted)
            if wanted != self._wanted and self._wanted:
                self.tell(f"{wanted} hosts are wanted ({known.reason})")
            self._wanted = wanted
        self._wanted = max(self._wanted, self.limits.min)
        if self._wanted != self._requested:
            self.nodes.request(self._wanted)
            self._requested = self._wanted
        staying = [agent for agent in self._agents.values() if not agent.drained]
        others = max(0, known.joined - counted) if known else 0
        settled = [agent for agent in staying if now_s - agent.started_s >= JOIN_PATIENCE_S]
        lost = max(0, len(settled) - known.joined) if known else 0
        missing = self._wanted - (len(staying) - lost) - others
        if missing > 0:
            self._start(missing, now_s)
        elif known is not None:
            # The last ones that came, and only as many as the query has too many: some may be lost.
            surplus = min(-missing, known.joined - self._wanted)
            for agent in staying[::-1][: max(0, surplus)]:
                self.tell(f"{agent.node}: is drained")
                agent.drained = True
                self.nodes.drain(agent.node.id)

    def drain_all(self) -> None:
        """Tells all agents to leave."""
        for agent in self._agents.values():
            agent.drained = True
            self.nodes.drain(agent.node.id)

    def forget(self, ended: List[Tuple[str, Gone]]) -> None:
        """Agents have ended with their query."""
        for node_id, _ in ended:
            self._agents.pop(node_id, None)

    @property
    def size(self) -> int:
        """The number of agents that were started and have not ended."""
        return len(self._agents)

    def _start(self, missing: int, now_s: float) -> None:
        def is_free(node: Node) -> bool:
            failed = self._failed.get(node.id)
            return node.id not in self._agents and (failed is None or failed.until_s <= now_s)

        free = [node for node in self.nodes.alive() if is_free(node)]
        for node in free[:missing]:
            self._agents[node.id] = _Agent(node, now_s)
            self.nodes.start(node)
        lacking = missing - len(free[:missing])
        told = f"{lacking} more nodes are needed" if lacking else ""
        if told and told != self._told:
            self.tell(told)
        self._told = told

    def _has_ended(self, node_id: str, gone: Gone, now_s: float) -> None:
        agent = self._agents.pop(node_id, None)
        if agent is None or agent.drained or not gone.is_failure:
            self._failed.pop(node_id, None)
            return
        earlier = self._failed.get(node_id)
        pause_s = min(earlier.pause_s * 2, PAUSE_MAX_S) if earlier else PAUSE_MIN_S
        self._failed[node_id] = _Failed(pause_s, now_s + pause_s)
        self.tell(f"warning: {agent.node}: {gone.said.strip() or 'the agent has failed'}")
