"""A query that runs in the cluster: an actor that outlives its driver has it kept, and follows it.

When the actor, or its node, is lost, Ray starts it again elsewhere, and it runs the same query, which resumes
from its state: that fences off a query that still runs. Needs `--state`, with paths that every node has.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from typing import Any, Optional

from .. import program
from ..fleet import Fleet
from ..kept import Ended, Kept
from ..problem import USAGE, Problem
from . import library
from .agents import Order, RayNodes
from .driver import follow, leave, prepare
from .query import Query

NAMESPACE = "slackwater"
# How long a query that is told to stop may take to save what it has.
STOP_PATIENCE_S = 60.0


class Supervisor:
    """The actor: one query."""

    def __init__(self, query: Query, text: str, key: str, token: Optional[str]) -> None:
        self._query, self._text, self._key, self._token = query, text, key, token
        self._kept: Optional[Kept] = None
        self._ended: Optional[Ended] = None
        self._over = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def result(self) -> Optional[Ended]:
        """How the query ended, if it did."""
        return self._ended

    def stop(self) -> Ended:
        """Stops the query, which saves what it has; returns how it ended."""
        if self._kept is not None:
            self._kept.stop()
        self._over.wait(STOP_PATIENCE_S)
        return self._ended or Ended(1, f"it has not stopped within {STOP_PATIENCE_S:.0f} s")

    def _run(self) -> None:
        try:
            self._ended = self._run_kept()
        except (Problem, OSError) as error:
            self._ended = Ended(1, str(error))
        self._over.set()

    def _run_kept(self) -> Ended:
        # pylint: disable=import-outside-toplevel
        import ray

        prepare(ray)
        binary = program.find(self._query.binary, f"node {ray.util.get_node_ip_address()}")
        place = self._query.place(ray.util.get_node_ip_address())

        def command(secret: str, _: str) -> Any:
            file = os.path.join(os.path.dirname(secret), os.path.basename(self._query.file))
            with open(file, "w", encoding="utf-8") as text:
                text.write(self._text)
            return replace(self._query, file=file).command(binary, place, secret)

        self._kept = Kept(command, self._key, has_mark=False)
        told = self._query.told(place, self._key)
        nodes = RayNodes(ray, Order(told["binary"], place.join, (), told["cpus"]), self._key)
        fleet = Fleet(nodes, self._query.hosts, lambda text: print(text, file=sys.stderr, flush=True))
        ended = threading.Event()
        ends = []

        def wait() -> None:
            assert self._kept is not None
            ends.append(self._kept.wait())
            ended.set()

        threading.Thread(target=wait, daemon=True).start()
        follow(fleet, place.metrics, self._token, ended.wait)
        leave(nodes, fleet)
        return ends[0]


def start(query: Query, name: str, address: str) -> int:
    """Starts a query in the cluster."""
    if not query.state:
        raise Problem("--detach needs --state", "--state DIR, a folder that all nodes share, or a URL", USAGE)
    try:
        with open(query.file, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise Problem(f"{query.file}: {error.strerror}", "name the file with the SQL", USAGE) from error
    key = program.generate_key(program.find(query.binary, "this node"))
    ray = library.connect(address)
    if "://" not in query.state:
        query = replace(query, state=os.path.abspath(query.state))
    actor = ray.remote(Supervisor).options(
        name=name, namespace=NAMESPACE, lifetime="detached", num_cpus=0, max_restarts=-1, max_concurrency=8
    )
    try:
        made = actor.remote(query, text, key, os.environ.get("SLACKWATER_TOKEN"))
    except ValueError as error:
        hint = f"python -m slackwater.ray stop {name}, or choose another --name"
        raise Problem(f"--name {name}: there is such a query already", hint) from error
    ended = ray.get(made.result.remote())
    if ended is not None and ended.code != 0:
        ray.kill(made)
        raise Problem(f"{name}: {ended.said.strip()}", "fix it, and start the query again", ended.code)
    print(f"{name} runs in the cluster; to stop it: python -m slackwater.ray stop {name}", file=sys.stderr)
    return 0


def stop(name: str, address: str) -> int:
    """Stops a detached query; returns its exit code."""
    ray, actor = find(name, address)
    ended = ray.get(actor.stop.remote())
    ray.kill(actor)
    print(ended.said, end="", file=sys.stderr)
    return int(ended.code)


def status(name: str, address: str) -> int:
    """Says whether a detached query runs, or how it ended."""
    ray, actor = find(name, address)
    ended = ray.get(actor.result.remote())
    if ended is None:
        print(f"{name} runs", file=sys.stderr)
        return 0
    print(f"{name} has ended with {ended.code}\n{ended.said}", end="", file=sys.stderr)
    return int(ended.code)


def find(name: str, address: str) -> Any:
    """Ray, and the actor of a detached query."""
    ray = library.connect(address)
    try:
        return ray, ray.get_actor(name, namespace=NAMESPACE)
    except ValueError as error:
        raise Problem(f"{name}: there is no such query", "see `ray list actors`") from error
