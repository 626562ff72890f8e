"""What a user gets for bad input: an exit code, and words that say what to do."""

import os
import signal

from cluster import PORT
from host import Failed, Skipped, wait_for
from world import scenario

QUERY = "quakes.tumble1h_per_net"
RUN_S = 30
# `run` waits a minute for its hosts.
WAIT_S = 90


def check(process, code, *fragments, limit_s=WAIT_S):
    """A process ends with a code, and says each fragment after 'error:'."""
    process.wait(limit_s)
    said = process.said()
    if process.code != code:
        raise Failed(f"{process.name}: exit code {process.code}, and not {code}\n{said}")
    error = said.partition("error: ")[2]
    missing = [fragment for fragment in fragments if fragment not in error]
    if missing or not error or "panicked" in said:
        raise Failed(f"{process.name} does not say {missing}:\n{said}")


class Single:
    """Commands on one host of a network, that end before they join anything."""

    def __init__(self, world):
        self.world = world
        self.host = world.net(["h1"], kind="bridge")["h1"]
        self.file = world.query(QUERY).write(world.folder, world.data)
        self.address = f"{self.host.address}:{PORT}"

    def run(self, *more):
        command = [self.world.program, "run", self.file, "--hosts", "2", *more]
        return self.host.start("run", command, folder=self.world.folder)

    def worker(self, *more):
        command = [self.world.program, "worker", "--join", self.address, *more]
        return self.host.start("worker", command, folder=self.world.folder)

    def key(self, name, content, mode=0o600):
        path = self.world.folder / name
        path.touch(mode=mode)
        path.write_text(content)
        os.chmod(path, mode)
        return path


def need_network(world):
    if world.options.clear:
        raise Skipped("needs a network between hosts, and a secret: not in clear")


@scenario
def no_secret_beyond_loopback(world):
    """Without a secret, nothing listens or joins beyond loopback."""
    need_network(world)
    single = Single(world)
    check(single.run("--listen", "0.0.0.0:7070"), 2, "anybody", "slackwater key > cluster.key")
    check(single.run("--listen", single.address), 2, "slackwater key > cluster.key")
    check(single.worker(), 2, "--secret")


@scenario
def secrets_that_are_none(world):
    """A secret that is missing, empty, short, or readable by others is refused by both sides."""
    single = Single(world)
    good = world.secret().read_text()
    cases = [
        (world.folder / "none.key", "none.key"),
        (single.key("empty.key", ""), "empty.key"),
        (single.key("short.key", good.strip()[:8] + "\n"), "short.key"),
        (single.key("text.key", "this is no key\n"), "text.key"),
        (single.key("open.key", good, 0o644), "chmod 600"),
        (single.key("group.key", good, 0o640), "chmod 600"),
    ]
    for path, fragment in cases:
        check(single.run("--listen", single.address, "--secret", path), 2, fragment)
        check(single.worker("--secret", path), 2, fragment)
    # On a command line everybody could read it.
    process = single.worker("--secret", good.strip())
    check(process, 2)
    if good.strip() in process.said():
        raise Failed("the message repeats the secret")


@scenario
def command_lines_that_are_wrong(world):
    """Addresses, ports, names and cores that can't be."""
    single = Single(world)
    key = ["--secret", world.secret()]
    for arguments in (["--listen", "nowhere"], ["--listen", f"{single.host.address}"], ["--hosts", "two"],
                      ["--listen", "10.99.0.1:7070"], ["--listen", single.address, "--hosts", "0"]):
        process = single.run(*arguments, *key)
        if process.wait(WAIT_S) not in (1, 2) or "error" not in process.said():
            raise Failed(f"{arguments}: {process.code}\n{process.said()}")
    for arguments in (["--ports", "7199-7100"], ["--ports", "0"], ["--ports", "70000-70001"],
                      ["--cores", "x"], ["--cores", "4000-4001"], ["--address", "nowhere"],
                      ["--name", ""], ["--name", "a b"], ["--name", "h" * 300]):
        process = single.worker(*arguments, *key)
        if process.wait(WAIT_S) not in (1, 2) or "error" not in process.said():
            raise Failed(f"{arguments}: {process.code}\n{process.said()}")


@scenario
def a_port_that_is_taken(world):
    """--listen at a port that another process has."""
    single = Single(world)
    taker = single.host.start("taker", ["python3", "-c", "import socket, time\n"
                                        f"server = socket.create_server(('0.0.0.0', {PORT}))\n"
                                        "print('ready', flush=True)\ntime.sleep(600)"])
    wait_for("the taker", lambda: "ready" in taker.output())
    check(single.run("--listen", single.address, "--secret", world.secret()), 1, str(PORT))


@scenario
def fewer_hosts_than_asked(world):
    """After 60 s `run` says who is there and who is not."""
    cluster = world.cluster(3)
    cluster.start(world.query(QUERY), RUN_S, agents=False)
    cluster.start_agent("h2")
    check(cluster.run, 1, "h2", "--hosts")


@scenario
def another_secret(world):
    """An agent with another secret ends and says so; the orchestrator says one line, and goes on waiting."""
    need_network(world)
    cluster = world.cluster(2)
    cluster.start(world.query(QUERY), 2, agents=False)
    wait_for("the orchestrator listens", lambda: any(port == PORT for _, port in cluster.home().listening()))
    command = [world.program, "worker", "--join", cluster.address(), "--name", "h2"]
    command += ["--secret", world.secret("other.key")]
    check(cluster.net["h2"].start("other", command), 1, cluster.address(), "another secret")
    if cluster.net["h2"].address not in cluster.run.said():
        raise Failed(f"the orchestrator does not name the agent\n{cluster.run.said()}")
    cluster.start_agent("h2")
    cluster.finish()


@scenario
def a_name_that_is_taken(world):
    """A second agent with a name is told the address of the first, which goes on, and waits for its end."""
    cluster = world.cluster(3, others=["other"])
    cluster.start(world.query(QUERY), RUN_S)
    cluster.until_running()
    command = [world.program, "worker", "--join", cluster.address(), *cluster.secret(), "--name", "h2"]
    other = cluster.net["other"].start("other", command)
    told = f"has a host 'h2' at {cluster.net['h2'].address}"
    wait_for(lambda: f"'{told}'\n{other.said()}", lambda: told in other.said(), WAIT_S)
    if cluster.finish()["restarts"]:
        raise Failed("a second agent has disturbed the first")
    cluster.harm(other, signal.SIGTERM)
    other.wait(WAIT_S)


def own_files(world, content):
    """A cluster whose h2 has another file than h1 at the same place; `content` makes it, or none."""
    place, own = world.folder / "place", world.folder / "own"
    for path in (place, own):
        path.mkdir()
    name = "usgs_quakes_by_arrival.csv"
    whole = (world.data / name).read_bytes()
    (place / name).write_bytes(whole)
    if content is not None:
        (own / name).write_bytes(content(whole))
    cluster = world.cluster(2, binds={"h2": [(own, place)]})
    query = world.query(QUERY)
    query.text = query.text.replace("${DATA}", str(place))
    cluster.start(query)
    return cluster, place / name


@scenario
def a_file_on_one_host_only(world):
    """A source's file that a host lacks: refused with the host and the path."""
    world.query(QUERY)
    cluster, path = own_files(world, None)
    check(cluster.run, 2, "quakes", "h2", str(path))


@scenario
def a_file_of_another_length(world):
    """A source's file that is shorter on a host: refused with the host and the path."""
    world.query(QUERY)
    cluster, path = own_files(world, lambda whole: whole[:len(whole) // 2])
    check(cluster.run, 2, "quakes", "h2", str(path))


def not_shared(world, name):
    """A folder that is h2's own."""
    own = world.folder / "own"
    own.mkdir()
    (world.folder / name).mkdir()
    cluster = world.cluster(2, binds={"h2": [(own, world.folder / name)]})
    cluster.start(world.query(QUERY), 2)
    check(cluster.run, 2, "h2", str(world.folder / name))
    if list(own.iterdir()):
        raise Failed(f"something was left in {own}: {list(own.iterdir())}")


@scenario
def a_state_folder_that_is_not_shared(world):
    """--state is another folder on a host: refused before anything is stored there."""
    not_shared(world, "state")


@scenario
def a_sink_folder_that_is_not_shared(world):
    """A sink's folder is another one on a host."""
    not_shared(world, "out")


@scenario
def a_host_that_is_not_there(world):
    """'host' = 'h9' names a host that is not there: refused with those that are."""
    cluster = world.cluster(2)
    query = world.query(QUERY)
    query.text = query.text.replace("'connector' = 'file',", "'connector' = 'file', 'host' = 'h9',", 1)
    cluster.start(query, 2)
    check(cluster.run, 2, "h9", "h1", "h2")


@scenario
def ports_that_are_used_up(world):
    """An agent whose range has fewer ports than worker processes: the query ends, and says which range."""
    if not world.has_option("worker", "--ports"):
        raise Skipped("this program has no --ports")
    cluster = world.cluster(2, processes=3)
    cluster.start(world.query(QUERY), RUN_S, agents=False)
    command = [world.program, "worker", "--join", cluster.address(), *cluster.secret(), "--name", "h2"]
    cluster.net["h2"].start("agent", [*command, "--ports", "7100-7101"])
    check(cluster.run, 1, "h2", "between 7100 and 7101", "--ports")


@scenario
def an_agent_before_its_orchestrator(world):
    """An agent that is there first waits, and joins when the orchestrator is there."""
    cluster = world.cluster(2)
    agent = cluster.start_agent("h2")
    cluster.start(world.query(QUERY), 2, agents=False)
    cluster.finish()
    if agent.code not in (None, 0):
        raise Failed(f"the agent ended with {agent.code}\n{agent.said()}")
