"""What a scenario has: the program, the data, a folder and random numbers; and the list of scenarios."""

import json
import os
import pathlib
import random
import subprocess
import sys

from cluster import Cluster
from host import Failed, Skipped
from net import Net
import queries

HERE = pathlib.Path(__file__).resolve().parent
SCENARIOS = {}
# Those that take minutes and measure; played when they are named.
FIGURES = set()


def scenario(function):
    """Makes a function with a docstring a scenario; it takes a World, and may return what it has measured."""
    assert function.__doc__ and function.__name__ not in SCENARIOS, function.__name__
    SCENARIOS[function.__name__] = function
    return function


def figure(function):
    """Like scenario(), for one that takes minutes: played only when it is named."""
    FIGURES.add(function.__name__)
    return scenario(function)


class World:
    """One scenario's, or one random round's."""

    def __init__(self, program, data, folder, options, seed=0):
        self.program, self.data, self.folder, self.options = program, data, folder, options
        self.rng = random.Random(seed)
        self.nets = []

    def net(self, names, kind="switch", **more):
        """A network; with --clear, one host with the loopback address."""
        if self.options.clear:
            if more:
                raise Skipped("needs hosts of their own: not in clear")
            kind = "loopback"
        net = Net(names, self.folder, kind=kind, **more)
        self.nets.append(net)
        return net

    def cluster(self, hosts=3, kind="switch", others=(), clocks=None, binds=None, **more):
        """A cluster of h1, h2 and so on, on a network with other hosts too. Not started."""
        count = hosts if more.get("is_home_used", True) else hosts + 1
        names = [*(f"h{number}" for number in range(1, count + 1)), *others]
        own = {key: value for key, value in (("clocks", clocks), ("binds", binds)) if value}
        return Cluster(self, self.net(names, kind, **own), hosts, **more)

    def query(self, name):
        """A reference query; needs the data."""
        if self.data is None:
            raise Skipped("needs the reference data: --data FOLDER")
        return queries.reference()[name]

    def query_names(self):
        if self.data is None:
            raise Skipped("needs the reference data: --data FOLDER")
        found = list(queries.reference())
        return [name for name in found if name in self.options.queries] if self.options.queries else found

    def secret(self, name="cluster.key"):
        """The file with the cluster's secret, made by the program."""
        path = self.folder / name
        if not path.exists():
            made = subprocess.run([self.program, "key"], capture_output=True, timeout=60, check=False)
            if made.returncode != 0 or not made.stdout.strip():
                raise Failed(f"slackwater key: {made.returncode}\n{made.stderr.decode()}")
            path.touch(mode=0o600)
            path.write_bytes(made.stdout)
        return path

    def has_option(self, command, option):
        """Whether the program knows an option of a command."""
        words = [self.program, command, "--help"]
        asked = subprocess.run(words, capture_output=True, timeout=60, check=False)
        return option.encode() in asked.stdout

    def knows_zookeeper(self):
        """Whether the program was built with registries in ZooKeeper."""
        # Nobody listens there; a program without ZooKeeper says that it is missing.
        words = [self.program, "status", "--registry", "zk://127.0.0.1:1/none"]
        asked = subprocess.run(words, capture_output=True, timeout=60, check=False)
        return b"this build has no registry" not in asked.stderr

    def strangers(self, host, kind, address, port, file=None):
        """Starts strangers of a kind in a host."""
        command = [sys.executable, "-B", HERE / "strangers.py", kind, address, port]
        return host.start(f"strangers-{kind}", command + ([file] if file else []))

    def seen(self, process):
        """What strangers saw."""
        if process.wait(600) != 0:
            raise Failed(f"{process.name}: {process.said()}")
        return json.loads(process.output().splitlines()[-1])

    def close(self):
        for net in self.nets:
            net.close()
        self.nets = []


def find_data(given):
    """The folder of the reference data, or nothing."""
    folder = pathlib.Path(given) if given else queries.ROOT.parent / "shared" / "data"
    return folder.resolve() if (folder / "expected").is_dir() else None


def find_program(given):
    built = [queries.ROOT / "target" / profile / "slackwater" for profile in ("release", "debug")]
    program = given or next((str(path) for path in built if path.exists()), None)
    if program is None or not os.access(program, os.X_OK):
        sys.exit("no program found: run cargo build -p slackwater, or use --program")
    return os.path.abspath(program)
