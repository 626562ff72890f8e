"""What operators of one's own cost beside the same in SQL: `make bench-operators`.

CPU time of the engine and of Python together, from the reports of alternating runs at parallelism 1, and of
each way the time of a run of 1,000 rows is taken off. A table, and JSON with --json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VISITS = """SET 'parallelism' = '1';
CREATE TABLE visits (
  ts_ms BIGINT, ip STRING, url STRING, duration INT,
  ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '{rows}');
CREATE TABLE o ({columns}) WITH ('connector' = 'blackhole');
"""

# A rectangle that half of the rows are in, as a condition of one column in Python.
PIXELS = """CREATE VIEW pixels AS SELECT CAST(duration AS DOUBLE) AS x, 0.0e0 AS y FROM visits;
"""

ROWS = """CREATE FUNCTION longer(t TABLE (duration INT)) RETURNS TABLE LANGUAGE python AS $$
def longer(duration):
    return duration is not None and duration >= 5
$$;
"""

ARRAYS = """CREATE FUNCTION longer(t TABLE (duration INT)) RETURNS TABLE LANGUAGE python
WITH ('mode' = 'columns') AS $$
import numpy
import pyarrow
def longer(duration):
    return pyarrow.array(numpy.asarray(duration) >= 5)
$$;
"""

LAG = """CREATE FUNCTION before(t TABLE (duration INT)) RETURNS TABLE (now INT, before INT)
STATE (last INT) LANGUAGE python AS $$
class before:
    def on_row(self, state, row, out):
        out.emit(row.duration, state.last)
        state.last = row.duration
$$;
"""

# Name: what it is compared with, the rows are divided by, columns of the output, text.
WAYS = {
    "no filter": (None, 1, "x DOUBLE, y DOUBLE", PIXELS + "INSERT INTO o SELECT x, y FROM pixels;"),
    "WHERE": (None, 1, "x DOUBLE, y DOUBLE",
              PIXELS + "INSERT INTO o SELECT x, y FROM pixels "
              "WHERE x >= 5 AND x <= 100 AND y >= 0 AND y <= 1;"),
    "clip, in Rust": ("WHERE", 1, "x DOUBLE, y DOUBLE",
                      PIXELS + "INSERT INTO o SELECT x, y FROM clip(TABLE pixels, 5, 0, 100, 1);"),
    "WHERE duration >= 5": (None, 1, "duration INT", "INSERT INTO o SELECT duration FROM visits "
                            "WHERE duration >= 5;"),
    "in Python, rows": ("WHERE duration >= 5", 5, "duration INT",
                        ROWS + "INSERT INTO o SELECT duration FROM longer(TABLE visits);"),
    "in Python, NumPy": ("WHERE duration >= 5", 1, "duration INT",
                         ARRAYS + "INSERT INTO o SELECT duration FROM longer(TABLE visits);"),
    "LAG, by key": (None, 10, "duration INT, before INT", "INSERT INTO o SELECT duration, "
                    "LAG(duration) OVER (PARTITION BY ip ORDER BY ts) FROM visits;"),
    "in Python, by key": ("LAG, by key", 10, "duration INT, before INT",
                          LAG + "INSERT INTO o SELECT now, before FROM before(TABLE visits PARTITION BY ip "
                          "ORDER BY ts);"),
}


def cpu_s(program, text, columns, rows, folder):
    """The CPU time of a run, in seconds."""
    query, report = Path(folder) / "query.sql", Path(folder) / "report.json"
    query.write_text(VISITS.format(rows=rows, columns=columns) + text)
    done = subprocess.run([program, "run", query, "--quiet", "--report", report], cwd=folder,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{program}: {done.stderr}")
    found = json.loads(report.read_text())
    if found["rows_in"] != rows or found["rows_bad"]:
        raise SystemExit(f"{found['rows_in']} of {rows} rows were read, {found['rows_bad']} were bad")
    return found["cpu_s"]


def steal_s():
    """The time that other machines have taken from this one."""
    return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--program", default="target/release/examples/custom_operators")
    parser.add_argument("--rows", type=int, default=5_000_000, help="of the fastest ways")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json")
    options = parser.parse_args()
    program = os.path.abspath(options.program)
    load, steal, began = os.getloadavg()[0], steal_s(), time.monotonic()
    has_numpy = not subprocess.run(["python3", "-c", "import numpy, pyarrow"], capture_output=True).returncode
    if not has_numpy:
        print("in Python, NumPy: skipped: python3 -m pip install numpy pyarrow")
    ways = {name: way for name, way in WAYS.items() if has_numpy or "NumPy" not in name}
    times = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for name, (_, divisor, columns, text) in ways.items():
                rows = options.rows // divisor
                start = cpu_s(program, text, columns, 1000, folder)
                whole = cpu_s(program, text, columns, rows, folder)
                times[name].append((whole, (whole - start) / (rows - 1000) * 1e6))
    stolen = (steal_s() - steal) / (time.monotonic() - began) / os.cpu_count()
    print(f"CPU time of {options.rounds} alternating runs: medians (lowest to highest); "
          f"{os.cpu_count()} cores, load {load:.1f} before, {os.getloadavg()[0]:.1f} after, "
          f"{stolen:.1%} stolen")
    print(f"{'':22}{'rows':>10}  {'µs a row':>24}  {'of the built-in one':>24}  whole queries")
    found = {}
    for name, (beside, divisor, _, _) in ways.items():
        rows = options.rows // divisor
        line = {"rows": rows, "us_per_row": [each for _, each in times[name]]}
        print(f"{name:22}{rows:>10,}  {spread(line['us_per_row'], 3):>24}", end="")
        if beside:
            pairs = list(zip(times[name], times[beside]))
            line["ratio"] = [own[1] / built_in[1] for own, built_in in pairs]
            line["ratio_of_queries"] = [own[0] / built_in[0] for own, built_in in pairs]
            print(f"  {spread(line['ratio'], 2):>24}  {spread(line['ratio_of_queries'], 2)}", end="")
        print()
        found[name] = line
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
