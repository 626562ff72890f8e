"""What Python costs: a query of the program and the same one in a Python process, and functions in NumPy.

    python tests/peers/costs.py --program target/release/slackwater [--json costs.json]

Runs take turns; CPU time is that of whole processes, with their start and what is imported, from the kernel.
The program and the module have to be built alike: `make wheel`, or `make python` and the same features.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Seconds that a run may take.
LIMIT = 300

QUERY = """
import sys, slackwater
slackwater.Session(parallelism=1).execute(open(sys.argv[1]).read())
"""

# Reads the rows of a SELECT as batches.
READER = """
import sys, slackwater
text, _, select = open(sys.argv[1]).read().partition("INSERT INTO nexmark_q5")
session = slackwater.Session(parallelism=1)
session.execute(text)
print(sum(batch.num_rows for batch in session.sql(select)))
"""

# A column of sums, so that nothing but the function differs.
FUNCTION = """
import sys, numpy, slackwater
rows, function, repeats = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])

@slackwater.udf(["DOUBLE", "DOUBLE"], "DOUBLE")
def distance(x, y):
    return numpy.hypot(x, y)

@slackwater.udf(["DOUBLE", "DOUBLE"], "DOUBLE")
def total(x, y):
    return numpy.add(x, y)

session = slackwater.Session(parallelism=1)
random = numpy.random.default_rng(1)
import pyarrow
points = pyarrow.table({"x": random.random(rows), "y": random.random(rows)})
session.register("points", points)
import resource
def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
query = session.sql(f"SELECT SUM({function}) AS s FROM points")
query.to_pylist()
before = cpu()
for _ in range(repeats):
    answer = query.to_pylist()
print(answer[0]["s"], (cpu() - before) / repeats)
"""


def run(command, environment):
    """The CPU seconds of a process and its children, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT,
                          check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(command[:3])}: exit code {done.returncode}\n{done.stderr}")
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return spent, done.stdout


def spread(values):
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def shown(name, figures, unit):
    median, lowest, highest = (figures[key] for key in ("median", "lowest", "highest"))
    print(f"  {name:44} {median:9.3f} {unit}   {lowest:.3f} to {highest:.3f}")


def q5(options, environment, folder):
    text = (ROOT / "examples/nexmark/q5.sql").read_text()
    text = text.replace("'rows' = '100000'", f"'rows' = '{options.rows}'")
    text = text.replace("'connector' = 'print'", "'connector' = 'blackhole'")
    script = folder / "q5.sql"
    script.write_text("SET 'parallelism' = '1';\n" + text)
    ways = {
        "the program": [options.program, "run", str(script)],
        "Python: Session.execute": [sys.executable, "-c", QUERY, str(script)],
        "Python: for batch in Session.sql": [sys.executable, "-c", READER, str(script)],
    }
    spent = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, command in ways.items():
            spent[name].append(run(command, environment)[0])
    print(f"\nNexmark q5, {options.rows:,} events: CPU time of the process")
    figures = {name: spread(values) for name, values in spent.items()}
    for name, one in figures.items():
        shown(name, one, "s")
    program = spent.pop("the program")
    ratios = {name: spread([a / b for a, b in zip(values, program)]) for name, values in spent.items()}
    for name, one in ratios.items():
        shown(f"{name} / the program", one, "×")
    return {"rows": options.rows, "cpu_s": figures, "ratios": ratios}


def functions(options, environment):
    rows, repeats = options.function_rows, 3
    ways = {
        "x + y": "built in",
        "total(x, y)": "numpy.add",
        "SQRT(x * x + y * y)": "built in",
        "distance(x, y)": "numpy.hypot",
    }
    spent = {function: [] for function in ways}
    for _ in range(options.rounds):
        for function in ways:
            command = [sys.executable, "-c", FUNCTION, str(rows), function, str(repeats)]
            spent[function].append(float(run(command, environment)[1].split()[1]))
    print(f"\nSELECT SUM(…) over {rows:,} rows, parallelism 1: million rows per CPU second of the query")
    figures = {name: spread([rows / value / 1e6 for value in values]) for name, values in spent.items()}
    for function, one in figures.items():
        shown(f"{function} ({ways[function]})", one, "M/s")
    return {"rows": rows, "million_rows_per_cpu_s": figures}


def load():
    return float(pathlib.Path("/proc/loadavg").read_text().split()[0])


def processor():
    names = re.findall(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return f"{names[0] if names else os.uname().machine}, {os.cpu_count()} cores"


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--program", required=True, help="the program slackwater")
    parser.add_argument("--rows", type=int, default=10_000_000, help="events of q5")
    parser.add_argument("--function-rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["q5", "functions"])
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    environment = {**os.environ}
    begun = load()
    python = sys.version.split()[0]
    print(f"{processor()}; Python {python}; {options.rounds} rounds, medians, lowest to highest")
    result = {"machine": processor(), "rounds": options.rounds}
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "functions":
            result["q5"] = q5(options, environment, pathlib.Path(folder))
    if options.only != "q5":
        result["functions"] = functions(options, environment)
    result["load"] = [begun, load()]
    print(f"\nload {begun} before and {result['load'][1]} after")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
