#!/usr/bin/env python3
"""Tries to make `slackwater run --state` lose or duplicate a row, panic, hang, or end without giving a
reason.

    python3 tests/chaos/chaos.py --program target/debug/slackwater --seconds 600
    python3 tests/chaos/chaos.py --seed 17            # one round again (or SLACKWATER_SEED=17)

A round runs a query over generated files with random settings, disturbs it a few times, and then lets it run
to its end undisturbed. The round's seed determines everything except the moment at which a process is
disturbed. After any disturbance:

- the output has each row exactly once, or the run was refused with exit code 1 or 2 and a message that names
  the file and the fix, and the query runs to its end after that fix;
- no process panics, hangs, or is ended by a signal that was not sent;
- a run reports correctly whether it was saved.

At the end it prints what it tried, by kind and outcome. Exit code 1 means that a round failed; its folder
is kept.

    queries.py       the queries, and their expected rows
    process.py       one run of the program, and checks of how it ended
    harm.py          disturbances of runs and files: a new kind of harm is a function there
    peers.py         rounds with misbehaving peers over TCP
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import harm  # noqa: E402
import peers  # noqa: E402
from process import Failed  # noqa: E402
from rounds import Round  # noqa: E402

# One round in so many has misbehaving peers over TCP.
PEERS_EVERY = 8


def one_round(seed, program, options):
    """Runs a round; returns what it tried, and the reason and the folder if it failed (else None)."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"slackwater-chaos-{seed}-"))
    tried = collections.Counter()
    is_of_peers = seed % PEERS_EVERY == PEERS_EVERY - 1 and not options.only
    kind = peers.Round if is_of_peers else Round
    round_ = kind(random.Random(seed), folder, program, tried, options.only)
    reason = None
    try:
        round_.run()
    except Failed as failed:
        reason = str(failed)
    except Exception:  # pylint: disable=broad-except
        reason = "chaos.py itself: " + traceback.format_exc()
    finally:
        round_.end()
    if reason is not None:
        reason += "\n" + round_.story()
        (folder / "story.txt").write_text(reason)
        return tried, (reason, folder)
    if options.keep:
        return tried, None
    shutil.rmtree(folder, ignore_errors=True)
    return tried, None


def table(tried):
    """What was tried, by kind and outcome."""
    kinds = sorted({kind for kind, _ in tried})
    outcomes = sorted({outcome for _, outcome in tried})
    width = max(map(len, kinds), default=4) + 2
    widths = [max(len(outcome), 6) + 2 for outcome in outcomes]
    head = "".join(f"{outcome:>{wide}}" for outcome, wide in zip(outcomes, widths))
    lines = [f"{'tried':<{width}}{head}"]
    for kind in kinds:
        counts = "".join(
            f"{tried.get((kind, outcome), 0) or '':>{wide}}" for outcome, wide in zip(outcomes, widths)
        )
        lines.append(f"{kind:<{width}}{counts}")
    return "\n".join(lines)


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    known = [step.__name__ for _, step in harm.STEPS]
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--program", help="the program [default: target/release or debug/slackwater]")
    arguments.add_argument("--seed", type=int, default=os.environ.get("SLACKWATER_SEED"), help="run only this round")
    arguments.add_argument("--first", type=int, default=0, help="the first seed [0]")
    arguments.add_argument("--rounds", type=int, help="number of rounds")
    arguments.add_argument("--seconds", type=float, help="start no round after this many seconds")
    arguments.add_argument("--jobs", type=int, default=2, help="rounds at a time [2]")
    arguments.add_argument("--only", type=lambda names: names.split(","), help="only these kinds of harm (two_runs,damage)")
    arguments.add_argument("--keep", action="store_true", help="keep the folders of all rounds")
    options = arguments.parse_args()
    unknown = set(options.only or []) - set(known)
    if unknown:
        arguments.error(f"--only {','.join(unknown)}: the kinds are {', '.join(known)}")
    built = [root / "target" / profile / "slackwater" for profile in ("release", "debug")]
    program = options.program or next((str(path) for path in built if path.exists()), None)
    if program is None or not os.access(program, os.X_OK):
        sys.exit("no program found: run cargo build -p slackwater, or use --program")
    if not harm.has_strace():
        print("note: strace is missing or not permitted: no system call is delayed or fails")
    seeds = iter(range(options.first, sys.maxsize))
    rounds = options.rounds or (None if options.seconds else 20)
    if options.seed is not None:
        seeds, rounds = iter([int(options.seed)]), 1
    until = time.monotonic() + options.seconds if options.seconds else None
    tried, failures, done = collections.Counter(), [], 0
    lock = threading.Lock()

    def work():
        nonlocal done
        while True:
            with lock:
                is_over = until is not None and time.monotonic() >= until
                begun = done
                if is_over or failures or (rounds is not None and begun >= rounds):
                    return
                done += 1
                seed = next(seeds)
            of_round, failure = one_round(seed, os.path.abspath(program), options)
            with lock:
                tried.update(of_round)
                if failure is not None:
                    failures.append((seed, *failure))

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for each in [pool.submit(work) for _ in range(1 if options.seed is not None else options.jobs)]:
            each.result()
    print(table(tried))
    last = f"{done} rounds, seeds {options.first} to {options.first + done - 1}"
    print(last if options.seed is None else f"seed {options.seed}")
    for seed, reason, folder in failures:
        print(f"\nFAILED: SLACKWATER_SEED={seed}, kept in {folder}\n{reason}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
