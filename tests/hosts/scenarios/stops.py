"""Processes that stand still, and go on as if nothing had been."""

import signal
import time

from cluster import fenced, restarts_at_least
from host import Failed, wait_for
from queries import Crossing
from world import scenario

QUERY = "apache.session30min_per_ip"
RUN_S = 12
# Longer than the lease of a host (3 s), so that others have begun without it.
STOPPED_S = 10


@scenario
def stop_a_host(world):
    """SIGSTOP of everything on a host for 10 s, then SIGCONT: it ends what it had, and joins again."""
    cluster = world.cluster(3, settings={"checkpoint_interval": "100 ms"})
    cluster.start(world.query(QUERY), RUN_S)
    cluster.until_running()
    pids = cluster.stop_member("h3")
    time.sleep(STOPPED_S)
    cluster.continue_member(pids)
    report = cluster.finish()
    restarts_at_least(report, 1)
    return f"{report['restarts']} restarts, fenced {report['fenced']}"


@scenario
def an_old_incarnation_goes_on(world):
    """A host stops, another takes its place; then its worker processes go on, and nobody there ends them."""
    settings = {"checkpoint_interval": "100 ms"}
    cluster = world.cluster(2, is_home_used=False, others=["h4"], settings=settings)
    cluster.need_network()
    cluster.start(Crossing(), RUN_S + STOPPED_S)
    cluster.until_running()
    cluster.start_agent("h4")
    workers = cluster.workers("h3")
    pids = cluster.stop_member("h3")
    time.sleep(STOPPED_S)
    cluster.continue_member(workers)
    # Their links look for their peers; the agent, which would end them, still stands.
    time.sleep(STOPPED_S / 2)
    cluster.continue_member(pids)
    report = cluster.finish()
    restarts_at_least(report, 1)
    if fenced(report) == 0:
        raise Failed("nothing of the stopped host was refused: this proves nothing")
    return f"{report['restarts']} restarts, fenced {report['fenced']}"


@scenario
def stop_the_orchestrator(world):
    """SIGSTOP of the orchestrator alone: agents end its processes, and join again when it is back."""
    cluster = world.cluster(3, is_home_used=False, settings={"checkpoint_interval": "100 ms"})
    cluster.start(world.query(QUERY), RUN_S)
    cluster.until_running()
    before = {name: cluster.workers(name) for name in cluster.agents}
    cluster.run.send(signal.SIGSTOP)
    for name, pids in before.items():
        wait_for(f"the lease of {name} ends", lambda: not set(cluster.workers(name)) & set(pids))
    time.sleep(STOPPED_S / 2)
    cluster.run.send(signal.SIGCONT)
    report = cluster.finish()
    restarts_at_least(report, 1)
    return f"{report['restarts']} restarts"


@scenario
def stop_a_host_for_a_moment(world):
    """SIGSTOP of a host for a second: nobody is lost."""
    cluster = world.cluster(3, settings={"checkpoint_interval": "100 ms"})
    cluster.start(world.query(QUERY), RUN_S)
    cluster.until_running()
    for name in ("h2", "h3"):
        pids = cluster.stop_member(name)
        time.sleep(1)
        cluster.continue_member(pids)
        time.sleep(1)
    report = cluster.finish()
    if report["restarts"]:
        raise Failed(f"{report['restarts']} restarts: hosts were lost that were not")
