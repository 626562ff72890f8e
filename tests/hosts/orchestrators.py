"""Several orchestrators of one query, agents that join whichever leads, and the registry between them."""

import json
import os
import signal

from cluster import PORT, PORTS, STARTS_MAX, Cluster
from host import Failed, wait_for
from registries import Sqlite

# A session of ZooKeeper times out after 4 to 6 s; on a busy machine more is no failure.
LEADS_WITHIN_S = 60


class Orchestrated(Cluster):
    """Orchestrators `o1`, `o2` and so on, and agents `h1`, `h2` and so on. With SQLite all orchestrators are
    on one host, of the name `o1`; with ZooKeeper each has its own, and so has each server."""

    def __init__(self, world, hosts=2, orchestrators=2, registry=None, others=(), kind="switch", **more):
        registry = registry or Sqlite(world.folder)
        self.names = [f"o{number}" for number in range(1, orchestrators + 1)]
        places = self.names if registry.names else ["o1"]
        agents = [f"h{number}" for number in range(1, hosts + 1)]
        net = world.net([*places, *agents, *registry.names, *others], kind)
        super().__init__(world, net, hosts, is_home_used=False, **more)
        self.registry, self.runs, self.reports, self.is_revived = registry, {}, [], True
        registry.begin(net, world.folder)

    hands_over = True

    def orchestrators(self):
        return self.runs

    def agent_names(self):
        return [f"h{number}" for number in range(1, self.hosts + 1)]

    def place(self, name):
        """The host of an orchestrator."""
        return self.net[name] if self.registry.names else self.net["o1"]

    def port(self, name):
        return PORT + self.names.index(name)

    def address(self):
        return ",".join(f"{self.place(name).address}:{self.port(name)}" for name in self.names)

    def start_run(self, more=()):
        """Starts the orchestrators, the first one alone until it leads."""
        self.start_orchestrator(self.names[0], more)
        self.until_leads(self.names[0])
        for name in self.names[1:]:
            self.start_orchestrator(name, more)
        wait_for(lambda: f"orchestrators that stand by\n{self.story()}",
                 lambda: len((self.status() or {}).get("standbys", ())) == len(self.names) - 1, every_s=0.1)

    def start_orchestrator(self, name, more=()):
        host = self.place(name)
        self.reports.append(self.folder / f"report-{len(self.reports) + 1}.json")
        command = [self.world.program, "run", self.file, "--listen", f"{host.address}:{self.port(name)}",
                   *self.secret(), "--hosts", self.hosts, "--name", name, "--state", self.folder / "state",
                   "--registry", self.registry.url, "--report", self.reports[-1],
                   "--processes", self.processes]
        if not self.is_clear:
            command += ["--ports", PORTS]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        if getattr(self.query, "only_last", False):
            command += ["--set", "rebalance=off"]
        self.runs[name] = host.start(f"run-{name}", [*command, *more], folder=self.folder)
        return self.runs[name]

    def status_of(self, name):
        """What an orchestrator says if it leads; nothing if it does not, or has ended."""
        if name not in self.runs or not self.runs[name].is_running():
            return None
        host = self.place(name)
        asked = host.run("status", [self.world.program, "status", "--json", "--join",
                                    f"{host.address}:{self.port(name)}", *self.secret()], folder=self.folder)
        host.processes.pop(asked.name)
        return json.loads(asked.output()) if asked.code == 0 else None

    def status(self):
        """What the orchestrator says that leads, as far as one answers."""
        found = [status for name in self.names if (status := self.status_of(name))]
        return found[0] if found else None

    def until_leads(self, *names):
        """Waits until one of these orchestrators leads; returns what it says."""
        wait = lambda: next((status for name in names if (status := self.status_of(name))), None)
        what = lambda: f"{' or '.join(names)} to lead\n{self.story()}"
        return wait_for(what, wait, LEADS_WITHIN_S, every_s=0.05)

    def until_running(self, checkpoints=3):
        """Waits until every agent has processes, and checkpoints are stored."""
        def is_running():
            if not any(run.is_running() for run in self.runs.values()):
                raise Failed(f"the query has ended before it was disturbed\n{self.story()}")
            return all(self.workers(name) for name in self.agents) and self.checkpoints() >= checkpoints

        what = lambda: f"workers and {checkpoints} checkpoints\n{self.story()}"
        wait_for(what, is_running, self.world.options.patience)

    def until_running_on(self, hosts, checkpoints=3):
        """Waits until so many of the agents have processes, of which the others are spares."""
        working = lambda: sum(bool(self.workers(name)) for name in self.agents) >= hosts
        wait_for(lambda: f"workers on {hosts} hosts\n{self.story()}",
                 lambda: working() and self.checkpoints() >= checkpoints, self.world.options.patience)

    def ask(self, *question):
        """Asks whoever leads, as a person on the host of the last orchestrator does."""
        command = [self.world.program, *question, "--join", self.address(), *self.secret()]
        return self.place(self.names[-1]).run(question[0], command, 120, folder=self.folder)

    def until_more_checkpoints(self, more=3):
        """Waits until the query has gone on for so many checkpoints, or has ended."""
        seen = set(self.stored())

        def has_gone_on():
            return len(set(self.stored()) - seen) >= more or self.is_concluded()

        wait_for(lambda: f"{more} checkpoints more\n{self.story()}", has_gone_on, self.world.options.patience)

    def stored(self):
        place = self.folder / "state" / "checkpoints"
        return [path.name for path in place.glob("*.json")] if place.is_dir() else []

    def workers(self, name):
        return (self.runs[name] if name in self.names else self.agents[name]).workers()

    def member_pids(self, name):
        """All processes of an orchestrator or an agent."""
        process = self.runs[name] if name in self.names else self.agents[name]
        shares = self.is_clear or (name in self.names and not self.registry.names)
        return process.tree() if shares else self.net[name].pids()

    def is_concluded(self):
        """Whether an orchestrator has ended that nobody harmed."""
        return any(not run.is_running() and run not in self.harmed for run in self.runs.values())

    def revive(self):
        """Starts what has ended and was to go on, as supervisors of services do; whether the run goes on."""
        if self.is_concluded() and not any(run.is_running() for run in self.runs.values()):
            return False
        ended = [name for name, agent in self.agents.items() if not agent.is_running()]
        starts = [lambda name=name: self.start_agent(name) for name in ended]
        if self.is_revived and not self.is_concluded():
            dead = [name for name, run in self.runs.items() if not run.is_running()]
            starts += [lambda name=name: self.start_orchestrator(name) for name in dead]
        elif not self.is_concluded() and not any(run.is_running() for run in self.runs.values()):
            return False
        for start in starts:
            self.starts += 1
            if self.starts > STARTS_MAX:
                raise Failed(f"agents and orchestrators were started {STARTS_MAX} times\n{self.story()}")
            start()
        return True

    def finish(self):
        """Waits for the end of all orchestrators; returns the reports of those that ended a run."""
        end = lambda: f"the end of all orchestrators\n{self.story()}"
        wait_for(end, lambda: not self.revive(), self.world.options.patience, every_s=0.1)
        self.harmed |= self.registry.killed
        self.check_ends()
        for name, run in self.runs.items():
            if run.code != 0 and run not in self.harmed:
                raise Failed(f"{name} ended with {run.code}\n{self.story()}")
        self.query.compare(self.folder, self.world.data)
        reports = [json.loads(path.read_text()) for path in self.reports if path.exists()]
        if not reports:
            raise Failed(f"no orchestrator has written a report\n{self.story()}")
        late = [report["rows_late"] for report in reports]
        if getattr(self.query, "rows_late", 0) == 0 and any(late):
            raise Failed(f"late rows: {late}")
        return reports

    def kill_leader(self, name):
        """kill -9 of an orchestrator, which is not started again."""
        self.is_revived = False
        self.harm(self.runs[name], signal.SIGKILL)
        self.runs[name].wait()

    def lose_host(self, name):
        """Cuts a host off, and then kills everything on it: nobody is told."""
        self.need_network()
        self.net.cut(name)
        process = self.runs.get(name) or self.agents[name]
        self.harmed.add(process)
        for pid in self.member_pids(name):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.wait()
