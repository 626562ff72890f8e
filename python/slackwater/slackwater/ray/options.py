"""The command line of `python -m slackwater.ray`."""

from __future__ import annotations

import argparse
from typing import List, Tuple

from ..problem import USAGE, Problem

# Options of `slackwater run` that are set here.
OWN = ("--listen", "--hosts", "--secret", "--name", "--metrics", "--here")

EPILOG = """\
After --, options of `slackwater run`, such as -- --parallelism 8 --report report.json. The rows go to where
the query says, and the exit code is that of the query. --state is a folder that all nodes share, or the URL
of an object store."""


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(prog="python -m slackwater.ray", description=__doc__, allow_abbrev=False)
    commands = top.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run", help="run a query on nodes of a Ray cluster", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )
    add = run.add_argument
    add("query", help="the file with the SQL")
    add("--hosts", required=True, metavar="N|MIN..MAX", help="how many nodes: as many as are wanted")
    add("--state", help="where checkpoints are kept: needed so that nodes can come and go")
    add("--binary", default="slackwater", help="the program on each node [slackwater, in PATH]")
    add("--cpus", type=int, metavar="N",
        help="CPUs that the agent on a node reserves and uses [all of the node]")
    add("--address", default="auto", help="the cluster [auto: RAY_ADDRESS, or the one of this node]")
    add("--port", type=int, default=0, help="the port at which agents join [any that is free]")
    add("--metrics", metavar="ADDRESS", help="where the query answers Prometheus [a port of this node]")
    add("--detach", action="store_true", help="the query runs in the cluster, and this command ends")
    add("--name", help="the name of a detached query [that of the file]")
    others = {
        "stop": "stop a detached query",
        "status": "say whether a detached query runs, or how it ended",
    }
    for name, text in others.items():
        other = commands.add_parser(name, help=text)
        other.add_argument("name", help="the name of the query")
        other.add_argument("--address", default="auto", help="the cluster [auto]")
    return top


def parse(arguments: List[str]) -> Tuple[argparse.Namespace, List[str]]:
    """The options, and those of `slackwater run`."""
    own, more = arguments, []
    if "--" in arguments:
        at = arguments.index("--")
        own, more = arguments[:at], arguments[at + 1:]
    options = parser().parse_args(own)
    for option in more:
        if option.split("=", 1)[0] in OWN:
            raise Problem(
                f"-- {option}: this option of `slackwater run` is set here",
                "leave it out; --hosts and --metrics come before --",
                USAGE,
            )
    if options.command == "run" and options.cpus is not None and options.cpus < 1:
        raise Problem(f"--cpus {options.cpus}: expected at least 1", "leave it out for all of a node", USAGE)
    if "--state" in more:
        raise Problem("-- --state: this option comes before --", "--state DIR -- …", USAGE)
    return options, more
