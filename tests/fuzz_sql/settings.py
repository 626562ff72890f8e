"""Random settings of a run: how it is distributed, waits and saves, and how often it is stopped or killed.
None may change an answer."""

from dataclasses import dataclass, field

CHOICES = {
    "chunk_rows": ["1", "2", "3", "7", "64", "8192"],
    "linger": ["0 ms", "1 ms", "10 ms"],
    "wait": ["auto", "interrupt", "sleep:200us", "backoff", "spin:50us", "poll"],
    "latency_target": ["20 ms", "2 ms", "200 ms"],
    "emit": ["changes", "every_row"],
    "rebalance": ["off", "shuffle", "shuffle"],
    "two_phase": ["on", "off"],
    "broadcast": ["serial", "flat_tree", "binary_tree", "ring"],
    "placement": ["spread", "os"],
    "order": ["none"],
    "balancer": ["demand", "round_robin"],
    "wait_delay": ["100 us", "10 ms"],
}
INTERVALS = ["5 ms", "20 ms", "100 ms", "1 s"]


@dataclass
class Start:
    """One start of the program."""

    parallelism: int = 1
    processes: int = 1
    link: str = "auto"
    duration_ms: int = None
    """Time after which it is stopped, and saved."""
    kill_ms: int = None
    """Time after which it is killed."""
    kill_worker_ms: int = None
    """Time after which one of its worker processes is killed, which the program restarts."""


@dataclass
class Setting:
    sets: dict = field(default_factory=dict)
    starts: list = field(default_factory=lambda: [Start()])
    """The starts, the last of which is neither stopped nor killed."""
    state: bool = False
    rate: int = 0
    """Rows per second of each stream, 0 for no limit."""

    def arguments(self, start):
        found = ["--parallelism", str(start.parallelism)]
        if start.processes > 1:
            found += ["--processes", str(start.processes), "--workers", str(max(start.processes, 2)), "--link", start.link]
        for key, value in sorted(self.sets.items()):
            found += ["--set", f"{key}={value}"]
        if self.state:
            found += ["--state", "state"]
        if start.duration_ms is not None:
            found += ["--duration", f"{start.duration_ms}ms"]
        return found

    def commands(self, binary="slackwater"):
        """The run as shell commands."""
        lines = []
        for start in self.starts:
            words = [f"'{word}'" if " " in word else word for word in self.arguments(start)]
            command = f"{binary} run q.sql -q {' '.join(words)}"
            if start.kill_worker_ms is not None:
                command = f"({command} & sleep {start.kill_worker_ms / 1000:.3f}; pkill -KILL -n -P $!; wait)"
            lines.append(f"timeout -s KILL {start.kill_ms / 1000:.3f} {command}" if start.kill_ms is not None else command)
        return lines

    def tried(self):
        """What is counted as tried."""
        yield from (f"{key} = {value}" for key, value in self.sets.items())
        for start in self.starts:
            yield f"parallelism {start.parallelism}"
            if start.processes > 1:
                yield f"processes {start.processes}, link {start.link}"
            if start.duration_ms is not None:
                yield "stopped and resumed"
            if start.kill_ms is not None:
                yield "killed and resumed"
            if start.kill_worker_ms is not None:
                yield "a worker process killed"
        if self.state:
            yield "--state"


def random_start(rng):
    start = Start(parallelism=rng.choice([1, 1, 2, 3, 4]))
    if rng.random() < 0.15:
        start.processes, start.link = rng.choice([2, 2, 3]), rng.choice(["auto", "shm", "tcp"])
        start.parallelism = max(start.processes, start.parallelism)
    return start


def random_setting(rng, rows, how=None):
    """A random setting for tables of this many rows. `how`: `plain`, `state`, `stops` or `kills`."""
    how = how or rng.choices(["plain", "state", "stops", "kills"], [65, 10, 15, 10])[0]
    setting = Setting()
    for key, values in CHOICES.items():
        if rng.random() < (0.6 if key == "chunk_rows" else 0.15):
            setting.sets[key] = rng.choice(values)
    if "balancer" in setting.sets:
        setting.sets["order"] = "none"
    if setting.sets.get("emit") == "every_row":
        # Rejected together: merging rows prevents an answer for each row.
        setting.sets.pop("two_phase", None)
    setting.starts = [random_start(rng)]
    if how == "plain":
        if rng.random() < 0.1:
            setting.rate = max(200, rows * 5)
        return setting
    setting.state = True
    setting.sets["checkpoint_interval"] = rng.choice(INTERVALS)
    if how == "state":
        return setting
    # The streams take about half a second, in which a run is stopped or killed up to three times.
    setting.rate = max(100, rows * 2)
    setting.sets["linger"] = rng.choice(["0 ms", "1 ms"])
    for _ in range(rng.randint(1, 3)):
        start = random_start(rng)
        if how == "stops":
            start.duration_ms = rng.choice([20, 40, 60, 100, 150])
        else:
            start.kill_ms = rng.randint(20, 250)
        setting.starts.insert(0, start)
    last = setting.starts[-1]
    if last.processes > 1 and rng.random() < 0.6:
        last.kill_worker_ms = rng.randint(20, 250)
    return setting
