"""What a link between two network namespaces costs over TCP and over AF_XDP sockets: `make bench-transport`.

Messages go there and back over a pair of virtual interfaces, with a process in each namespace. The ways
alternate in every round. Printed are medians, and the lowest and highest round: time there and back, and CPU
time per message of both processes and of the kernel's softirq threads. Work of the network in the context of
a process is its own. "machine" in the JSON is what all cores were busy with in the meantime, other
programs included: only on a quiet machine does it say more. Needs root and the program `ip`.
"""

import argparse
import atexit
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


class Namespaces:
    """Two namespaces that a virtual cable connects."""

    def __init__(self):
        self.names = [f"swt{os.getpid()}{end}" for end in "ab"]
        self.addresses = ["10.98.7.1", "10.98.7.2"]
        atexit.register(self.remove)
        for name in self.names:
            ip("netns", "add", name)
        # One queue: frames don't follow the core that sends them.
        ends = []
        for name in self.names:
            ends.append(["cable", "numrxqueues", "1", "numtxqueues", "1", "netns", name])
        ip("link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1])
        for name, address in zip(self.names, self.addresses):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
            ip("-n", name, "link", "set", "lo", "up")
        time.sleep(0.5)

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


def softirq_ns():
    """CPU time of the threads that work off what the network left."""
    total = 0
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/comm") as name:
                if name.read().startswith("ksoftirqd/"):
                    with open(f"/proc/{process}/schedstat") as times:
                        total += int(times.read().split()[0])
        except OSError:
            pass
    return total


def machine_s():
    """Seconds that all cores were busy, and those of them in softirqs."""
    with open("/proc/stat") as lines:
        times = [int(time) / os.sysconf("SC_CLK_TCK") for time in lines.readline().split()[1:]]
    # user, nice, system, idle, iowait, irq, softirq, steal
    return sum(times[:3]) + times[5] + times[6], times[6]


def one(options, spaces, way, waiting, size, rate):
    def start(role, index):
        first = ["chrt", "-r", "10"] if options.realtime else []
        command = ["ip", "netns", "exec", spaces.names[index], *first, options.program]
        command += [role, way, waiting, spaces.addresses[index]]
        command += [str(size), str(rate), str(options.seconds), str(1 - index)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    both = [start("pong", 1), start("ping", 0)]
    try:
        ports = [process.stdout.readline().strip() for process in both]
        if not all(ports):
            sys.exit(f"error: {way}: a process did not start; it says why above")
        before = softirq_ns(), machine_s()
        for process, port, address in zip(both, reversed(ports), spaces.addresses):
            process.stdin.write(f"{address}:{port}\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=options.seconds + 60)[0] for process in both]
        after = softirq_ns(), machine_s()
    finally:
        for process in both:
            if process.poll() is None:
                process.kill()
                process.wait()
    if not all(output.startswith("{") for output in outputs):
        sys.exit(f"error: {way} {waiting} {size} B at {rate}/s: a process failed; it says why above")
    pong, ping = (json.loads(output) for output in outputs)
    count = ping["messages"]
    softirq = (after[0] - before[0]) / 1e3 / count
    processes = [ping["cpu_ns"] / 1e3 / count, pong["cpu_ns"] / 1e3 / pong["messages"]]
    return {
        "way": way, "waiting": waiting, "bytes": size,
        "rate_asked": rate, "rate": ping["rate"],
        "p50_us": ping["p50_us"], "p99_us": ping["p99_us"], "cpu_us": sum(processes) + softirq,
        "ping_cpu_us": processes[0], "pong_cpu_us": processes[1], "softirqd_cpu_us": softirq,
        "machine_busy_s": after[1][0] - before[1][0], "machine_softirq_s": after[1][1] - before[1][1],
    }


def show(runs):
    print("\nwait    bytes      messages/s:   reached   way  p50 us, low to high            p99 us   CPU us")
    print("                        asked                there and back                        per message")
    key = lambda run: (run["waiting"], run["bytes"], run["rate_asked"], run["way"])
    for place, same in itertools.groupby(sorted(runs, key=key), key):
        same = list(same)
        names = ("p50_us", "p99_us", "cpu_us", "rate")
        values = {name: [run[name] for run in same] for name in names}
        middle = {name: statistics.median(value) for name, value in values.items()}
        spread = {name: f"({min(value):,.1f} to {max(value):,.1f})" for name, value in values.items()}
        p50, cpu = (f"{middle[name]:8,.1f} {spread[name]:21}" for name in ("p50_us", "cpu_us"))
        asked = f"{place[2]:,.0f}" if place[2] else "most"
        print(
            f"{place[0]:5} {place[1]:7,} {asked:>15} {middle['rate']:11,.0f}   {place[3]:4} {p50} "
            f"{middle['p99_us']:8,.1f} {cpu}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="the example `transport` of slackwater-link")
    parser.add_argument("--ways", default="tcp,xdp")
    parser.add_argument("--waits", default="sleep,spin")
    parser.add_argument("--bytes", default="64,1024,16384")
    rates = "messages per second; 0: as many as possible"
    parser.add_argument("--rates", default="1000,10000,100000,0", help=rates)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    realtime = "real-time priority, on a machine that is not quiet"
    parser.add_argument("--realtime", action="store_true", help=realtime)
    parser.add_argument("--json", help="a file for all rounds")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: namespaces and AF_XDP need root: run it as root")
    # So that namespaces are removed.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    spaces = Namespaces()
    split = lambda text: text.split(",")
    sizes, rates = map(int, split(options.bytes)), map(float, split(options.rates))
    places = list(itertools.product(split(options.waits), sizes, rates))
    runs = []
    for number in range(options.rounds):
        ways = split(options.ways)
        ways = ways if number % 2 == 0 else ways[::-1]
        for waiting, size, rate in places:
            for way in ways:
                runs.append({"round": number, **one(options, spaces, way, waiting, size, rate)})
        print(f"round {number + 1} of {options.rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
    show(runs)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(runs, file, indent=1)


if __name__ == "__main__":
    main()
