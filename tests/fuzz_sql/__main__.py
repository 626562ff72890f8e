"""`make fuzz-sql`: random queries at random settings against DuckDB and a naive model. See CONTRIBUTING.md."""

import argparse
import itertools
import multiprocessing
import os
import random
import sys
import time
import traceback
from collections import Counter, defaultdict

from . import known, worker


def arguments():
    parser = argparse.ArgumentParser(prog="fuzz_sql", description=__doc__)
    parser.add_argument("--binary", default="target/debug/slackwater")
    parser.add_argument("--seed", default=os.environ.get("SEED") or str(random.SystemRandom().randrange(10**6)))
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS_") or 0), help="duration; 0: until --queries are reached")
    parser.add_argument("--queries", type=int, default=0, help="the least number of queries")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--reduce-seconds", type=float, default=60)
    parser.add_argument("--out", default="target/fuzz-sql")
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--kinds", help="a regular expression: only queries of these kinds")
    parser.add_argument("--how", choices=["plain", "state", "stops", "kills"], help="the kind of all runs")
    parser.add_argument("--stop-after", type=int, default=20, help="number of new findings after which it ends")
    parser.add_argument("--known", action="store_true", help="generate as many queries with known findings as others, to check whether they are fixed")
    return parser.parse_args()


def guarded(task):
    number, options = task
    try:
        return worker.work(number, options)
    except Exception:  # noqa: BLE001 - a bug of the fuzzer is reported with its case, and fails
        outcome = worker.Outcome(number)
        outcome.findings.append((None, f"case {number}: the fuzzer itself fails:\n{traceback.format_exc()}", None))
        return outcome


def main():
    given = arguments()
    if not os.access(given.binary, os.X_OK):
        sys.exit(f"no program at {given.binary}: cargo build -p slackwater")
    data = given.data if os.path.isdir(given.data) else None
    options = worker.Options(os.path.abspath(given.binary), given.seed, data, given.reduce_seconds, given.out, given.how, given.kinds)
    print(f"seed {given.seed}; findings go to {given.out}")
    if worker.duckdb is None:
        print("note: no DuckDB (make duckdb): answers are only compared between settings, and windows with the model")
    if data is None:
        print(f"note: {given.data} does not exist: no real tables")
    if given.known:
        known.MADE, known.FAR_TIMES = 1, True
    counts, new, old, cases, queries = Counter(), [], Counter(), 0, 0
    begun = time.monotonic()
    tasks = ((number, options) for number in itertools.count(given.first))
    if not given.seconds and not given.queries:
        given.queries = 300
    with multiprocessing.Pool(given.jobs) as pool:
        for outcome in windowed_map(pool, tasks, given.jobs * 20):
            cases += 1
            counts.update(outcome.counts)
            queries = sum(by for (table, _), by in counts.items() if table == "queries")
            for folder, title, reason in outcome.findings:
                if reason:
                    old[reason] += 1
                else:
                    new.append((folder, title))
                    print(f"FOUND, case {outcome.number}: {title}\n  {folder}", flush=True)
            sys.stdout.flush()
            if given.seconds and time.monotonic() - begun > given.seconds or given.queries and queries >= given.queries or len(new) >= given.stop_after:
                pool.terminate()
                break
    summary(counts, cases, queries, time.monotonic() - begun)
    for reason, times in old.most_common():
        print(f"known, {times} times: {reason}")
    for folder, title in new:
        print(f"NEW: {title}\n  {folder}")
    print(f"seed {given.seed}: {len(new)} new findings, {sum(old.values())} known ones")
    sys.exit(1 if new else 0)


def windowed_map(pool, tasks, ahead):
    """Results in the order of their cases, so that a seed always ends with the same cases; this many are
    started ahead."""
    waiting = []
    for task in tasks:
        waiting.append(pool.apply_async(guarded, (task,)))
        if len(waiting) >= ahead:
            yield waiting.pop(0).get()


def summary(counts, cases, queries, seconds):
    tables = defaultdict(list)
    for (table, what), by in counts.items():
        tables[table].append((by, what))
    print(f"\n{cases} cases with {queries} queries in {seconds:.0f} s")
    for name in ("compared", "queries", "answers", "parts", "settings", "tables", "refused", "not possible in DuckDB"):
        if name in tables:
            shown = sorted(tables[name], reverse=True)
            print(f"\n{name}:")
            if name == "refused":
                for by, what in shown[:25]:
                    print(f"  {by:6} {what}")
            else:
                print("  " + ", ".join(f"{what} {by}" for by, what in shown if by))


if __name__ == "__main__":
    main()
