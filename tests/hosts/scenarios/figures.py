"""How long a query stands still, from a disturbance to the first new row. Asserts no time; minutes each, so
they are played when --only names them: `run.py --only figures_of_failures figures_of_drains`."""

import os
import signal
import threading
import time

from host import Skipped, wait_for
from orchestrators import Orchestrated
from queries import Ticks
from registries import ZooKeeper
from world import scenario

TIMES = 10
KEYS_MANY, RATE_MANY = 100_000, 16_000
SETTINGS = {"checkpoint_interval": "100 ms"}
PATIENCE_S = 90


class Watcher:
    """Notes when rows of each incarnation appear for the first and the last time, by looking at the answer's
    folder every few milliseconds: parts are named part-INSTANCE-INCARNATION-NUMBER."""

    LOOK_S = 0.004

    def __init__(self, folder):
        self.folder, self.first, self.last = folder, {}, {}
        self.seen, self.is_over = set(), threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        while not self.is_over.wait(self.LOOK_S):
            now = time.monotonic()
            for name in os.listdir(self.folder) if self.folder.is_dir() else ():
                if name.startswith("part-") and name not in self.seen:
                    self.seen.add(name)
                    incarnation = int(name.partition(".")[0].split("-")[2])
                    self.first.setdefault(incarnation, now)
                    self.last[incarnation] = now

    def newest(self):
        return max(self.first, default=0)

    def until_after(self, incarnation):
        """When the first row of a later incarnation appeared."""
        later = lambda: [first for number, first in dict(self.first).items() if number > incarnation]
        return min(wait_for("a row of a later incarnation", later, PATIENCE_S, every_s=0.01))

    def close(self):
        self.is_over.set()
        self.thread.join()


def measured(name, values):
    values = sorted(values)
    middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
    return f"{name:<34} p50 {middle:.2f} s, {values[0]:.2f} to {values[-1]:.2f}, {len(values)} times"


def once(world, number, measure, query, registry=None, spares=(), **more):
    """One measurement, in a cluster of its own."""
    begin = world.folder
    world.folder = begin / f"{number}"
    world.folder.mkdir()
    registry = registry and registry(world)
    cluster = Orchestrated(world, registry=registry, others=spares, settings=SETTINGS, **more)
    cluster.is_revived = False
    cluster.start(query)
    for name in spares:
        cluster.start_agent(name)
    cluster.until_running_on(cluster.hosts)
    watcher = Watcher(world.folder / "out")
    try:
        wait_for("rows", watcher.newest, PATIENCE_S)
        # Until all keys are there.
        time.sleep(1 + 1.2 * query.keys / query.rate + world.rng.random() / 2)
        return measure(cluster, watcher)
    finally:
        watcher.close()
        world.close()
        world.folder = begin


def after(disturb):
    """Seconds from a disturbance to the first row of the next incarnation."""
    def measure(cluster, watcher):
        incarnation, begun = watcher.newest(), time.monotonic()
        disturb(cluster)
        return watcher.until_after(incarnation) - begun
    return measure


def paused(cluster, watcher):
    """Seconds between the last row before a drain and the first one after it."""
    incarnation = watcher.newest()
    drained = cluster.ask("drain", "h1")
    assert drained.code == 0, drained.said()
    first = watcher.until_after(incarnation)
    return first - watcher.last[incarnation]


def kill_worker(cluster):
    os.kill(cluster.workers("h1")[0], signal.SIGKILL)


def cut_host(cluster):
    cluster.net.cut("h1")


def kill_leader(cluster):
    cluster.harm(cluster.runs["o1"], signal.SIGKILL)


def lose_leader(cluster):
    cluster.lose_host("o1")


def play(world, kinds):
    if not {"figures_of_failures", "figures_of_drains"} & set(world.options.only):
        raise Skipped("takes minutes: --only names it")
    said = []
    for name, more in kinds.items():
        values = [once(world, f"{len(said)}-{number}", **more) for number in range(TIMES)]
        said.append(measured(name, values))
        print(f"{'':19}{said[-1]}", flush=True)
    return ""


@scenario
def figures_of_failures(world):
    """Times from a failure to the first new row, ten times each; minutes, so only with --only."""
    query = Ticks()
    play(world, {
        "worker process killed": {"measure": after(kill_worker), "query": query},
        "leader killed, SQLite": {"measure": after(kill_leader), "query": query},
        "leader killed, ZooKeeper": {"measure": after(kill_leader), "query": query, "registry": ZooKeeper},
        "leader's host gone, ZooKeeper":
            {"measure": after(lose_leader), "query": query, "registry": ZooKeeper},
        "host cut off, a spare is there": {"measure": after(cut_host), "query": query, "spares": ("h3",)},
    })


@scenario
def figures_of_drains(world):
    """The pause of a query of 100,000 keys when a host is drained, ten times; only with --only."""
    query = Ticks(keys=KEYS_MANY, rate=RATE_MANY, run_s=60)
    play(world, {"drain, 100,000 keys": {"measure": paused, "query": query, "spares": ("h3",)}})
