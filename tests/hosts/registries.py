"""Where the orchestrators of a test agree who leads: a file of SQLite, or servers of ZooKeeper."""

import os
import pathlib
import shutil
import signal
import socket

from host import Failed, Skipped, wait_for

JARS = pathlib.Path(os.environ.get("SLACKWATER_ZOOKEEPER") or "/usr/share/java")
CLASSES = ("zookeeper.jar", "slf4j-nop.jar")
CLIENT_PORT, QUORUM_PORT, ELECTION_PORT = 2181, 2888, 3888
# ZooKeeper's own default: sessions of 4 s time out after 4 to 6 s.
TICK_MS = 2000
# A server starts in a second or two, and two of them elect; on a busy machine that takes longer.
PATIENCE_S = 90


class Sqlite:
    """A file: for orchestrators of one host."""

    kind = "sqlite"
    names, killed = (), frozenset()

    def __init__(self, folder):
        self.url = f"sqlite:{folder / 'registry.db'}"

    def begin(self, net, folder):
        """There is nothing to start."""


class ZooKeeper:
    """One server, or several that vote, each on a host of its own."""

    kind = "zookeeper"

    def __init__(self, world, count=1):
        java = shutil.which("java")
        missing = [name for name in CLASSES if not (JARS / name).exists()]
        if not java or missing:
            raise Skipped("needs ZooKeeper: apt-get install openjdk-17-jre-headless zookeeper")
        if not world.knows_zookeeper():
            raise Skipped("needs a program that was built with --features slackwater/zookeeper")
        self.java, self.names = java, [f"z{number}" for number in range(1, count + 1)]
        self.net, self.folder, self.servers, self.url = None, None, {}, None
        # The servers' processes that were killed on purpose.
        self.killed = set()

    def begin(self, net, folder):
        """Starts all servers on hosts of these names, and waits until they answer."""
        self.net, self.folder = net, folder
        places = ",".join(f"{net[name].address}:{CLIENT_PORT + at}" for at, name in enumerate(self.names))
        self.url = f"zk://{places}/slackwater/query"
        for at, name in enumerate(self.names):
            self.configure(at, name)
            self.start(name)
        self.wait()

    def configure(self, at, name):
        data = self.folder / name
        data.mkdir()
        (data / "myid").write_text(f"{at}\n")
        lines = [f"tickTime={TICK_MS}", "initLimit=20", "syncLimit=4", f"dataDir={data}",
                 f"clientPort={CLIENT_PORT + at}", f"clientPortAddress={self.net[name].address}",
                 "admin.enableServer=false", "maxClientCnxns=0", "4lw.commands.whitelist=srvr"]
        if len(self.names) > 1:
            lines += [f"server.{peer}={self.net[other].address}:{QUORUM_PORT + peer}:{ELECTION_PORT + peer}"
                      for peer, other in enumerate(self.names)]
        (self.folder / f"{name}.cfg").write_text("\n".join(lines) + "\n")

    def start(self, name):
        """Starts a server that does not run."""
        classes = ":".join(str(JARS / jar) for jar in CLASSES)
        command = [self.java, "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes,
                   "-Dzookeeper.jmx.log4j.disable=true",
                   "org.apache.zookeeper.server.quorum.QuorumPeerMain", self.folder / f"{name}.cfg"]
        self.servers[name] = self.net[name].start(f"zookeeper-{name}", command, folder=self.folder)

    def kill(self, name):
        """kill -9 of a server."""
        self.killed.add(self.servers[name])
        self.servers[name].send(signal.SIGKILL)
        self.servers[name].wait()

    def roles(self):
        """What each server says it is, as far as it answers: a leader, a follower, or alone."""
        found = {}
        for at, name in enumerate(self.names):
            said = ask(self.net[name], CLIENT_PORT + at)
            modes = [line.partition(": ")[2] for line in said.splitlines() if line.startswith("Mode: ")]
            if modes:
                found[name] = modes[0]
        return found

    def wait(self):
        """Waits until all servers that run answer, one of them as the one that leads."""
        running = [name for name, server in self.servers.items() if server.is_running()]

        def is_ready():
            if len(running) != sum(server.is_running() for server in self.servers.values()):
                raise Failed("a server of ZooKeeper has ended")
            roles = self.roles()
            return set(roles) == set(running) and {"leader", "standalone"} & set(roles.values())

        wait_for("the servers of ZooKeeper", is_ready, PATIENCE_S, every_s=0.2)


def ask(host, port):
    """The answer to ZooKeeper's command `srvr`; nothing if nobody answers."""
    try:
        with host.connect(port, limit_s=1) as connection:
            connection.sendall(b"srvr")
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
    except OSError:
        return ""
