"""A cluster of Ray on one machine: a head and nodes, each with an address of its own."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "slackwater"
HEAD = "10.99.0.1"
PORT = 6379
# Raylets end when the head has been gone for so long; a minute by default.
HEAD_PATIENCE_S = 10
STORE_BYTES = 80_000_000
PATIENCE_S = 120


class Failed(Exception):
    """A promise is broken."""


def wait_for(what, look, patience_s=PATIENCE_S):
    """Waits until something is so; returns it."""
    until = time.monotonic() + patience_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > until:
            raise Failed(f"not within {patience_s} s: {what() if callable(what) else what}")
        time.sleep(0.05)


def address(number):
    return f"10.99.0.{number}"


def make_network(nodes):
    """The loopback device of this network, with an address for each node."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for number in range(1, nodes + 2):
        subprocess.run(["ip", "addr", "add", f"{address(number)}/32", "dev", "lo"], check=True)


def processes():
    """All processes here: their parents, groups and commands."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            stat = (entry / "stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if stat[0] != "Z":
            found[int(entry.name)] = (int(stat[1]), command)
    return found


class Cluster:
    """A head without CPUs, where queries are started, and nodes with one CPU each."""

    def __init__(self, python, program, folder):
        self.python, self.program, self.folder = python, program, folder
        self.ray = str(pathlib.Path(python).parent / "ray")
        self.environment = dict(
            os.environ, RAY_ADDRESS=f"{HEAD}:{PORT}", RAY_USAGE_STATS_ENABLED="0", PYTHONPATH=str(PACKAGE),
            RAY_gcs_rpc_server_reconnect_timeout_s=str(HEAD_PATIENCE_S), TMPDIR=str(folder),
            # As docs/ray.md recommends: others on this machine would hold Ray's workers up.
            RAY_worker_niceness="0",
            # A machine that is busy starts Ray slowly.
            RAY_raylet_start_wait_time_s=str(PATIENCE_S),
        )

    def start_head(self):
        self._start(
            1, "--head", f"--node-ip-address={HEAD}", f"--port={PORT}", "--num-cpus=0",
            "--include-dashboard=false", f"--temp-dir={self.folder / 'ray'}",
        )

    def start_node(self, number):
        own = f"--node-ip-address={address(number)}"
        self._start(number, f"--address={HEAD}:{PORT}", own, "--num-cpus=1")

    def _start(self, number, *options):
        cores = sorted(os.sched_getaffinity(0))
        core = cores[number % len(cores)]
        # What agents reserve are cores of their own, as far as there are as many.
        command = ["taskset", "-c", str(core), self.ray, "start", "--disable-usage-stats"]
        command += [f"--object-store-memory={STORE_BYTES}", *options]
        log = (self.folder / "ray-start.log").open("ab")
        environment = {name: value for name, value in self.environment.items() if name != "RAY_ADDRESS"}
        told = {"env": environment, "stdout": log, "stderr": log, "timeout": 2 * PATIENCE_S}
        done = subprocess.run(command, check=False, **told)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}\n{(self.folder / 'ray-start.log').read_text()[-2000:]}")

    def pids(self, word, node=None):
        """Processes with a word, and with a node's address, in their command."""
        mark = f"={address(node)}" if node else ""
        return [pid for pid, (_, command) in processes().items() if word in command and mark in command]

    def raylet(self, node):
        [pid] = [
            pid for pid in self.pids("/raylet/raylet")
            if f"--node_ip_address={address(node)} " in processes()[pid][1]
        ]
        return pid

    def node_of_agent(self):
        """The numbers of nodes with an agent, and its process."""
        found = {}
        for pid, (_, command) in processes().items():
            words = command.split(" ")
            if " worker --join " in command and "keeper" not in command and "--address" in words:
                found[int(words[words.index("--address") + 1].rpartition(".")[2])] = pid
        return found

    def kill_node(self, number):
        """SIGKILL of all that a node's death takes: Ray's processes, the keeper, the agent, its workers."""
        raylet, agents = self.raylet(number), self.node_of_agent()
        doomed = {raylet, *([agents[number]] if number in agents else [])}
        all_of_them = processes()
        if number in agents:
            doomed.add(all_of_them[agents[number]][0])
        # A detached query, and its keeper.
        listens = f" --listen {address(number)}:"
        queries = [(pid, parent) for pid, (parent, command) in all_of_them.items() if listens in command]
        doomed.update(one for both in queries for one in both)
        grown = True
        while grown:
            more = {pid for pid, (parent, _) in all_of_them.items() if parent in doomed} - doomed
            doomed |= more
            grown = bool(more)
        for pid in doomed:
            kill(pid)

    def kill_head(self):
        """SIGKILL of the head's processes, but not of the query, which doesn't belong to Ray."""
        for pid in [*self.pids("gcs_server"), self.raylet(1)]:
            kill(pid)

    def run(self, file, hosts, more=(), options=()):
        return Run(self, file, hosts, more, options)

    def command(self, *arguments):
        return [self.python, "-m", "slackwater.ray", *map(str, arguments)]


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Run:
    """A query that is run on nodes."""

    def __init__(self, cluster, file, hosts, more, options):
        self.cluster, self.metrics = cluster, "127.0.0.1:9464"
        own = ["--state", cluster.folder / "state", "--binary", cluster.program, "--metrics", self.metrics]
        self.report_file = cluster.folder / "report.json"
        more = ["--report", self.report_file, *more]
        command = cluster.command("run", file, "--hosts", hosts, *own, *options, "--", *more)
        self.said_file = cluster.folder / "said"
        self.process = subprocess.Popen(
            command, env=cluster.environment, stdout=subprocess.PIPE, stderr=self.said_file.open("wb")
        )
        self.lines, self.times = [], []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.times.append(time.monotonic())
            self.lines.append(line)

    def said(self):
        return self.said_file.read_text(errors="replace")

    def known(self):
        """What the query says of its hosts."""
        sys.path.insert(0, str(PACKAGE))
        from slackwater import hosts  # pylint: disable=import-outside-toplevel

        return hosts.read(self.metrics, None)

    def used(self):
        """How many hosts it runs on."""
        import urllib.request  # pylint: disable=import-outside-toplevel

        try:
            with urllib.request.urlopen(f"http://{self.metrics}/v1/hosts", timeout=5) as answer:
                said = json.loads(answer.read())
                return said["used"] if said else 0
        except OSError:
            return 0

    def rows_after(self, moment):
        """The time from a moment until the first row after it, if there is one."""
        after = [at for at in list(self.times) if at > moment]
        return after[0] - moment if after else None

    def longest_pause(self, since):
        """The longest time without a row since a moment."""
        times = [since, *(at for at in list(self.times) if at > since)]
        return max((after - before for before, after in zip(times, times[1:])), default=0.0)

    def check_running(self):
        if self.process.poll() is not None:
            raise Failed(f"the query has ended with {self.process.returncode}\n{self.said()[-3000:]}")

    def stop(self):
        """Stops the query; returns its report."""
        self.process.send_signal(signal.SIGTERM)
        return self.finish()

    def finish(self, patience_s=PATIENCE_S):
        """Waits for the end; returns the report."""
        try:
            code = self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"the query has not ended\n{self.said()[-3000:]}") from None
        self.reader.join(10)
        if code != 0:
            raise Failed(f"the query ended with {code}\n{self.said()[-3000:]}")
        return json.loads(self.report_file.read_text())
