"""The agents on the nodes: an actor for each, which has it kept, and waits for its end."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from .. import program
from ..fleet import Gone, Node
from ..kept import Ended, Kept
from ..problem import Problem


@dataclass(frozen=True)
class Order:
    """What an agent is told."""

    binary: str
    join: str
    options: Tuple[str, ...]
    cpus: Optional[int]


class Agent:
    """The actor: one node's agent."""

    def __init__(self) -> None:
        self._kept: Optional[Kept] = None

    def run(self, order: Order, node: Node, key: str) -> Ended:
        """Runs the agent to its end."""
        binary = program.find(order.binary, str(node))
        more: List[str] = list(order.options)
        cores = sorted(os.sched_getaffinity(0))
        reserved = order.cpus or int(node.cpus)
        if reserved < len(cores):
            cores = cores[:reserved]
            more += ["--cores", ",".join(str(core) for core in cores)]

        def command(secret: str, mark: str) -> List[str]:
            own = ["--name", node.id[:12], "--address", node.address, "--joined", mark]
            return [binary, "worker", "--join", order.join, "--secret", secret, *own, *more]

        self._kept = Kept(command, key, has_mark=True)
        return self._kept.wait()

    def drain(self) -> None:
        """Tells the agent to leave."""
        if self._kept is not None:
            self._kept.stop()


class RayNodes:
    """The nodes of Ray's cluster."""

    def __init__(self, ray: Any, order: Order, key: str) -> None:
        self._ray, self._order = ray, order
        # In the object store: it is sent to the nodes that ask for it.
        self._key = ray.put(key)
        self._running: Dict[str, Tuple[Any, Any]] = {}
        self._cpus = 1.0

    def alive(self) -> List[Node]:
        """Nodes that have as many CPUs as an agent reserves."""
        found = []
        for entry in self._ray.nodes():
            cpus = float(entry["Resources"].get("CPU", 0))
            if entry["Alive"] and cpus >= (self._order.cpus or 1):
                found.append(Node(entry["NodeID"], entry["NodeManagerAddress"], cpus))
        self._cpus = max([self._order.cpus or 0.0, *(node.cpus for node in found)]) or 1.0
        return sorted(found, key=lambda node: node.id)

    def start(self, node: Node) -> None:
        """Starts an actor on a node, which starts the agent."""
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        actor = self._ray.remote(Agent).options(
            num_cpus=self._order.cpus or node.cpus,
            max_restarts=0,
            max_task_retries=0,
            # One waits for the agent while another drains it.
            max_concurrency=2,
            scheduling_strategy=affinity(node_id=node.id, soft=False),
        ).remote()
        ended = actor.run.remote(self._order, node, self._key)
        self._running[node.id] = (actor, ended)

    def drain(self, node: str) -> None:
        """Tells the agent on a node to leave."""
        if node in self._running:
            self._running[node][0].drain.remote()

    def ended(self) -> List[Tuple[str, Gone]]:
        """The nodes whose agent, or whose actor, has ended."""
        gone = []
        for node, (_, reference) in list(self._running.items()):
            if not self._ray.wait([reference], timeout=0)[0]:
                continue
            del self._running[node]
            gone.append((node, self._result(reference)))
        return gone

    def request(self, hosts: int) -> None:
        """Asks the autoscaler for nodes, each with the CPUs that one agent reserves."""
        bundles = [{"CPU": self._order.cpus or self._cpus}] * hosts
        self._ray.autoscaler.sdk.request_resources(bundles=bundles)

    def _result(self, reference: Any) -> Gone:
        try:
            ended: Ended = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None)
            return Gone(True, str(cause if isinstance(cause, Problem) else error))
        except self._ray.exceptions.RayError as error:
            return Gone(True, f"its actor is lost: {str(error).splitlines()[0]}")
        return Gone(ended.code != 0, f"the agent ended with {ended.code}\n{ended.said}")
