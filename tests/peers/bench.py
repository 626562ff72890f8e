#!/usr/bin/env python3
"""The same job in Slackwater's Python module and in streaming engines from PyPI.

    make bench-python                                         # the module of this checkout
    make bench-python BENCH='--wheel target/dist/slackwater-….whl'

Each engine is installed into a virtual environment of its own. The job counts and sums the rows of each key
in windows of ten seconds of event time, over a file with a seed, out of order by up to 0.9 s. All answers are
compared with one that plain Python computes. See README.md for what is measured, and how. Only the standard
library is needed.
"""

import argparse
import csv
import glob
import json
import os
import platform
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from datetime import datetime, timezone

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
JOBS = os.path.join(HERE, "jobs")

OURS = "slackwater"
PEERS = {
    OURS: [],
    "bytewax": ["bytewax==0.21.1"],
    "pathway": ["pathway==0.33.0"],
    # It reads results by way of pyarrow.
    "laminardb": ["laminardb[pyarrow]==0.17.0"],
}

INSTALL_MAX_S = 900
RUN_MAX_S = 300
ROWS_MAX = 20_000_000
SECONDS_MAX = 120
SAID_MAX = 300

WINDOW_MS = 10_000
KEYS = 100


class Failed(Exception):
    """Why an engine can't be measured."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the file [1000000]")
    parser.add_argument("--runs", type=int, default=3, help="alternating runs, whose median counts [3]")
    parser.add_argument("--rate", type=int, default=1000, help="rows per second of the latencies [1000]")
    parser.add_argument("--seconds", type=float, default=20, help="of a measurement at a rate, and idle [20]")
    parser.add_argument("--latency-target", help="that of Slackwater at a rate, such as '20 ms'")
    parser.add_argument("--peers", default=",".join(PEERS), help="some of them, separated by commas")
    parser.add_argument("--wheel", help="Slackwater's; without, the module of the checkout (make python)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the environments")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="use environments that are there")
    parser.add_argument("--out", default=os.path.join(ROOT, "target", "peers-python"), help="a folder")
    given = parser.parse_args()
    names = given.peers.split(",")
    if unknown := [name for name in names if name not in PEERS]:
        parser.error(f"--peers: there is no '{unknown[0]}'; use some of {', '.join(PEERS)}")
    is_rows, is_seconds = 1000 <= given.rows <= ROWS_MAX, 2 <= given.seconds <= SECONDS_MAX
    if not is_rows or not is_seconds or not 1 <= given.runs <= 9:
        parser.error(f"use 1000 to {ROWS_MAX} rows, 1 to 9 runs, and 2 to {SECONDS_MAX} seconds")
    os.makedirs(given.out, exist_ok=True)
    source = os.path.join(given.out, f"rows-{given.rows}-{given.seed}.csv")
    small = os.path.join(given.out, f"rows-10-{given.seed}.csv")
    expected = generated(source, given.rows, given.seed)
    few = generated(small, 10, given.seed)
    measured = {name: {"lines": lines_of(name)} for name in names}
    for name in names:
        attempt(measured[name], lambda: installed(name, given))
    for number in range(given.runs):
        for name in names:
            print(f"run {number + 1} of {given.runs}: {name}", file=sys.stderr)
            files = source, expected, small, few
            attempt(measured[name], lambda: one_run(measured[name], name, given, *files))
    result = {
        "rows": given.rows, "runs": given.runs, "rate": given.rate, "seconds": given.seconds,
        "seed": given.seed, "latency_target": given.latency_target,
        "python": platform.python_version(), "cores": os.cpu_count(),
        "load_before": LOAD, "engines": {name: summed(measured[name]) for name in names},
    }  # fmt: skip
    path = os.path.join(given.out, "result.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    print(table(result))
    print(f"\n{path}")


def attempt(measured, work):
    """Does something, unless this engine has failed before; keeps why it fails."""
    if "failed" in measured:
        return
    try:
        measured.update(work() or {})
    except Failed as failed:
        measured["failed"] = str(failed)
        print(f"  {failed}", file=sys.stderr)


def generated(path, rows, seed):
    """Writes the rows, and returns the answer: (start of the window, key) to (count, sum)."""
    numbers, answer = random.Random(seed), {}
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        file.write("ts_ms,k,v\n")
        for row in range(rows):
            at = max(0, row * 10 + numbers.randint(-900, 900))
            key, value = f"k{numbers.randrange(KEYS)}", numbers.randint(0, 1000)
            file.write(f"{at},{key},{value}\n")
            window = answer.setdefault((at - at % WINDOW_MS, key), [0, 0])
            window[0] += 1
            window[1] += value
    os.replace(f"{path}.part", path)
    return answer


def lines_of(name):
    """The lines of code of the script that a user writes for the file."""
    with open(os.path.join(JOBS, f"{name}_batch.py"), encoding="utf-8") as file:
        return sum(bool(line.strip()) and not line.strip().startswith("#") for line in file)


def installed(name, given):
    """Makes the environment; the seconds that the installation took, and its size."""
    folder = os.path.join(given.out, name)
    known = os.path.join(folder, "installed.json")
    if given.keep and os.path.exists(known):
        with open(known, encoding="utf-8") as file:
            return json.load(file)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"installing {name}", file=sys.stderr)
    called([given.python, "-m", "venv", folder], INSTALL_MAX_S)
    before = size_of(folder)
    packages = [given.wheel] if name == OURS and given.wheel else PEERS[name]
    found = {"install_s": None, "version": None}
    if packages:
        pip = [os.path.join(folder, "bin", "python"), "-m", "pip", "install", "--quiet", "--no-cache-dir",
               "--disable-pip-version-check", *packages]  # fmt: skip
        started = time.monotonic()
        called(pip, INSTALL_MAX_S)
        found["install_s"] = time.monotonic() - started
        found["size_mb"] = (size_of(folder) - before) / 1e6
        version = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
        found["version"] = called([pip[0], "-c", version, name], 60).strip()
    else:
        module = os.path.join(ROOT, "python", "slackwater", "slackwater")
        if not glob.glob(os.path.join(module, "_slackwater*.so")):
            raise Failed("the module of the checkout is not built: make python, or --wheel FILE")
        found["size_mb"] = size_of(module) / 1e6
        found["version"] = "checkout"
    with open(known, "w", encoding="utf-8") as file:
        json.dump(found, file)
    return found


def one_run(measured, name, given, source, expected, small, few):
    """The file, a start, a rate and a silence. Adds figures to lists."""
    seconds = str(given.seconds)
    start_cpu_s, _ = batch(name, given, small, few)
    cpu_s, wall_s = batch(name, given, source, expected)
    paced = live(name, given, str(given.rate), seconds)
    idle = live(name, given, "0", seconds)
    if paced["ticks"] and not paced["windows"]:
        raise Failed(f"at {given.rate} rows/s it returned no window within {seconds} s")
    figures = {
        "start_cpu_s": start_cpu_s,
        "rows_per_cpu_s": given.rows / cpu_s,
        "rows_per_cpu_s_after_start": (given.rows - 10) / max(cpu_s - start_cpu_s, 1e-3),
        "wall_s": wall_s,
        "p50_ms": paced["p50_ms"], "p99_ms": paced["p99_ms"], "max_ms": paced["max_ms"],
        "windows": paced["windows"],
        "cores_at_rate": paced["cpu_s"] / paced["seconds"],
        "idle_cores": idle["cpu_s"] / idle["seconds"],
    }  # fmt: skip
    for figure, value in figures.items():
        measured.setdefault("figures", {}).setdefault(figure, []).append(value)


def batch(name, given, source, expected):
    """Runs the script over a file, checks its answer, and returns its CPU and wall seconds."""
    out = os.path.join(given.out, f"{name}.csv")
    if os.path.exists(out):
        os.remove(out)
    # FileSink of bytewax wants the file to be there.
    open(out, "w", encoding="utf-8").close()
    before, started = children_cpu_s(), time.monotonic()
    script(name, given, "batch", source, out)
    cpu_s, wall_s = children_cpu_s() - before, time.monotonic() - started
    compare(out, expected)
    return cpu_s, wall_s


def compare(path, expected):
    """Whether a file has the answer."""
    found, rows = {}, 0
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.reader(file):
            if row and row[0] not in ("start", "window_start"):
                key = (milliseconds(row[0]), row[1])
                if key in found:
                    raise Failed(f"another answer: the window {key} is there twice")
                found[key] = [int(row[2]), int(row[3])]
                rows += found[key][0]
    if found != expected:
        wanted = sum(count for count, _ in expected.values())
        wrong = sum(found.get(key) != value for key, value in expected.items())
        raise Failed(
            f"another answer: it counts {rows} of {wanted} rows, and {wrong} of {len(expected)} windows are "
            f"missing or wrong"
        )


def milliseconds(text):
    if text.lstrip("-").isdigit():
        return int(text)
    at = datetime.fromisoformat(text).replace(tzinfo=timezone.utc)
    return round(at.timestamp() * 1000)


def live(name, given, rate, seconds):
    said = script(name, given, "live", rate, seconds)
    try:
        return json.loads(said.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise Failed(f"it printed no figures: {said[-SAID_MAX:]}") from None


def script(name, given, kind, *arguments):
    """Runs a script of an engine, in its environment."""
    python = os.path.join(given.out, name, "bin", "python")
    variables = {"PYTHONDONTWRITEBYTECODE": "1"}
    if name == OURS and not given.wheel:
        variables["PYTHONPATH"] = os.path.join(ROOT, "python", "slackwater")
    if given.latency_target:
        variables["LATENCY_TARGET"] = given.latency_target
    command = [python, os.path.join(JOBS, f"{name}_{kind}.py"), *arguments]
    return called(command, RUN_MAX_S, variables, given.out)


def called(command, limit_s, variables=None, folder=None):
    """What a program prints; its processes are ended after `limit_s`."""
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace", cwd=folder, env={**os.environ, **(variables or {})}, start_new_session=True,
    )  # fmt: skip
    late = threading.Event()

    def end():
        late.set()
        os.killpg(child.pid, signal.SIGKILL)

    timer = threading.Timer(limit_s, end)
    timer.start()
    try:
        out, err = child.communicate()
    except BaseException:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        raise
    finally:
        timer.cancel()
    what = " ".join(os.path.basename(part) for part in command[:2])
    if late.is_set():
        raise Failed(f"{what}: not done in {limit_s} s")
    if child.returncode != 0:
        raise Failed(f"{what}: it ended with {child.returncode}: {err.strip()[-SAID_MAX:]}")
    return out


def children_cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def size_of(folder):
    """The bytes of its files."""
    paths = (os.path.join(base, name) for base, _, names in os.walk(folder) for name in names)
    return sum(os.lstat(path).st_size for path in paths)


def summed(measured):
    """Medians, with the least and the largest value."""
    figures = measured.pop("figures", {})
    spread = {name: [min(all_of), max(all_of)] for name, all_of in figures.items()}
    medians = {name: statistics.median(all_of) for name, all_of in figures.items()}
    return {**measured, **medians, "spread": spread}


COLUMNS = [
    ("install s", "install_s", "{:.1f}"), ("MB", "size_mb", "{:.0f}"), ("lines", "lines", "{}"),
    ("rows/CPU s", "rows_per_cpu_s", "{:,.0f}"),
    ("after start", "rows_per_cpu_s_after_start", "{:,.0f}"), ("start CPU s", "start_cpu_s", "{:.2f}"),
    ("p50 ms", "p50_ms", "{:.1f}"), ("p99 ms", "p99_ms", "{:.1f}"),
    ("cores at rate", "cores_at_rate", "{:.3f}"), ("idle cores", "idle_cores", "{:.4f}"),
]  # fmt: skip


def table(result):
    """The result for people, as Markdown."""
    head = ["engine", "version", *(title for title, _, _ in COLUMNS)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    notes = []
    for name, found in result["engines"].items():
        cells = [name, str(found.get("version") or "–")]
        cells += ["–" if found.get(key) is None else form.format(found[key]) for _, key, form in COLUMNS]
        lines.append("| " + " | ".join(cells) + " |")
        if "failed" in found:
            notes.append(f"- {name}: {found['failed']}")
    return "\n".join([*lines, "", *notes]).rstrip()


LOAD = os.getloadavg()[0]

if __name__ == "__main__":
    main()
