"""Strangers at the orchestrator's port and at the agents' data ports: they learn nothing and stop nothing."""

import json
import subprocess

from cluster import PORT
from host import Failed, memory_max, wait_for
from world import scenario

QUERY = "nycflights.weather_tumble1d_per_origin"
RUN_S = 60
# What strangers may cost in memory, altogether.
MEMORY_BYTES_MAX = 20 << 20


def running(world):
    """A cluster that runs for a while, with a stranger's host beside it."""
    cluster = world.cluster(3, others=["stranger"], settings={"checkpoint_interval": "500 ms"})
    cluster.need_network()
    cluster.start(world.query(QUERY), RUN_S)
    cluster.until_running()
    return cluster


def doors(cluster):
    """The orchestrator's port, and a data port of each host."""
    found = [(cluster.home().address, PORT)]
    for name in ("h1", *cluster.agents):
        host = cluster.net[name]
        ports = [port for _, port in host.listening() if port != PORT]
        if not ports and name != "h1":
            raise Failed(f"{name} listens nowhere: {host.listening()}")
        found += [(host.address, port) for port in ports[:1]]
    return found


def visit(world, kinds):
    """Each kind at each door, one after the other, while rows flow."""
    cluster = running(world)
    processes = [cluster.run, *cluster.agents.values()]
    pids = [pid for process in processes for pid in process.tree()]
    before = {pid: memory_max(pid) for pid in pids}
    said, refused = [], 0
    for kind in kinds:
        for address, port in doors(cluster):
            seen = world.seen(world.strangers(cluster.net["stranger"], kind, address, port))
            said.append(f"{kind} at {address}:{port}: {seen}")
            refused += seen["refused"]
            if seen["bytes"]:
                raise Failed(f"a stranger was told something: {said[-1]}")
            if seen["connected"] == 0:
                raise Failed(f"nothing was tried: {said[-1]}")
    grown = {pid: memory_max(pid) - size for pid, size in before.items() if pid in cluster.all_pids()}
    report = cluster.finish()
    if report["restarts"]:
        raise Failed(f"strangers have caused {report['restarts']} restarts\n" + "\n".join(said))
    # Rows cost memory too while strangers are there; the orchestrator has none.
    if grown.get(cluster.run.pid, 0) > MEMORY_BYTES_MAX:
        raise Failed(f"memory has grown by {grown}\n" + "\n".join(said))
    stranger = cluster.net["stranger"].address
    if stranger not in cluster.run.said():
        raise Failed(f"nobody was told of the stranger {stranger}:\n{cluster.run.said()}")
    return f"memory grew by at most {max(grown.values(), default=0) >> 20} MB; " + "; ".join(said)


@scenario
def ten_thousand_connections(world):
    """Ten thousand connections to each door, 500 at a time, which say nothing and leave."""
    return visit(world, ["many"])


@scenario
def strangers_without_manners(world):
    """Silence, HTTP, half a greeting and random bytes: each is ended within seconds, with nothing said."""
    return visit(world, ["silent", "http", "half", "random"])


@scenario
def strangers_with_tls(world):
    """A client that speaks TLS, but has no secret."""
    return visit(world, ["tls"])


@scenario
def a_session_that_is_replayed(world):
    """What an agent has said is said again, whole and in parts."""
    cluster = world.cluster(2, others=["h3"], settings={"checkpoint_interval": "500 ms"})
    cluster.need_network()
    recording = world.folder / "recording"
    relay = world.strangers(cluster.net["h3"], "record", cluster.home().address, PORT, recording)
    wait_for("the relay", lambda: "ready" in relay.output())
    cluster.start(world.query(QUERY), RUN_S / 2, agents=False)
    join(cluster, "h2", cluster.net["h3"].address)
    cluster.until_running()
    wait_for("a recording", lambda: recording.exists() and recording.stat().st_size)
    seen = world.seen(world.strangers(cluster.net["h3"], "replay", cluster.home().address, PORT, recording))
    if seen["bytes"] and seen["ended"] < seen["connected"]:
        raise Failed(f"a replayed session goes on: {seen}")
    report = cluster.finish()
    if report["restarts"]:
        raise Failed(f"a replayed session has caused {report['restarts']} restarts: {seen}")
    return f"{seen}"


@scenario
def a_relay_in_the_middle(world):
    """Somebody ends TLS and begins it again: the agent does not join, and nothing is read that matters."""
    cluster = world.cluster(2, others=["h3"])
    cluster.need_network()
    certificate = world.folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
               "-days", "1", "-subj", "/CN=h1", "-keyout", certificate, "-out", f"{certificate}.crt"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    with open(certificate, "ab") as file:
        file.write((world.folder / "certificate.pem.crt").read_bytes())
    relay = world.strangers(cluster.net["h3"], "middle", cluster.home().address, PORT, certificate)
    wait_for("the relay", lambda: "ready" in relay.output())
    cluster.start(world.query(QUERY), 2, agents=False)
    join(cluster, "h2", cluster.net["h3"].address)
    wait_for("the relay was used", lambda: len(relay.output().splitlines()) > 1)
    # It waits for two hosts for a minute, and has only itself.
    if cluster.run.wait() != 1:
        raise Failed(f"the run ended with {cluster.run.code}, and a relay in the middle\n{cluster.story()}")
    said = [json.loads(line) for line in relay.output().splitlines()[1:]]
    secret = world.secret().read_text().split()
    if any(word in relay.output() for word in secret):
        raise Failed("the relay has seen the secret")
    cluster.check_ends()
    return f"the relay saw {said[:4]}"


def join(cluster, name, address):
    """Starts an agent that joins at another address than the orchestrator's."""
    command = [cluster.world.program, "worker", "--join", f"{address}:{PORT}", "--name", name]
    command += cluster.secret()
    cluster.agents[name] = cluster.net[name].start(f"agent-{name}", command, folder=cluster.folder)
