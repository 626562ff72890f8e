"""Nothing to do costs nothing (I7)."""

import time

import queries
from host import Failed, cpu_s, until_calm, wait_for, wakeups
from world import scenario

INPUT_PORT = 9100
# What a program may take until it is calm: start-up, and the last beats.
CALM_WITHIN_S = 120


@scenario
def an_idle_cluster_sleeps(world):
    """A query without rows: no thread of any process on three hosts is woken, for --idle-seconds."""
    cluster = world.cluster(3, kind="bridge", processes=2)
    file = world.folder / "query.sql"
    file.write_text(queries.SILENT.format(port=INPUT_PORT, out=world.folder / "out"))
    cluster.start(file)
    wait_for(lambda: f"workers on each host\n{cluster.story()}",
             lambda: all(cluster.workers(name) for name in ("h1", "h2", "h3")))
    pids = cluster.all_pids()
    until_calm(lambda: pids, calm_s=2.0, limit_s=CALM_WITHIN_S)
    before, cpu_before = wakeups(pids), cpu_s(pids)
    time.sleep(world.options.idle_seconds)
    after, used_s = wakeups(pids), cpu_s(pids) - cpu_before
    if cluster.all_pids() != pids:
        raise Failed(f"processes have come or gone: {pids}, {cluster.all_pids()}\n{cluster.story()}")
    woken = {place: after[place] - count for place, count in before.items() if after.get(place, 0) != count}
    if woken:
        raise Failed(f"woken in {world.options.idle_seconds} s, by process, thread and name: {woken}")
    cluster.check_ends()
    return f"{len(before)} threads of {len(pids)} processes, {used_s * 1000:.1f} ms of CPU time"
