"""Hosts of namespaces, and the network between them.

    switch      a switch in user space over TUN devices: delay, jitter, loss, bandwidth, cuts, one-way cuts
    bridge      the kernel's veth and bridge: for CPU time and throughput; can be cut, and has a bandwidth
    loopback    one host, in which all names live: for what is in clear

Nothing of it has a name outside: several rigs run side by side, and what one leaves behind, killed in
whatever way, the kernel removes with the last process of the rig.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys

from host import PATIENCE_S, Failed, Host, marked

HERE = pathlib.Path(__file__).resolve().parent
SUBNET = "10.77.0"
# The last byte of an address is the host's number.
HOSTS_MAX = 250
KINDS = ("switch", "bridge", "loopback")


class Net:
    """A network of hosts, by name. `clocks` maps names to seconds that CLOCK_MONOTONIC is ahead there;
    `binds` maps names to pairs of a folder or file and the place where the host sees it."""

    def __init__(self, names, folder, kind="switch", clocks=None, binds=None):
        if kind not in KINDS or not 1 <= len(names) <= HOSTS_MAX or len(set(names)) != len(names):
            raise Failed(f"no such network: {kind} of {names}")
        self.kind, self.names, self.hosts = kind, list(names), {}
        self.switch = self.hub = None
        logs = pathlib.Path(folder) / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        clocks, binds = clocks or {}, binds or {}
        try:
            if kind == "loopback":
                if clocks or binds:
                    raise Failed("names on the loopback network share their clock and files")
                host = Host("loopback", "127.0.0.1", logs)
                self.hosts = dict.fromkeys(names, host)
                return
            if kind == "switch":
                self.switch = Switch()
            else:
                self.hub = Hub(logs)
            for number, name in enumerate(names, 1):
                own = {"clock_s": clocks.get(name, 0), "binds": binds.get(name, ())}
                host = Host(name, f"{SUBNET}.{number}", logs, tun=self.switch is not None, **own)
                self.hosts[name] = host
                (self.switch or self.hub).add(number, host)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name):
        return self.hosts[name]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def number(self, name):
        return self.names.index(name) + 1

    def set(self, **settings):
        """Sets delay_ms, jitter_ms (more or less), loss (a fraction) and mbit (0: no limit) of each host's
        outgoing packets."""
        if self.switch is not None:
            return self.switch.order({"do": "set", "settings": settings})
        if self.hub is None or set(settings) != {"mbit"}:
            raise Failed(f"the {self.kind} network has no {', '.join(settings)}")
        return self.hub.limit(settings["mbit"])

    def cut(self, name):
        """Loses everything from and to a host, also what is under way."""
        self.faults().cut(self.number(name))

    def cut_one_way(self, source, to):
        """Loses what one host sends to another."""
        if self.switch is None:
            raise Failed(f"the {self.kind} network can't be cut in one direction")
        self.switch.order({"do": "one_way", "source": self.number(source), "to": self.number(to)})

    def heal(self, name=None):
        """Undoes the cuts of a host, or all of them."""
        self.faults().heal(None if name is None else self.number(name))

    def counts(self):
        """Packets delivered, lost, cut and dropped, and bytes delivered; of the switch."""
        return self.switch.order({"do": "count"})

    def faults(self):
        found = self.switch or self.hub
        if found is None:
            raise Failed("the loopback network can't be cut")
        return found

    def close(self):
        for host in set(self.hosts.values()):
            host.close()
        for part in (self.switch, self.hub):
            if part is not None:
                part.close()


class Switch:
    """The process of switch.py."""

    def __init__(self):
        self.orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.orders.settimeout(PATIENCE_S)
        self.process = subprocess.Popen(
            [sys.executable, "-B", str(HERE / "switch.py")], stdin=theirs, stdout=subprocess.DEVNULL,
            env=marked(), start_new_session=True)
        theirs.close()

    def order(self, order, descriptors=()):
        """Gives an order, and returns the counters once it is in force."""
        socket.send_fds(self.orders, [json.dumps(order).encode()], descriptors)
        answer = self.orders.recv(1 << 16)
        if not answer:
            raise Failed("the switch has ended")
        return json.loads(answer)

    def add(self, number, host):
        self.order({"do": "port", "port": number}, [host.tun])
        os.close(host.tun)
        host.tun = None

    def cut(self, number):
        self.order({"do": "cut", "port": number})

    def heal(self, number):
        self.order({"do": "heal", "port": number})

    def close(self):
        self.orders.close()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Hub:
    """A network namespace of its own with the bridge, and a cable to each host."""

    def __init__(self, logs):
        self.host = Host("hub", "", logs)
        self.numbers = []
        self.ip("link add name br0 type bridge")
        self.ip("link set br0 up")

    def ip(self, text, host=None):
        command(host or self.host, "ip", text)

    def add(self, number, host):
        self.numbers.append(number)
        # nsenter enters the network only: numbers of processes are still the rig's.
        self.ip(f"link add name port{number} type veth peer name eth0 netns {host.init}")
        self.ip(f"link set port{number} master br0")
        self.ip(f"link set port{number} up")
        self.ip(f"addr add {host.address}/24 dev eth0", host)
        self.ip("link set eth0 up", host)

    def limit(self, mbit):
        for number in self.numbers:
            if mbit:
                text = f"qdisc replace dev port{number} root tbf rate {mbit}mbit burst 64kb latency 250ms"
            else:
                text = f"qdisc del dev port{number} root"
            command(self.host, "tc", text)
        return {}

    def cut(self, number):
        self.ip(f"link set port{number} down")

    def heal(self, number):
        for port in self.numbers if number is None else [number]:
            self.ip(f"link set port{port} up")

    def close(self):
        self.host.close()


def command(host, program, text):
    """Runs a command in the network of a host."""
    words = ["nsenter", f"--net=/proc/{host.init}/ns/net", program, *text.split()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{program} {text}: {done.stderr.strip()}")
