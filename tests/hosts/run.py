#!/usr/bin/env python3
"""Runs a query over several hosts, which are namespaces of this machine, and disturbs it.

    sudo python3 tests/hosts/run.py --program target/debug/slackwater
    … --only kill_an_agent cut_a_host_and_heal       # some scenarios
    … --rounds 10 --seed 17                          # random rounds, and what --only names
    … --clear                                        # everything on one loopback address, without a secret
    … --self-test                                    # the rig alone, without the program
    … --list

Exit code 1 means that something failed, and its folder is kept; 2 that it can't run here.
"""

import argparse
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

import scenarios  # noqa: E402
import selftest  # noqa: E402
from host import Failed, Skipped  # noqa: E402
from world import FIGURES, SCENARIOS, World, find_data, find_program  # noqa: E402

NEEDED = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux", "openssl": "openssl"}


def can_run():
    """Why it can't run here, or nothing."""
    if os.geteuid() != 0:
        return "root is needed, for namespaces: run it with sudo"
    missing = sorted({package for name, package in NEEDED.items() if not shutil.which(name)})
    if missing:
        return f"missing: apt-get install {' '.join(missing)}"
    for path, what in (("/dev/net/tun", "TUN devices"), ("/proc/self/ns/time", "time namespaces")):
        if not os.path.exists(path):
            return f"this kernel has no {what}"
    return None


def attempt(name, play, arguments, options, seed=0):
    """Plays a scenario in a folder of its own; prints a line, and returns whether it did not fail."""
    program, data = arguments
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"slackwater-hosts-{name}-"))
    # Sinks of worker processes write here too, whoever runs them.
    folder.chmod(0o755)
    world = World(program, data, folder, options, seed)
    begun, outcome, said = time.monotonic(), "ok", ""
    try:
        said = play(world) or ""
    except Skipped as skipped:
        outcome, said = "skipped", str(skipped)
    except Failed as failed:
        outcome, said = "FAILED", str(failed)
    except Exception:  # pylint: disable=broad-except
        outcome, said = "FAILED", "the rig itself: " + traceback.format_exc()
    finally:
        world.close()
        if outcome != "FAILED" and not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{outcome:<8}{time.monotonic() - begun:>7.1f} s  {name}", flush=True)
    if said:
        print("\n".join(f"{'':19}{line}" for line in said.splitlines()), flush=True)
    if folder.exists():
        print(f"{'':19}its folder: {folder}", flush=True)
    return outcome != "FAILED"


def rounds(arguments, options):
    """Plays random rounds until one fails; returns whether none did."""
    for seed in range(options.seed, options.seed + options.rounds):
        notes = []

        def play(world):
            try:
                scenarios.rounds.one_round(world, notes)
            except Exception as error:
                raise Failed(f"--rounds 1 --seed {seed}\n" + "\n".join(notes) + f"\n{error}") from error
            return "; ".join(notes)

        if not attempt(f"round-{seed}", play, arguments, options, seed):
            return False
    return True


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--program", help="the program [default: target/release or debug/slackwater]")
    parser.add_argument("--data", help="the reference data [default: ../shared/data beside the checkout]")
    parser.add_argument("--only", nargs="+", default=[], help="only these scenarios")
    parser.add_argument("--queries", nargs="+", default=[], help="only these of the reference queries")
    parser.add_argument("--rounds", type=int, default=0, help="random rounds")
    parser.add_argument("--seed", type=int, default=0, help="the first round's seed [0]")
    parser.add_argument("--idle-seconds", type=float, default=20, help="how long silence is watched [20]")
    parser.add_argument("--patience", type=float, default=120, help="seconds that a run may take [120]")
    parser.add_argument("--clear", action="store_true", help="on one loopback address, without a secret")
    parser.add_argument("--keep", action="store_true", help="keep all folders")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    parser.add_argument("--self-test", action="store_true", help="test the rig itself")
    options = parser.parse_args()
    if options.list:
        for name, function in SCENARIOS.items():
            print(f"{name:<41}{' '.join(function.__doc__.split())}")
        return 0
    unknown = sorted(set(options.only) - set(SCENARIOS))
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)}; --list shows all")
    reason = can_run()
    if reason:
        print(f"run.py: {reason}", file=sys.stderr)
        return 2
    # Ended by a signal it closes its networks, as at any other end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.self_test:
        return 0 if selftest.main() else 1
    data = find_data(options.data)
    if data is None:
        print("note: there is no ../shared/data: what needs reference answers is skipped")
    arguments = (find_program(options.program), data)
    wanted = options.only or ([] if options.rounds else [name for name in SCENARIOS if name not in FIGURES])
    good = [attempt(name, SCENARIOS[name], arguments, options) for name in wanted]
    if options.rounds:
        good.append(rounds(arguments, options))
    failed = len(good) - sum(good)
    print(f"{len(good)} played, {failed} failed" if failed else f"ok: {len(good)} played")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
