"""An orchestrator and agents on the hosts of a network: started, disturbed, and judged by what they leave.

With a secret they talk over the network. In clear they are in one host and talk over the loopback address,
since the program refuses anything else.
"""

import json
import re
import signal

from host import Failed, Skipped, is_alive, signal_all, wait_for

PORT = 7070
PORTS = "7100-7199"
# An agent that has ended is started again so often, as a supervisor of services does.
STARTS_MAX = 50
BROKEN = ("panicked at", "internal error", "RUST_BACKTRACE")


class Cluster:
    """`h1` is the orchestrator's host, `h2` and so on are the agents'. `is_home_used` says whether home runs
    workers too; then it is one of `hosts`."""

    def __init__(self, world, net, hosts=3, processes=1, is_home_used=True, settings=None):
        self.world, self.net, self.processes = world, net, processes
        self.hosts, self.is_home_used = hosts, is_home_used
        # Every process has something to do: a silent one has no lease that could end.
        everywhere = {"parallelism": hosts * processes, "workers": hosts * processes}
        self.settings = {**everywhere, **(settings or {})}
        self.folder = world.folder
        self.run, self.query, self.agents, self.starts = None, None, {}, 0
        # Whose certificates hosts have, if they have no key.
        self.authority = None
        # Exit codes and signals that were asked for, by process.
        self.harmed = set()

    @property
    def is_clear(self):
        return self.net.kind == "loopback"

    def agent_names(self):
        count = self.hosts - 1 if self.is_home_used else self.hosts
        return [f"h{number}" for number in range(2, 2 + count)]

    def home(self):
        return self.net["h1"]

    def address(self):
        return f"{self.home().address}:{PORT}"

    def secret(self, name="h1"):
        """Options of a host: the key of all of them, or its own certificate."""
        if self.is_clear:
            return []
        return ["--secret", self.authority.host(name) if self.authority else self.world.secret()]

    def start(self, query, run_s=None, more=(), agents=True):
        """Writes a query and starts everything; `query` is one of queries.py, or a file."""
        self.query = query
        file = query.write(self.folder, self.world.data, run_s) if hasattr(query, "write") else query
        self.file = file
        self.start_run(more)
        if agents:
            for name in self.agent_names():
                self.start_agent(name)
        return self

    def start_run(self, more=()):
        command = [self.world.program, "run", self.file, "--listen", self.address(), *self.secret(),
                   "--hosts", self.hosts, "--name", "h1", "--state", self.folder / "state",
                   "--report", self.folder / "report.json", "--processes", self.processes]
        command += ["--here"] if self.is_home_used else []
        if not self.is_clear and self.world.has_option("run", "--ports"):
            command += ["--ports", PORTS]
        settings = dict(self.settings)
        if getattr(self.query, "only_last", False):
            # Which row of a key is its last, files don't say when it moves to another instance.
            settings["rebalance"] = "off"
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        self.run = self.home().start("run", [*command, *more], folder=self.folder)
        return self.run

    def start_agent(self, name, more=()):
        command = [self.world.program, "worker", "--join", self.address(), *self.secret(name), "--name", name]
        if not self.is_clear and self.world.has_option("worker", "--ports"):
            command += ["--ports", PORTS]
        process = self.net[name].start(f"agent-{name}", [*command, *more], folder=self.folder)
        self.agents[name] = process
        return process

    def revive(self):
        """Starts agents again that have ended, and the run if it was killed; whether the run goes on."""
        ended = [name for name, agent in self.agents.items() if not agent.is_running()]
        over = not self.run.is_running()
        if over and (self.run.code == 0 or self.run not in self.harmed):
            return False
        starts = [self.start_run] if over else []
        for start in starts + [lambda name=name: self.start_agent(name) for name in ended]:
            self.starts += 1
            if self.starts > STARTS_MAX:
                raise Failed(f"agents and runs were started {STARTS_MAX} times\n{self.story()}")
            start()
        return True

    def member_pids(self, name):
        """All processes of a member: of its host, or on loopback what it has started."""
        process = self.run if name == "h1" else self.agents[name]
        return process.tree() if self.is_clear else self.net[name].pids()

    hands_over = False

    def orchestrators(self):
        """The orchestrators, by name."""
        return {"h1": self.run}

    def members(self):
        """The orchestrators and the agents, by name."""
        return [*sorted(self.orchestrators()), *sorted(self.agents)]

    def all_pids(self):
        return [pid for name in ["h1", *self.agents] for pid in self.member_pids(name)]

    def workers(self, name):
        return (self.run if name == "h1" else self.agents[name]).workers()

    def until_running(self, checkpoints=2):
        """Waits until every host has its worker processes, and checkpoints are stored."""
        names = self.agent_names() + (["h1"] if self.is_home_used else [])

        def is_running():
            if not self.run.is_running():
                raise Failed(f"the run has ended before it was disturbed: {self.run.code}\n{self.story()}")
            return all(self.workers(name) for name in names) and self.checkpoints() >= checkpoints

        what = lambda: f"workers and {checkpoints} checkpoints\n{self.story()}"
        wait_for(what, is_running, self.world.options.patience)

    def checkpoints(self):
        """Records of checkpoints and of claims."""
        place = self.folder / "state" / "checkpoints"
        return len(list(place.glob("*.json"))) if place.is_dir() else 0

    def harm(self, process, number):
        self.harmed.add(process)
        process.send(number)

    def stop_member(self, name):
        return signal_all(lambda: self.member_pids(name), signal.SIGSTOP)

    def continue_member(self, pids):
        signal_all(lambda: [pid for pid in pids if is_alive(pid)], signal.SIGCONT)

    def need_network(self):
        if self.is_clear:
            raise Skipped("needs a network between hosts, and a secret: not in clear")

    def finish(self):
        """Waits for the end of the run, starting again what was killed; returns its report."""
        end = lambda: f"the end of the run\n{self.story()}"
        patience_s = self.world.options.patience
        wait_for(end, lambda: not self.revive(), patience_s, every_s=0.1)
        self.check_ends()
        if self.run.code != 0:
            raise Failed(f"the run ended with {self.run.code}\n{self.story()}")
        report = self.report()
        if hasattr(self.query, "compare"):
            self.query.compare(self.folder, self.world.data)
        return report

    def check_ends(self):
        """No process panicked, or was ended by a signal that nobody sent."""
        for process in self.processes_of_all():
            for word in BROKEN:
                if word in process.said():
                    raise Failed(f"{process.name} panics:\n{process.said()}")
            if not process.is_running() and process.code < 0 and process not in self.harmed:
                raise Failed(f"{process.name}: ended by signal {-process.code}, which was not sent")

    def processes_of_all(self):
        hosts = set(self.net.hosts.values())
        return [process for host in hosts for process in host.processes.values()]

    def report(self):
        return json.loads((self.folder / "report.json").read_text())

    def story(self):
        """What the processes have said at last."""
        all_of_them = self.processes_of_all()
        said = [f"--- {process.name} ({process.code})\n{process.tail()}" for process in all_of_them]
        return re.sub(r"\n+", "\n", "\n".join(said))


def fenced(report):
    """How much of earlier incarnations was refused."""
    found = report.get("fenced")
    if not isinstance(found, dict):
        raise Failed("the report has no 'fenced'")
    return sum(found.values())


def restarts_at_least(report, times):
    if report["restarts"] < times:
        raise Failed(f"nothing was disturbed: {report['restarts']} restarts")
