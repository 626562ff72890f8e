"""Ray's side of a query, a process of its own: it may end with Ray, and is started again.

    {"key": …, "join": …, "metrics": …, "order": …}     the line that main.py writes
    {"address": "10.0.0.1"}                             the line that it is answered before that
    end of input                                        the query is over
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any, Callable, Optional

from ..fleet import Fleet
from ..hosts import Limits, read
from ..problem import Problem
from . import library
from .agents import Order, RayNodes

# How often the query is asked what it wants.
LOOK_S = 1.0
# How long agents may take to leave a query that is over: they are told so, and leave at once.
LEAVE_S = 5.0


def say(text: str) -> None:
    """Tells the user."""
    print(f"ray: {text}", file=sys.stderr, flush=True)


def prepare(ray: Any) -> None:
    """Imports the parts of Ray that are used."""
    # pylint: disable=import-outside-toplevel,unused-import
    import ray.autoscaler.sdk
    import ray.util.scheduling_strategies  # noqa: F401

    del ray


def follow(fleet: Fleet, metrics: str, token: Optional[str], is_over: Callable[[float], bool]) -> None:
    """Does what the query wants until it is over. `is_over` waits for a while."""
    while not is_over(LOOK_S if fleet.size else LOOK_S / 5):
        fleet.tick(time.monotonic(), read(metrics, token))


def leave(nodes: RayNodes, fleet: Fleet) -> None:
    """Waits until agents have left a query that is over, and no longer asks for nodes."""
    until = time.monotonic() + LEAVE_S
    while fleet.size and time.monotonic() < until:
        fleet.forget(nodes.ended())
        time.sleep(0.05)
    fleet.drain_all()
    nodes.request(0)


def main() -> int:
    """Joins Ray, says where this node is, and follows a query until the input ends."""
    ray = library.connect(os.environ.get("SLACKWATER_RAY_ADDRESS", "auto"))
    prepare(ray)
    address = ray.util.get_node_ip_address()
    print(json.dumps({"address": address}), flush=True)
    line = sys.stdin.readline()
    if not line:
        return 0
    told = json.loads(line)
    order = Order(told["binary"], told["join"], tuple(told["options"]), told["cpus"])
    nodes = RayNodes(ray, order, told["key"])
    fleet = Fleet(nodes, Limits(*told["hosts"]), say)

    def is_over(pause_s: float) -> bool:
        return bool(select.select([sys.stdin], [], [], pause_s)[0])

    follow(fleet, told["metrics"], os.environ.get("SLACKWATER_TOKEN"), is_over)
    leave(nodes, fleet)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Problem as problem:
        # main.py shows it.
        print(json.dumps({"problem": [problem.message, problem.hint, problem.code]}), flush=True)
        sys.exit(problem.code)
