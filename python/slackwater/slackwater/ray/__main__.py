"""`python -m slackwater.ray`."""

from __future__ import annotations

import os
import sys
from typing import List

from .. import hosts
from ..problem import Problem
from . import detached, main, options
from .query import Query


def command(arguments: List[str]) -> int:
    """Runs a command; returns its exit code."""
    told, more = options.parse(arguments)
    if told.command == "stop":
        return detached.stop(told.name, told.address)
    if told.command == "status":
        return detached.status(told.name, told.address)
    query = Query(
        told.query, hosts.parse(told.hosts), told.state, told.binary, told.cpus, told.port, told.metrics, more
    )
    if told.detach:
        name = told.name or os.path.splitext(os.path.basename(told.query))[0]
        return detached.start(query, name, told.address)
    return main.run(query, told.address)


if __name__ == "__main__":
    try:
        sys.exit(command(sys.argv[1:]))
    except Problem as problem:
        sys.exit(main.report(problem))
