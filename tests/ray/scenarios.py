"""What is played on a cluster; each returns what it has measured."""

import json
import subprocess
import time

from cluster import PATIENCE_S, HEAD_PATIENCE_S, Failed, kill, processes, wait_for

SCENARIOS = {}

VISITS = """CREATE TABLE visits (
  ts_ms BIGINT, ip STRING, ad_revenue DOUBLE, country STRING, user_agent STRING,
  ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts
) WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'events_per_second' = '1000', %s);
"""

# A row every 10 ms on the terminal, so that a pause is seen.
TICKS = VISITS % "'rate' = '100/s', 'rows' = '10000000'" + "SELECT ts_ms, country FROM visits;\n"

COUNTS = """CREATE TABLE counts (start TIMESTAMP(3), country STRING, visits BIGINT, visitors BIGINT)
WITH ('connector' = 'file', 'path' = '%s', 'format' = 'csv');
INSERT INTO counts SELECT window_start, country, COUNT(*), COUNT(DISTINCT ip)
FROM TUMBLE(TABLE visits, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, country;
"""


def scenario(function):
    """Makes a function with a docstring a scenario."""
    SCENARIOS[function.__name__] = function
    return function


def write(cluster, text, name="query.sql"):
    file = cluster.folder / name
    file.write_text(text)
    return file


def rows(folder):
    """The rows of a folder of parts, sorted."""
    parts = [part for part in folder.iterdir() if not part.name.startswith(".")]
    return sorted(line for part in parts for line in part.read_text().splitlines())


def expected(cluster, source):
    """The same query on one host, as fast as it can be."""
    out = cluster.folder / "expected"
    file = write(cluster, VISITS % source + COUNTS % out, "expected.sql")
    subprocess.run([cluster.program, "run", file, "--quiet"], check=True, timeout=PATIENCE_S)
    return rows(out)


def running(run, hosts):
    """Waits until a query runs on so many hosts."""

    def is_running():
        run.check_running()
        return run.used() == hosts

    wait_for(lambda: f"{hosts} hosts\n{run.said()[-3000:]}", is_running)


@scenario
def answer(cluster):
    """Three nodes give the answer of one host; nothing is left of agents and secrets."""
    out = cluster.folder / "out"
    file = write(cluster, VISITS % "'rate' = '10000/s', 'rows' = '200000'" + COUNTS % out)
    begun = time.monotonic()
    run = cluster.run(file, "3", ["--parallelism", "3"])
    running(run, 3)
    first_s = time.monotonic() - begun
    report = run.finish()
    if rows(out) != expected(cluster, "'rows' = '200000'"):
        raise Failed("other rows than on one host")
    wait_for("agents end with their query", lambda: not cluster.node_of_agent())
    left = list(cluster.folder.glob("slackwater-*"))
    if left:
        raise Failed(f"left behind: {left}")
    return f"{first_s:.1f} s from the command to a query on three nodes; {report['rows_in']:,} rows"


# How long the load takes to rise to four times as much and to fall again.
PERIOD_S = 180


@scenario
def load(cluster):
    """The load rises until a second node is used, and falls: one node again, and the rows of one host.

    A query that resumes begins the generator's curve again, so that the load falls at once, and a third node
    is never wanted."""
    out = cluster.folder / "out"
    # At first two fifths of a core, so that four times as much is more than a node should bear.
    cost_s = cpu_s_of_a_row(cluster)
    rate = int(0.4 / cost_s)
    rows_in = int(2.5 * rate * PERIOD_S)
    curve = f"'rate' = '{rate}/s', 'rate_max' = '{4 * rate}/s', 'rate_period' = '{PERIOD_S} s', "
    file = write(cluster, VISITS % f"{curve}'rows' = '{rows_in}'" + COUNTS % out)
    settings = ["hosts_more_after=3 s", "hosts_fewer_after=5 s", "checkpoint_interval=1 s"]
    more = [word for setting in settings for word in ("--set", setting)]
    run = cluster.run(file, "1..3", ["--parallelism", "3", *more])
    begun, changes = time.monotonic(), []
    for hosts in (1, 2, 1):
        wait_for(lambda: f"{hosts} hosts; {changes}\n{run.said()[-3000:]}",
                 lambda: followed(run, changes, begun) == hosts, PERIOD_S + PATIENCE_S)
    report = run.finish(PERIOD_S + PATIENCE_S)
    if rows(out) != expected(cluster, f"'rows' = '{rows_in}'"):
        raise Failed("other rows than on one host")
    if report["rows_in"] != rows_in or report["restarts"]:
        raise Failed(f"{report['rows_in']} of {rows_in} rows counted, {report['restarts']} restarts")
    told = ", ".join(f"{hosts} after {at_s:.0f} s" for at_s, hosts in changes)
    return f"{rate:,} to {4 * rate:,} rows/s and back in {PERIOD_S} s; nodes used: {told}"


def cpu_s_of_a_row(cluster):
    """CPU time of a row of the query, on one host."""
    report = cluster.folder / "cost.json"
    text = VISITS % "'rows' = '400000'" + COUNTS % (cluster.folder / "cost")
    command = [cluster.program, "run", write(cluster, text, "cost.sql"), "--quiet", "--report", report]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    return json.loads(report.read_text())["cpu_us_per_row"] / 1e6


def followed(run, changes, begun):
    """How many hosts are used, which is also added to the changes."""
    run.check_running()
    used = run.used()
    if used and (not changes or changes[-1][1] != used):
        changes.append((time.monotonic() - begun, used))
    return used


@scenario
def raylet(cluster):
    """A raylet is killed: its agent goes on. Then a whole node: the query resumes on another one."""
    run = cluster.run(write(cluster, TICKS), "1", ["--set", "checkpoint_interval=500 ms"])
    running(run, 1)
    wait_for("rows", lambda: len(run.lines) > 100)
    [(node, _)] = cluster.node_of_agent().items()
    killed = time.monotonic()
    kill(cluster.raylet(node))
    time.sleep(15)
    run.check_running()
    alone_s = run.longest_pause(killed)
    agents = cluster.node_of_agent()
    if node not in agents:
        raise Failed(f"the agent ended with its raylet\n{run.said()[-3000:]}")
    said = f"a raylet killed: no rows for {alone_s:.2f} s at most\n"
    # Again on a node that has its raylet: its agent is the second host.
    run.stop()
    second = cluster.run(write(cluster, TICKS, "second.sql"), "1", ["--set", "checkpoint_interval=500 ms"],
                         ["--port", "7071"])
    running(second, 1)
    wait_for("rows", lambda: len(second.lines) > 100)
    [(node, _)] = cluster.node_of_agent().items()
    killed = time.monotonic()
    cluster.kill_node(node)
    wait_for(lambda: f"another node\n{second.said()[-3000:]}", lambda: set(cluster.node_of_agent()) - {node})
    wait_for("rows again", lambda: second.rows_after(killed + 0.5))
    wait_for("rows again", lambda: len([at for at in second.times if at > killed]) > 200)
    pause_s = second.longest_pause(killed)
    report = second.stop()
    if report["restarts"] < 1:
        raise Failed("nothing was disturbed")
    return said + f"a node killed: no rows for {pause_s:.2f} s, {report['restarts']} restart"


@scenario
def head(cluster):
    """The head is killed, and stays away until all raylets have ended: the query goes on, and ends well."""
    out = cluster.folder / "out"
    file = write(cluster, VISITS % "'rate' = '2000/s', 'rows' = '120000'" + COUNTS % out)
    run = cluster.run(file, "2", ["--parallelism", "2"])
    running(run, 2)
    cluster.kill_head()
    killed = time.monotonic()
    wait_for("raylets end", lambda: not cluster.pids("/raylet/raylet"), 3 * HEAD_PATIENCE_S + PATIENCE_S)
    ended_s = time.monotonic() - killed
    run.check_running()
    if len(cluster.node_of_agent()) != 2:
        raise Failed(f"agents ended with Ray\n{run.said()[-3000:]}")
    report = run.finish()
    if rows(out) != expected(cluster, "'rows' = '120000'"):
        raise Failed("other rows than on one host")
    if "Ray is gone" not in run.said():
        raise Failed(f"nobody was told\n{run.said()[-3000:]}")
    wait_for("agents end with their query", lambda: not cluster.node_of_agent())
    return f"raylets ended {ended_s:.1f} s after the head; {report['restarts']} restarts of the query"


@scenario
def detached(cluster):
    """A detached query goes on without its driver; when its node is killed, it resumes on another one."""
    out = cluster.folder / "out"
    file = write(cluster, VISITS % "'rate' = '2000/s', 'rows' = '120000'" + COUNTS % out)
    own = ["--state", cluster.folder / "state", "--binary", cluster.program, "--hosts", "1..2", "--detach"]

    def ask(*arguments):
        command = cluster.command(*arguments)
        return subprocess.run(
            command, env=cluster.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    begun = ask("run", file, *own, "--", "--set", "checkpoint_interval=500 ms")
    if begun.returncode != 0:
        raise Failed(begun.stderr)
    again = ask("run", file, *own)
    if "there is such a query already" not in again.stderr:
        raise Failed(again.stderr)

    def place():
        """The node on which the query runs, and its process."""
        for pid, (_, command) in processes().items():
            if " run " in command and "--listen" in command and "keeper" not in command:
                words = command.split(" ")
                return int(words[words.index("--listen") + 1].split(":")[0].rpartition(".")[2])
        return None

    store = cluster.folder / "state" / "checkpoints"
    wait_for("checkpoints", lambda: store.is_dir() and len(list(store.glob("*.json"))) > 2)
    node = wait_for("the query", place)
    killed = time.monotonic()
    cluster.kill_node(node)
    if node != 1:
        wait_for("the query elsewhere", lambda: place() not in (None, node))
    elsewhere_s = time.monotonic() - killed
    said = f"its node was killed: the query was started on another one after {elsewhere_s:.1f} s"
    ended = wait_for("the end", lambda: "has ended" in (told := ask("status", "query")).stderr and told, 300)
    if ended.returncode != 0 or rows(out) != expected(cluster, "'rows' = '120000'"):
        raise Failed(ended.stderr)
    stopped = ask("stop", "query")
    if stopped.returncode != 0 or "no such query" not in ask("status", "query").stderr:
        raise Failed(stopped.stderr)
    return said
