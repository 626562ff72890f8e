"""Random rounds: a random query over random hosts, disturbed at random moments. `--rounds N --seed S`."""

import os
import signal
import time

from host import Skipped
from orchestrators import Orchestrated
from registries import Sqlite, ZooKeeper
from world import SCENARIOS

HARMS_MAX = 4
RUN_S = 6
QUERY_S_MAX = 4
STOPPED_S_MAX = 8
CHECKPOINTS = ("50 ms", "100 ms", "300 ms")


def kill_worker(cluster, rng, notes):
    names = [name for name in cluster.members() if cluster.workers(name)]
    if not names:
        return
    name = rng.choice(names)
    pid = rng.choice(cluster.workers(name) or [0])
    notes.append(f"kill a worker of {name}")
    if pid:
        try:
            os.kill(pid, rng.choice([signal.SIGKILL, signal.SIGSEGV]))
        except ProcessLookupError:
            pass


def kill_agent(cluster, rng, notes):
    name = rng.choice(sorted(cluster.agents))
    notes.append(f"kill the agent of {name}")
    cluster.harm(cluster.agents[name], signal.SIGKILL)


def kill_run(cluster, rng, notes):
    name, run = rng.choice(sorted(cluster.orchestrators().items()))
    signals = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM] if cluster.hands_over else [signal.SIGKILL]
    number = rng.choice(signals)
    notes.append(f"signal {int(number)} to the orchestrator {name}")
    cluster.harm(run, number)


def stop_run(cluster, rng, notes):
    name, run = rng.choice(sorted(cluster.orchestrators().items()))
    seconds = rng.random() * STOPPED_S_MAX
    notes.append(f"stop the orchestrator {name} for {seconds:.1f} s")
    run.send(signal.SIGSTOP)
    time.sleep(seconds)
    run.send(signal.SIGCONT)


def kill_registry(cluster, rng, notes):
    servers = cluster.registry.names
    if not servers:
        return
    names = rng.sample(servers, rng.randint(1, len(servers)))
    seconds = rng.random() * STOPPED_S_MAX
    notes.append(f"kill {', '.join(names)} of the registry for {seconds:.1f} s")
    for name in names:
        cluster.registry.kill(name)
    time.sleep(seconds)
    for name in names:
        cluster.registry.start(name)


def cut_registry(cluster, rng, notes):
    servers = cluster.registry.names
    if not servers:
        return
    name, server = rng.choice(cluster.names), rng.choice(servers)
    seconds = rng.random() * STOPPED_S_MAX
    notes.append(f"cut {name} off from {server} for {seconds:.1f} s")
    cluster.net.cut_one_way(name, server)
    cluster.net.cut_one_way(server, name)
    time.sleep(seconds)
    cluster.net.heal()


def stop_host(cluster, rng, notes):
    name = rng.choice(cluster.members())
    seconds = rng.random() * STOPPED_S_MAX
    notes.append(f"stop {name} for {seconds:.1f} s")
    pids = cluster.stop_member(name)
    time.sleep(seconds)
    cluster.continue_member(pids)


def cut_host(cluster, rng, notes):
    if cluster.is_clear:
        return
    name, other = rng.sample([name for name in cluster.members() if name in cluster.net.names], 2)
    seconds = rng.random() * STOPPED_S_MAX
    if rng.random() < 0.5:
        notes.append(f"cut {name} for {seconds:.1f} s")
        cluster.net.cut(name)
    else:
        notes.append(f"cut from {name} to {other} for {seconds:.1f} s")
        cluster.net.cut_one_way(name, other)
    time.sleep(seconds)
    cluster.net.heal()


def slow_down(cluster, rng, notes):
    if cluster.is_clear:
        return
    choices = {"delay_ms": [0, 2, 30], "loss": [0, 0.01], "mbit": [0, 0, 20]}
    settings = {name: rng.choice(values) for name, values in choices.items()}
    notes.append(f"network {settings}")
    cluster.net.set(**settings)


HARMS = (kill_worker, kill_worker, kill_agent, kill_run, stop_host, cut_host, slow_down)
HARMS_OF_SEVERAL = (*HARMS, kill_run, stop_run, kill_registry, cut_registry)


def one_round(world, notes):
    """A round; `notes` gets what was done, for the report of a failure."""
    rng = world.rng
    name = rng.choice(world.query_names())
    hosts, processes = rng.choice([2, 3, 3]), rng.choice([1, 1, 2])
    settings = {"parallelism": rng.randint(1, 6), "chunk_rows": rng.randint(16, 2000),
                "checkpoint_interval": rng.choice(CHECKPOINTS)}
    settings["workers"] = max(hosts * processes, settings["parallelism"])
    if rng.random() < 0.5:
        cluster, harms = several(world, notes, hosts, processes, settings), HARMS_OF_SEVERAL
    else:
        cluster, harms = alone(world, notes, hosts, processes, settings), HARMS
    notes.insert(0, name)
    cluster.start(world.query(name), RUN_S)
    for _ in range(rng.randint(1, HARMS_MAX)):
        time.sleep(rng.random() * QUERY_S_MAX)
        if not cluster.revive():
            break
        rng.choice(harms)(cluster, rng, notes)
    if not cluster.is_clear:
        cluster.net.set(delay_ms=0, loss=0, mbit=0)
    reports = cluster.finish()
    for report in reports if isinstance(reports, list) else [reports]:
        notes.append(f"{report['restarts']} restarts, fenced {report.get('fenced')}")


def several(world, notes, hosts, processes, settings):
    """Several orchestrators, with either registry."""
    rng = world.rng
    try:
        registry = ZooKeeper(world, rng.choice([1, 3])) if rng.random() < 0.6 else Sqlite(world.folder)
    except Skipped:
        registry = Sqlite(world.folder)
    count = rng.choice([2, 2, 3])
    servers = f", {len(registry.names)} servers" if registry.names else ""
    notes.append(f"{count} orchestrators, {registry.kind}{servers}, {hosts} hosts, "
                 f"{processes} processes each, {settings}")
    return Orchestrated(world, hosts, count, registry, processes=processes, settings=settings)


def alone(world, notes, hosts, processes, settings):
    """One orchestrator."""
    rng = world.rng
    is_home_used = rng.random() < 0.5
    home = "one" if is_home_used else "not"
    notes.append(f"{hosts} hosts, home is {home}, {processes} processes each, {settings}")
    clocks = {} if world.options.clear else {"h2": rng.choice([0, 86_400])}
    return world.cluster(
        hosts, clocks=clocks, processes=processes, is_home_used=is_home_used, settings=settings)


assert one_round.__name__ not in SCENARIOS
