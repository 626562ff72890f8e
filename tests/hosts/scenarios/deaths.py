"""Processes that are killed."""

import signal

from cluster import restarts_at_least
from host import Failed, is_alive, kill, wait_for
from world import scenario

QUERY = "apache.tumble30s_per_ip"
RUN_S = 8


@scenario
def kill_a_worker_process(world):
    """kill -9 of a worker process of an agent, then of one of home: the same hosts resume."""
    cluster = world.cluster(3, processes=2, settings={"checkpoint_interval": "100 ms"})
    cluster.start(world.query(QUERY), RUN_S)
    cluster.until_running()
    for name in ("h3", "h1"):
        if not cluster.run.is_running():
            break
        pid = world.rng.choice(wait_for(f"workers on {name}", lambda: cluster.workers(name)))
        kill(pid)
        wait_for("a killed process is gone", lambda: not is_alive(pid))
    report = cluster.finish()
    restarts_at_least(report, 1)
    return f"{report['restarts']} restarts"


@scenario
def kill_an_agent(world):
    """kill -9 of an agent: its worker processes end with it; started again it joins again."""
    cluster = world.cluster(3, processes=2, settings={"checkpoint_interval": "100 ms"})
    cluster.start(world.query(QUERY), RUN_S)
    cluster.until_running()
    agent = cluster.agents["h2"]
    orphans = agent.workers()
    cluster.harm(agent, signal.SIGKILL)
    agent.wait()
    wait_for("workers end with their agent", lambda: not any(is_alive(pid) for pid in orphans))
    report = cluster.finish()
    restarts_at_least(report, 1)
    return f"{report['restarts']} restarts"


@scenario
def kill_a_host(world):
    """kill -9 of everything on a host at once, as a power failure does but for the end of its connections."""
    cluster = world.cluster(3, settings={"checkpoint_interval": "100 ms"})
    cluster.start(world.query(QUERY), RUN_S)
    cluster.until_running()
    # The network first: nobody is told.
    cluster.need_network()
    cluster.net.cut("h3")
    pids = cluster.member_pids("h3")
    cluster.harmed.add(cluster.agents["h3"])
    for pid in pids:
        kill(pid)
    cluster.agents["h3"].wait()
    cluster.net.heal("h3")
    report = cluster.finish()
    restarts_at_least(report, 1)
    return f"{report['restarts']} restarts"


@scenario
def kill_the_orchestrator(world):
    """kill -9 of the orchestrator: agents end the processes of its incarnation; the same command goes on."""
    cluster = world.cluster(3, settings={"checkpoint_interval": "100 ms"})
    cluster.start(world.query(QUERY), RUN_S)
    cluster.until_running()
    orphans = [pid for name in ("h1", "h2", "h3") for pid in cluster.workers(name)]
    cluster.harm(cluster.run, signal.SIGKILL)
    cluster.run.wait()
    wait_for("workers end with their orchestrator", lambda: not any(is_alive(pid) for pid in orphans))
    report = cluster.finish()
    if report["restored_from"] is None:
        raise Failed("the second run began from nothing")
    return f"resumed from checkpoint {report['restored_from']}"
