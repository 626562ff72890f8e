"""What a scenario has: servers that replicate, a manager, and the kernel's files."""

import json

from guest import CPUS, Failed

SCENARIOS = {}
# Of the firmware's table, in kHz, by the number that sets them.
STATES = {0x10: 2_200_000, 0x11: 1_800_000, 0x12: 1_400_000, 0x13: 1_000_000}
TOP, LOWEST = STATES[0x10], STATES[0x13]
# The ports that stand for the clocks of the first and of the second pair of cores.
PORTS = {0: 0x3EF, 2: 0x2EF}
MASTER, REPLICA = 7000, 7001
CPU = "/sys/devices/system/cpu"
JOURNAL = "/run/slackwater/power.journal"
# A replica on the second pair, whose cores can go offline: the first core of a PC can't.
SECOND = '[cores]\\nfast = "0-1"\\nslow = "2-3"\\n'


def scenario(play, by_hardware=False):
    SCENARIOS[play.__name__] = (play, by_hardware)
    return play


def by_hardware(play):
    """A scenario of a machine whose hardware coordinates cores that share a clock."""
    return scenario(play, by_hardware=True)


def expect(is_so, what):
    if not is_so:
        raise Failed(what)


class World:
    def __init__(self, guest):
        self.guest = guest

    # Servers.

    def start_servers(self):
        """A master and a replica, and a client that writes to the master two hundred times a second."""
        for port in (MASTER, REPLICA):
            more = f"--replicaof 127.0.0.1 {MASTER}" if port == REPLICA else "--repl-diskless-sync-delay 0"
            self.guest.run(f"redis-server --port {port} --bind 127.0.0.1 --save '' --appendonly no "
                           f"--daemonize yes --logfile /tmp/{port}.log --dir /tmp {more}")
        self.guest.eventually("the replica follows", lambda: "master_link_status:up" in self.guest.run(
            f"redis-cli -p {REPLICA} INFO replication", may_fail=True))
        self.guest.run(f"redis-cli -p {MASTER} -r -1 -i 0.005 SET key {'x' * 500} > /dev/null 2>&1 &")

    def pid(self, port):
        said = self.guest.run(f"redis-cli -p {port} INFO server | grep ^process_id")
        return int(said.strip().split(":")[1])

    # The kernel's files.

    def read(self, path):
        return self.guest.run(f"cat {path}").strip()

    def write(self, path, value):
        self.guest.run(f"echo {value} > {path}")

    def clock(self, cpu, name):
        return self.read(f"{CPU}/cpu{cpu}/cpufreq/{name}")

    def cap(self, cpu):
        return int(self.clock(cpu, "scaling_max_freq"))

    def caps(self):
        """What caps each core, as the kernel says it."""
        said = self.guest.run(f"cat {CPU}/cpu[0-9]*/cpufreq/scaling_max_freq")
        return [int(line) for line in said.split()]

    def asked_khz(self, cpu):
        """The frequency that the kernel has last asked a pair's hardware for."""
        said = self.guest.run(f"dd if=/dev/port bs=1 count=1 skip={PORTS[cpu]} 2> /dev/null | od -An -tu1")
        return STATES.get(int(said))

    def is_as_found(self):
        return self.caps() == [TOP] * CPUS

    def wait_as_found(self, what):
        self.guest.eventually(f"{what}: {self.caps()}", self.is_as_found)

    def limit(self, is_limited):
        """Has the firmware limit the second pair of cores to the lowest frequency."""
        fan = self.guest.run("grep -l Fan /sys/class/thermal/*/type").replace("/type", "/cur_state").strip()
        self.write(fan, int(is_limited))

    def set_online(self, cpu, online):
        self.write(f"{CPU}/cpu{cpu}/online", int(online))

    # The manager.

    def start(self, config="", more="--lag 500ms"):
        """Starts a manager of the servers."""
        self.guest.run("rm -f /tmp/hand /tmp/code /tmp/manager.log")
        self.guest.run(f"(cat /etc/power.toml; printf '{config}') > /tmp/power.toml")
        line = f"slackwater-power redis://127.0.0.1:{MASTER} --config /tmp/power.toml {more}"
        started = f"{line} > /tmp/manager.log 2>&1 & echo $! > /tmp/hand; wait $!; echo $? > /tmp/code"
        self.guest.run(f"({started}) > /dev/null 2>&1 &")
        self.guest.eventually("a status", lambda: self.status() is not None)

    def hand(self):
        return int(self.read("/tmp/hand"))

    def head(self):
        others = {int(pid) for pid in self.guest.run("managers").split()} - {self.hand()}
        expect(len(others) == 1, f"other processes than the hand: {others}")
        return others.pop()

    def status(self):
        try:
            return json.loads(self.guest.run("slackwater-power status --json 2> /dev/null", may_fail=True))
        except ValueError:
            return None

    def server(self, port):
        """What the manager says of a server, once it has verified its process."""
        servers = (self.status() or {}).get("servers", [])
        found = [server for server in servers if server["address"].endswith(f":{port}") and server["pid"]]
        return found[0] if found else None

    def has_conflict(self):
        return any(core["conflicts"] for core in self.status()["cores"])

    def both_found(self):
        self.guest.eventually("both are found", lambda: self.server(MASTER) and self.server(REPLICA))

    def slowed(self):
        """Waits until the replica's core is slowed; the core."""
        def cpu():
            server = self.server(REPLICA)
            return server and server["set_khz"] and (server["cpu"],)
        return self.guest.eventually("the replica is slowed", cpu)[0]

    def start_slowed(self, config=SECOND):
        self.start(config)
        cpu = self.slowed()
        expect(self.cap(cpu) < TOP, f"cpu{cpu} is said to be slow, but {self.caps()}")
        return cpu

    def kill(self, *pids, signal="KILL"):
        self.guest.run(f"kill -{signal} {' '.join(str(pid) for pid in pids)}")

    def code(self):
        """Waits for the hand's end; its exit code."""
        def ended():
            return self.guest.run("cat /tmp/code 2> /dev/null", may_fail=True)
        return int(self.guest.eventually("the hand ends", ended))

    def wait_gone(self):
        self.guest.eventually("both processes end", lambda: not self.guest.run("managers").strip())

    def stop(self):
        self.kill(self.hand(), signal="TERM")
        code = self.code()
        self.wait_gone()
        return code

    def restore(self, may_fail=False):
        return self.guest.run("slackwater-power restore 2>&1", may_fail=may_fail)

    def has_journal(self):
        return "yes" in self.guest.run(f"test -s {JOURNAL} && echo yes", may_fail=True)

    def log(self):
        return self.guest.run("cat /tmp/manager.log", may_fail=True)

    # Between scenarios.

    def clear(self):
        """Ends the manager, and makes the machine as it was."""
        self.guest.run("kill -KILL $(managers) 2> /dev/null", may_fail=True)
        self.wait_gone()
        self.guest.run("rm -rf /run/slackwater")
        self.guest.run("insmod /modules/acpi-cpufreq.ko 2> /dev/null", may_fail=True)
        self.limit(False)
        for cpu in range(1, CPUS):
            self.guest.run(f"echo 1 > {CPU}/cpu{cpu}/online", may_fail=True)
        for name, value in (("governor", "schedutil"), ("min_freq", LOWEST), ("max_freq", TOP)):
            files = f"{CPU}/cpufreq/policy*/scaling_{name}"
            self.guest.run(f"for file in {files}; do echo {value} > $file; done")
        for port in (MASTER, REPLICA):
            self.guest.run(f"taskset -ap f {self.pid(port)} > /dev/null", may_fail=True)

    def story(self):
        """What helps to understand a failure."""
        files = f"{CPU}/online {CPU}/cpufreq/policy*/scaling_m*"
        parts = [("manager", "cat /tmp/manager.log"), ("status", "slackwater-power status 2>&1"),
                 ("journal", f"cat {JOURNAL}"), ("files", f"grep . {files} 2>&1"),
                 ("kernel", "dmesg | tail -n 12")]
        said = [(name, self.guest.run(command, may_fail=True)) for name, command in parts]
        return "\n".join(f"--- {name}\n{text}" for name, text in said)
