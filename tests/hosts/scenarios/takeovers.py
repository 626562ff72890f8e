"""Several orchestrators of one query: the leader dies, stands still, is cut off, or is told to stop."""

import random
import signal
import time

from cluster import fenced
from host import Failed, is_alive, wait_for
from orchestrators import Orchestrated
from queries import Crossing, Late
from registries import ZooKeeper
from world import scenario

QUERY = "apache.tumble30s_per_ip"
RUN_S = 15
SETTINGS = {"checkpoint_interval": "100 ms"}
# Longer than the lease of a host (3 s), and than a session of ZooKeeper (4 to 6 s).
AWAY_S = 9
KILLS = 5
# The least that a kill leaves to be read again by its successor, in checkpoints.
APART = 2


def start(world, registry=None, run_s=RUN_S, query=None, **more):
    cluster = Orchestrated(world, registry=registry, settings=SETTINGS, **more)
    cluster.start(query or world.query(QUERY), run_s)
    cluster.until_running()
    return cluster


def taken_over(cluster, reports, by="o2", term=2):
    """Whether another one has led to the end, from a checkpoint."""
    if not any(report["restored_from"] for report in reports):
        raise Failed(f"{by} began from nothing\n{cluster.story()}")
    joined = [agent.said() for agent in cluster.processes_of_all() if "agent" in agent.name]
    if not any(f"joined {by} " in said and f"term {term}" in said for said in joined):
        raise Failed(f"no agent has joined {by} in term {term}\n{cluster.story()}")
    return f"resumed from checkpoint {max(report['restored_from'] or 0 for report in reports)}"


def never_restarted(cluster, reports):
    """One incarnation from the beginning to the end, under whatever terms."""
    restarts = [report["restarts"] for report in reports]
    if len(reports) != 1 or any(restarts) or reports[0]["restored_from"] is not None:
        raise Failed(f"{len(reports)} runs with {restarts} restarts\n{cluster.story()}")


def killed_leader(world, registry=None):
    cluster = start(world, registry)
    orphans = [pid for name in cluster.agents for pid in cluster.workers(name)]
    cluster.kill_leader("o1")
    wait_for("workers end with their orchestrator", lambda: not any(is_alive(pid) for pid in orphans))
    cluster.until_leads("o2")
    return taken_over(cluster, cluster.finish())


@scenario
def kill_the_leader_with_sqlite(world):
    """kill -9 of the orchestrator that leads: the other one resumes from the last checkpoint."""
    return killed_leader(world)


@scenario
def kill_the_leader_with_zookeeper(world):
    """The same with ZooKeeper: its host lives, so nobody waits for the session's end."""
    return killed_leader(world, ZooKeeper(world))


@scenario
def kill_leaders_at_any_moment(world):
    """kill -9 of whoever leads at random moments, also between a checkpoint and its commit; each is started
    again, and stands by."""
    settings = {"checkpoint_interval": "20 ms"}
    cluster = Orchestrated(world, settings=settings)
    cluster.start(world.query(QUERY), RUN_S)
    cluster.until_running()
    rng = random.Random(world.rng.random())
    terms = []
    for _ in range(KILLS):
        leader = leading(cluster)
        if leader is None:
            break
        terms.append(leader["term"])
        time.sleep(rng.random() / 2)
        cluster.harm(cluster.runs[leader["name"]], signal.SIGKILL)
        cluster.revive()
        cluster.until_more_checkpoints(APART)
    reports = cluster.finish()
    if terms != sorted(set(terms)) or len(terms) < 2:
        raise Failed(f"terms {terms}")
    return f"terms {terms}; {len(reports)} reports"


def leading(cluster):
    """What the leader says; nothing when the query is over."""
    found = []

    def look():
        status = cluster.status()
        if status:
            found.append(status)
        return status or not cluster.revive()

    wait_for(lambda: f"a leader\n{cluster.story()}", look, every_s=0.05)
    return found[0] if found else None


@scenario
def lose_the_leaders_host(world):
    """The leader's host is gone, and nobody is told: the other one leads when its session has timed out."""
    cluster = start(world, ZooKeeper(world))
    cluster.is_revived = False
    cluster.lose_host("o1")
    cluster.until_leads("o2")
    return taken_over(cluster, cluster.finish())


@scenario
def cut_the_leader_off_from_all(world):
    """The leader is cut off from all, and the cut heals: the other one leads, and it stands by."""
    cluster = start(world, ZooKeeper(world), run_s=RUN_S + AWAY_S)
    cluster.need_network()
    cluster.net.cut("o1")
    cluster.until_leads("o2")
    cluster.until_more_checkpoints()
    cluster.net.heal("o1")
    wait_for(lambda: f"o1 to stand by\n{cluster.story()}",
             lambda: "o1" in (cluster.status_of("o2") or {"standbys": ["o1"]})["standbys"], every_s=0.1)
    return taken_over(cluster, cluster.finish())


@scenario
def cut_the_leader_off_from_zookeeper(world):
    """The leader loses the registry only: the query goes on, and one of both leads it to its end."""
    cluster = start(world, ZooKeeper(world), run_s=RUN_S + AWAY_S)
    cluster.need_network()
    cluster.net.cut_one_way("o1", "z1")
    cluster.net.cut_one_way("z1", "o1")
    time.sleep(AWAY_S)
    cluster.net.heal()
    reports = cluster.finish()
    restarts = [report["restarts"] for report in reports]
    if any(restarts):
        raise Failed(f"restarts: {restarts}\n{cluster.story()}")
    return f"{len(reports)} runs"


@scenario
def cut_the_leader_off_from_agents(world):
    """The leader loses all agents, and keeps the registry: the query waits, and goes on when that heals."""
    cluster = start(world, ZooKeeper(world))
    cluster.need_network()
    before = {pid for name in cluster.agents for pid in cluster.workers(name)}
    for name in cluster.agents:
        cluster.net.cut_one_way("o1", name)
        cluster.net.cut_one_way(name, "o1")
    wait_for("agents without a leader end their processes",
             lambda: not before & {pid for name in cluster.agents for pid in cluster.workers(name)})
    time.sleep(AWAY_S / 2)
    cluster.net.heal()
    reports = cluster.finish()
    return f"{[report['restarts'] for report in reports]} restarts"


@scenario
def stop_the_leader(world):
    """SIGSTOP of the leader until another one leads, then SIGCONT: it stands by."""
    cluster = start(world, ZooKeeper(world), run_s=RUN_S + AWAY_S)
    old = cluster.runs["o1"]
    old.send(signal.SIGSTOP)
    cluster.until_leads("o2")
    cluster.until_more_checkpoints()
    old.send(signal.SIGCONT)
    wait_for(lambda: f"o1 to stand by\n{cluster.story()}",
             lambda: "o1" in (cluster.status_of("o2") or {"standbys": ["o1"]})["standbys"], every_s=0.1)
    return taken_over(cluster, cluster.finish())


@scenario
def an_old_leaders_host_goes_on(world):
    """The leader and a host of workers stop; when others have taken their places those workers go on, and
    what they send is refused."""
    cluster = Orchestrated(world, hosts=2, registry=ZooKeeper(world), others=["h3"], settings=SETTINGS)
    cluster.need_network()
    cluster.start(Crossing(), RUN_S + 2 * AWAY_S)
    cluster.until_running()
    workers = cluster.workers("h2")
    pids = cluster.stop_member("h2") + cluster.stop_member("o1")
    # Not before: an agent that runs nothing stays with a leader that is stopped.
    cluster.start_agent("h3")
    cluster.until_leads("o2")
    cluster.until_more_checkpoints()
    cluster.continue_member(workers)
    time.sleep(AWAY_S / 2)
    cluster.continue_member(pids)
    reports = cluster.finish()
    # Links of another run, which shows another token, count among those that were turned away.
    refused = sum(fenced(report) + report["refused"]["links"] for report in reports)
    if refused == 0:
        raise Failed("nothing of the old incarnation was refused: this proves nothing")
    return taken_over(cluster, reports) + f"; {refused} late connections refused"


@scenario
def kill_one_zookeeper_server(world):
    """kill -9 of one of three servers, of the leading one, then it comes back: the query does not restart."""
    registry = ZooKeeper(world, 3)
    cluster = start(world, registry)
    leads = next(name for name, role in registry.roles().items() if role == "leader")
    registry.kill(leads)
    cluster.until_more_checkpoints(10)
    registry.start(leads)
    registry.wait()
    reports = cluster.finish()
    never_restarted(cluster, reports)
    return f"the leading server was {leads}"


def without_a_quorum(world, seconds, run_s):
    """An outage of the registry; returns the cluster, and the leader's term before it."""
    registry = ZooKeeper(world, 3)
    cluster = start(world, registry, run_s=run_s)
    before = cluster.until_leads("o1")["term"]
    for name in ("z1", "z2"):
        registry.kill(name)
    time.sleep(seconds)
    cluster.until_more_checkpoints()
    for name in ("z1", "z2"):
        registry.start(name)
    registry.wait()
    return cluster, before


def until_another_term(cluster, before):
    """Waits until the leader leads another term, after its session has timed out."""
    term = lambda: ((cluster.status_of("o1") or {}).get("term", 0) > before) or cluster.is_concluded()
    wait_for(lambda: f"another term of o1\n{cluster.story()}", term, every_s=0.2)
    return cluster.until_leads("o1")["term"]


@scenario
def lose_the_quorum_for_a_moment(world):
    """kill -9 of two of three servers for 3 s: the query does not restart."""
    cluster, before = without_a_quorum(world, 3, RUN_S)
    never_restarted(cluster, cluster.finish())
    return f"term {before}"


@scenario
def lose_the_quorum_for_longer(world):
    """kill -9 of two of three servers for 20 s, longer than any session: the query does not restart."""
    cluster, before = without_a_quorum(world, 20, RUN_S + 40)
    after = until_another_term(cluster, before)
    never_restarted(cluster, cluster.finish())
    return f"term {before}, then {after}"


@scenario
def kill_the_leader_after_an_outage(world):
    """kill -9 of the leader after an outage of the registry for 12 s: the other one leads."""
    cluster, before = without_a_quorum(world, 12, RUN_S + 40)
    term = until_another_term(cluster, before)
    cluster.kill_leader("o1")
    cluster.until_leads("o2")
    return taken_over(cluster, cluster.finish(), term=term + 1)


@scenario
def wait_for_the_registry_before_the_first_claim(world):
    """A leader that loses the registry before the query starts does not claim the store until it is back:
    another one may lead by then."""
    cluster = Orchestrated(world, orchestrators=1, registry=ZooKeeper(world), settings=SETTINGS)
    cluster.start(world.query(QUERY), RUN_S, agents=False)
    cluster.registry.kill("z1")
    for name in cluster.agent_names():
        cluster.start_agent(name)
    wait_for(lambda: f"agents\n{cluster.story()}",
             lambda: all("joined o1" in agent.said() for agent in cluster.agents.values()))
    time.sleep(AWAY_S)
    if cluster.checkpoints():
        raise Failed(f"the store was claimed without the registry\n{cluster.story()}")
    cluster.registry.start("z1")
    cluster.registry.wait()
    never_restarted(cluster, cluster.finish())


def stopped_leader(world, registry=None):
    query = Late()
    cluster = start(world, registry, query=query)
    cluster.is_revived = False
    run = cluster.runs["o1"]
    cluster.harm(run, signal.SIGTERM)
    if run.wait() != 0:
        raise Failed(f"o1 ended with {run.code}\n{cluster.story()}")
    reports = cluster.finish()
    counts = {name: sum(report[name] for report in reports) for name in ("rows_in", "rows_late")}
    expected = {"rows_in": query.ROWS, "rows_late": query.rows_late}
    if counts != expected or len(reports) != 2:
        raise Failed(f"{counts}, expected {expected}, in {len(reports)} runs\n{cluster.story()}")
    return f"{[report['rows_in'] for report in reports]} rows; " + taken_over(cluster, reports)


@scenario
def tell_the_leader_to_stop_with_sqlite(world):
    """SIGTERM of the leader: the query is saved, the other one goes on, and nothing is read twice."""
    return stopped_leader(world)


@scenario
def tell_the_leader_to_stop_with_zookeeper(world):
    """The same with ZooKeeper."""
    return stopped_leader(world, ZooKeeper(world))


@scenario
def drain_a_host_after_a_takeover(world):
    """A host is drained of a query that another orchestrator has taken over: nothing is read twice then."""
    cluster = Orchestrated(world, hosts=2, registry=ZooKeeper(world), others=["h3"], settings=SETTINGS)
    cluster.start(world.query(QUERY), RUN_S)
    cluster.start_agent("h3")
    cluster.until_running_on(2)
    cluster.kill_leader("o1")
    cluster.until_leads("o2")
    cluster.until_more_checkpoints()
    drained = cluster.ask("drain", "h1")
    if drained.code != 0 and not cluster.is_concluded():
        raise Failed(f"drain: {drained.said()}\n{cluster.story()}")
    reports = cluster.finish()
    if any(report["restarts"] for report in reports):
        raise Failed(f"restarts\n{cluster.story()}")
    return f"{drained.said().strip()}; {[report['rescales'] for report in reports]} rescales"


@scenario
def agents_flap_while_leaders_change(world):
    """Agents are killed one after the other, and the leader in between."""
    cluster = start(world, ZooKeeper(world), run_s=RUN_S)
    for number in range(6):
        if cluster.is_concluded():
            break
        if number == 3:
            cluster.harm(cluster.runs["o1"], signal.SIGKILL)
        else:
            cluster.harm(cluster.agents[f"h{number % 2 + 1}"], signal.SIGKILL)
        time.sleep(0.7)
        cluster.revive()
    reports = cluster.finish()
    return f"{[report['restarts'] for report in reports]} restarts"


