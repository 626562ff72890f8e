"""Files that each host has for itself, that one host has, or that have grown on one host."""

import collections
import signal

from cluster import restarts_at_least
from host import Failed
from queries import parts
from scenarios.bad_input import check
from world import scenario

# Rows of each host's file: a second apart, so a window has 60.
ROWS = 6000
HOSTS = ("h1", "h2", "h3")

TEXT = """CREATE TABLE t (k BIGINT, n BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = '{path}'{options});
CREATE TABLE o (start TIMESTAMP(3), k BIGINT, s BIGINT)
WITH ('connector' = 'file', 'path' = '{out}', 'format' = 'csv', 'overwrite' = 'false');
INSERT INTO o SELECT window_start, k, SUM(n) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
GROUP BY window_start, window_end, k;
"""


def line(host, row):
    hour, minute, second = row // 3600, row // 60 % 60, row % 60
    return f"{(row * 7 + host) % 23},{row},2026-01-01 {hour:02}:{minute:02}:{second:02}\n"


class Sums:
    """Sums by minute and key over the rows of some hosts' files."""

    only_last = False

    def __init__(self, folder, path, options, counts):
        self.text = TEXT.format(path=path, options=options, out=folder / "out")
        self.counts = counts

    def write(self, folder, _data, _run_s=None):
        path = folder / "query.sql"
        path.write_text(self.text)
        return path

    def compare(self, folder, _data):
        expected = collections.Counter()
        for host, count in self.counts.items():
            for row in range(count):
                key, number, time = line(host, row).rstrip("\n").split(",")
                expected[(time[:16], key)] += int(number)
        found = collections.Counter()
        for part in parts(folder / "out"):
            for row in part.read_text().splitlines():
                start, key, total = row.split(",")
                found[(start[:16].replace("T", " "), key)] += int(total)
        if found != expected:
            missing = list((expected - found).items())[:3]
            raise Failed(f"{len(found)} sums instead of {len(expected)}, {missing} are missing")


def own_folders(world, contents):
    """A folder that is another one on each host; `contents` has the rows of its file `a.csv` by host."""
    place = world.folder / "place"
    place.mkdir()
    binds = {}
    for host, name in enumerate(HOSTS):
        own = place
        if name != "h1":
            own = world.folder / f"own-{name}"
            own.mkdir()
            binds[name] = [(own, place)]
        if name in contents:
            (own / "a.csv").write_text("".join(line(host, row) for row in range(contents[name])))
    return place, binds


ALL = {name: ROWS for name in HOSTS}
SUMS = {host: ROWS for host in range(len(HOSTS))}


def start_per_host(world, rate, settings):
    place, binds = own_folders(world, ALL)
    cluster = world.cluster(3, binds=binds, settings={"checkpoint_interval": "100 ms", **settings})
    options = f", 'files' = 'per_host', 'replay_rate' = '{rate}/s'"
    cluster.start(Sums(world.folder, place / "*.csv", options, SUMS))
    cluster.until_running()
    return cluster


@scenario
def files_of_each_host(world):
    """Each host reads its own file; one whose agent is killed reads on where it was, and counts are exact."""
    cluster = start_per_host(world, 4000, {})
    agent = cluster.agents["h3"]
    cluster.harm(agent, signal.SIGKILL)
    agent.wait()
    report = cluster.finish()
    restarts_at_least(report, 1)
    names = [partition["name"] for partition in report["sources"][0]["partitions"]]
    if names != [f"{name}:{world.folder}/place/a.csv" for name in HOSTS]:
        raise Failed(f"partitions are {names}")
    if report["rows_in"] != ROWS * len(HOSTS):
        raise Failed(f"{report['rows_in']} rows are counted, and {ROWS * len(HOSTS)} were read")
    return f"{report['restarts']} restarts"


@scenario
def files_of_a_host_that_does_not_return(world):
    """Without a host that has files, the query ends with its name, and not without its rows."""
    cluster = start_per_host(world, 1000, {"host_patience": "3 s"})
    agent = cluster.agents["h3"]
    cluster.harm(agent, signal.SIGKILL)
    agent.wait()
    check(cluster.run, 1, "h3", "host_patience")


@scenario
def a_file_that_one_host_has(world):
    """A table with 'host' = 'h2' reads a file that is on h2 only."""
    place, binds = own_folders(world, {"h2": ROWS})
    cluster = world.cluster(3, binds=binds)
    cluster.start(Sums(world.folder, place / "a.csv", ", 'host' = 'h2'", {1: ROWS}))
    cluster.finish()


@scenario
def a_file_that_has_grown_on_one_host(world):
    """A shared file that is longer on h2, where it is read, is read as far as it is at home."""
    place, binds = own_folders(world, {})
    rows = [line(0, row) for row in range(ROWS)]
    (place / "a.csv").write_text("".join(rows[:ROWS // 2]))
    (world.folder / "own-h2" / "a.csv").write_text("".join(rows))
    binds.pop("h3")
    cluster = world.cluster(1, binds=binds, is_home_used=False)
    cluster.start(Sums(world.folder, place / "a.csv", "", {0: ROWS // 2}))
    cluster.finish()


@scenario
def a_rate_of_all_hosts_together(world):
    """'replay_rate' is that of the table, and not of each host that reads it: no row is early."""
    place, binds = own_folders(world, ALL)
    cluster = world.cluster(3, binds=binds)
    options = f", 'files' = 'per_host', 'replay_rate' = '{ROWS}/s'"
    cluster.start(Sums(world.folder, place / "*.csv", options, SUMS))
    wall_s = cluster.finish()["wall_s"]
    if wall_s < 0.95 * len(HOSTS):
        raise Failed(f"{len(HOSTS) * ROWS} rows at {ROWS} a second took {wall_s} s")
