"""Networks that are cut, slow, or lose packets."""

import time

from cluster import restarts_at_least
from host import Failed, wait_for
from world import scenario

QUERY = "quakes.tumble1h_per_net"
WIDE_QUERY = "nexmark_ooo500.q9"
RUN_S = 12
CUT_S = 8


def cut(world, begin):
    """Cuts a running cluster in a way, and heals it when the cut host has ended its processes unasked."""
    cluster = world.cluster(3, settings={"checkpoint_interval": "100 ms"})
    cluster.need_network()
    cluster.start(world.query(QUERY), RUN_S)
    cluster.until_running()
    before = set(cluster.workers("h3"))
    begun = time.monotonic()
    begin(cluster.net)
    wait_for("a host that is cut off ends its processes", lambda: not set(cluster.workers("h3")) & before)
    gone_s = time.monotonic() - begun
    time.sleep(max(0.0, CUT_S - gone_s))
    cluster.net.heal()
    report = cluster.finish()
    restarts_at_least(report, 1)
    return f"its processes ended after {gone_s:.1f} s; {report['restarts']} restarts"


@scenario
def cut_a_host_and_heal(world):
    """A host is cut off from all: its processes end by themselves, and it joins again."""
    return cut(world, lambda net: net.cut("h3"))


@scenario
def cut_what_an_agent_sends(world):
    """The orchestrator does not hear an agent that hears it."""
    return cut(world, lambda net: net.cut_one_way("h3", "h1"))


@scenario
def cut_what_an_agent_hears(world):
    """An agent does not hear the orchestrator, which hears it."""
    return cut(world, lambda net: net.cut_one_way("h1", "h3"))


@scenario
def cut_two_agents_from_each_other(world):
    """Two agents lose each other, not the orchestrator: the query comes to its end once that heals."""
    cluster = world.cluster(3, settings={"checkpoint_interval": "100 ms"})
    cluster.need_network()
    cluster.start(world.query(QUERY), RUN_S)
    cluster.until_running()
    cluster.net.cut_one_way("h2", "h3")
    cluster.net.cut_one_way("h3", "h2")
    time.sleep(CUT_S)
    cluster.net.heal()
    return f"{cluster.finish()['restarts']} restarts"


@scenario
def cut_for_a_moment(world):
    """Cuts of a second each lose nobody: packets are sent again."""
    cluster = world.cluster(3, settings={"checkpoint_interval": "100 ms"})
    cluster.need_network()
    cluster.start(world.query(QUERY), RUN_S)
    cluster.until_running()
    for name in ("h2", "h3"):
        cluster.net.cut(name)
        time.sleep(1)
        cluster.net.heal()
        time.sleep(2)
    never_lost(cluster.finish())


@scenario
def slow_and_lossy(world):
    """50 ms ± 20 each way and 1 % loss: slower, nobody is lost."""
    cluster = world.cluster(3)
    cluster.need_network()
    cluster.net.set(delay_ms=50, jitter_ms=20, loss=0.01)
    cluster.start(world.query(QUERY), RUN_S)
    report = cluster.finish()
    never_lost(report)
    return f"latency p50 {report['latency_ms']['p50']:.0f} ms; packets {cluster.net.counts()}"


@scenario
def narrow(world):
    """10 Mbit/s from each host: back-pressure, and nobody is lost while queues are full."""
    cluster = world.cluster(3)
    cluster.need_network()
    cluster.net.set(mbit=10)
    # As fast as it goes, and each bid goes to the host of its auction.
    cluster.start(world.query(WIDE_QUERY))
    never_lost(cluster.finish())


def never_lost(report):
    if report["restarts"]:
        raise Failed(f"{report['restarts']} restarts: hosts were lost that were not")
