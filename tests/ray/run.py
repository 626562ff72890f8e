#!/usr/bin/env python3
"""Runs queries on a real Ray: a head and three nodes on this machine, in a network of their own.

    sudo python3 tests/ray/run.py --program target/debug/slackwater --python target/ray/bin/python
    … --only load head

Needs root, for namespaces: processes and addresses end with this program. Prints what it measures, and
asserts no time. Exit code 1: a promise is broken, and the folder is kept.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

from cluster import Cluster, Failed, make_network  # noqa: E402
import scenarios  # noqa: E402


def play(name, options):
    """Plays a scenario with a cluster of its own."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="slackwater-ray-"))
    make_network(3)
    cluster = Cluster(options.python, os.path.abspath(options.program), folder)
    begun, outcome = time.monotonic(), "ok"
    try:
        cluster.start_head()
        for number in (2, 3, 4):
            cluster.start_node(number)
        print(f"        {time.monotonic() - begun:7.1f} s  the cluster is there", flush=True)
        said = scenarios.SCENARIOS[name](cluster)
    except Failed as failed:
        outcome, said = "FAILED", str(failed)
    except Exception:  # pylint: disable=broad-except
        outcome, said = "FAILED", "the rig itself: " + traceback.format_exc()
    print(f"{outcome:<8}{time.monotonic() - begun:7.1f} s  {name}")
    print("".join(f"{'':19}{line}\n" for line in said.splitlines()), end="", flush=True)
    if outcome == "ok":
        shutil.rmtree(folder, ignore_errors=True)
        return 0
    print(f"{'':19}its folder: {folder}", flush=True)
    return 1


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--program", default="target/debug/slackwater", help="the program")
    parser.add_argument("--python", default=sys.executable, help="a Python that has Ray")
    parser.add_argument("--only", nargs="+", choices=list(scenarios.SCENARIOS), help="only these scenarios")
    parser.add_argument("--play", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("run.py: root is needed, for namespaces: run it with sudo", file=sys.stderr)
        return 2
    if options.play:
        return play(options.play, options)
    names = options.only or list(scenarios.SCENARIOS)
    unshare = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    own = [sys.executable, "-B", __file__, "--program", options.program, "--python", options.python]
    codes = [subprocess.run([*unshare, *own, "--play", name], check=False).returncode for name in names]
    failed = sum(code != 0 for code in codes)
    print(f"{len(codes)} played, {failed} failed" if failed else f"ok: {len(codes)} played")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
