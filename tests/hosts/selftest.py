"""The rig tests itself, without the program: `run.py --self-test`.

What takes time on a busy machine is printed. Asserted is what holds on any machine: a delay is not shorter
than it was asked for, a cut loses everything, a loss is of the size that chance allows.
"""

import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from host import MARK, PATIENCE_S, Failed, cpu_s, is_alive, signal_all, tree, until_calm, wait_for, wakeups
from net import Net

HERE = pathlib.Path(__file__).resolve().parent
PEER = [sys.executable, "-B", str(HERE / "peer.py")]
DAY_S = 86_400
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def check(holds, what):
    if not holds:
        raise Failed(what)


def answer(host, *words):
    """What a peer prints."""
    process = host.run(words[0], [*PEER, *words])
    check(process.code == 0, f"{words}: {process.code}\n{process.said()}")
    return json.loads(process.output())


def echo(host):
    process = host.start("echo", [*PEER, "echo"])
    wait_for("the echo", lambda: "ready" in process.output() or not process.is_running())
    return process


def middle(values):
    return sorted(values)[len(values) // 2]


@test
def echoes_over_each_network(folder):
    said = []
    for kind in ("bridge", "switch", "loopback"):
        with Net(["a", "b"], folder / kind, kind=kind) as net:
            echo(net["b"])
            trips = answer(net["a"], "ask", net["b"].address, "200")
            said.append(f"{kind} {middle(trips):.3f} ms")
    return "round trip p50: " + ", ".join(said)


@test
def delays_are_as_asked_for(folder):
    said = []
    with Net(["a", "b"], folder) as net:
        echo(net["b"])
        for delay_ms, jitter_ms in ((5, 0), (20, 0), (50, 20), (0, 0)):
            net.set(delay_ms=delay_ms, jitter_ms=jitter_ms)
            trips = answer(net["a"], "ask", net["b"].address, "30")
            least = 2 * (delay_ms - jitter_ms)
            check(min(trips) >= least, f"{delay_ms} ± {jitter_ms} ms: a round trip of {min(trips):.3f} ms")
            check(not jitter_ms or max(trips) - min(trips) > jitter_ms / 4, f"no jitter: {trips}")
            said.append(f"{delay_ms}±{jitter_ms}: {min(trips):.1f}/{middle(trips):.1f}/{max(trips):.1f}")
    return "asked for one way, measured round trip (least/p50/most ms): " + ", ".join(said)


@test
def cuts_lose_all_and_heal(folder):
    for kind in ("switch", "bridge"):
        with Net(["a", "b", "c"], folder / kind, kind=kind) as net:
            for name in ("a", "b", "c"):
                echo(net[name])
            reach = lambda source, to: answer(net[source], "reach", net[to].address, "0.5")
            for _ in range(2):
                check(reach("a", "b") and reach("b", "a") and reach("a", "c"), f"{kind}: not connected")
                net.cut("b")
                check(not reach("a", "b") and not reach("b", "a"), f"{kind}: a cut host is reached")
                check(reach("a", "c"), f"{kind}: hosts that are not cut don't reach each other")
                net.heal("b")
                # A bridge's port takes a moment until it forwards again.
                wait_for("the bridge's port", lambda: reach("a", "b"), limit_s=20)


@test
def one_way_cuts_lose_one_direction(folder):
    with Net(["a", "b"], folder) as net:
        for source, to in (("a", "b"), ("b", "a")):
            net.cut_one_way(source, to)
            for begin, end, arrives in ((source, to, False), (to, source, True)):
                counter = net[end].start("count", [*PEER, "count", "0.3"])
                wait_for("the counter", lambda: "ready" in counter.output())
                net[begin].run("send", [*PEER, "send", net[end].address, "50"])
                if not arrives:
                    counter.kill()
                    check("50" not in counter.output(), f"{begin} reaches {end}")
                else:
                    counter.wait()
                    check(counter.output().split()[1] == "50", f"{begin} to {end}: {counter.output()}")
                counter.wait()
            net.heal()


@test
def losses_are_as_asked_for(folder):
    sent, said = 20_000, []
    with Net(["a", "b"], folder) as net:
        for loss in (0.0, 0.01, 0.2):
            net.set(loss=loss)
            before = net.counts()
            counter = net["b"].start("count", [*PEER, "count", "1"])
            wait_for("the counter", lambda: "ready" in counter.output())
            net["a"].run("send", [*PEER, "send", net["b"].address, str(sent)])
            counter.wait()
            after = net.counts()
            came, lost = int(counter.output().split()[1]), after["lost"] - before["lost"]
            check(after["dropped"] == before["dropped"], "a queue was full")
            check(came + lost == sent, f"{came} came, {lost} were lost, {sent} were sent")
            # Five standard deviations of as many throws.
            allowed = 5 * math.sqrt(sent * loss * (1 - loss))
            check(abs(lost - sent * loss) <= allowed, f"loss {loss}: {lost} of {sent}")
            said.append(f"{loss:.0%}: {lost} of {sent}")
    return "lost: " + ", ".join(said)


@test
def bandwidth_is_limited(folder):
    said = []
    for kind in ("switch", "bridge"):
        with Net(["a", "b"], folder / kind, kind=kind) as net:
            echo(net["b"])
            free = answer(net["a"], "fill", net["b"].address, str(1 << 20))
            net.set(mbit=10)
            limited = answer(net["a"], "fill", net["b"].address, str(1 << 21))
            # TBF has a bucket of 64 KB that is full in the beginning.
            check(limited * 8 / 1e6 < 11, f"{kind}: {limited * 8 / 1e6:.1f} Mbit/s")
            said.append(f"{kind} {free * 8 / 1e6:.0f} and {limited * 8 / 1e6:.1f} Mbit/s of 10")
    return ", ".join(said)


@test
def clocks_are_apart(folder):
    clocks = {"b": DAY_S, "c": 7 * DAY_S}
    with Net(["a", "b", "c"], folder, clocks=clocks) as net:
        found = {}
        for name in ("a", "b", "c"):
            before = time.monotonic()
            clock_s, hostname, pid = answer(net[name], "clock")
            after = time.monotonic()
            found[name] = clock_s - clocks.get(name, 0)
            check(before <= found[name] <= after, f"{name}: {clock_s}, {before} to {after} here")
            check(hostname == name and pid < 100, f"{name} is called {hostname}, with process {pid}")


@test
def files_can_be_a_hosts_own(folder):
    place, own = folder / "place", folder / "own"
    for path in (place, own):
        path.mkdir()
        (path / "file").write_text(path.name)
    with Net(["a", "b"], folder, kind="bridge", binds={"b": [(own, place)]}) as net:
        for name, content in (("a", "place"), ("b", "own")):
            process = net[name].run("cat", ["cat", str(place / "file")])
            check(process.output() == content, f"{name} sees {process.output()}")
    check((place / "file").read_text() == "place", "a mount is left")


@test
def processes_are_stopped_killed_and_counted(folder):
    with Net(["a"], folder) as net:
        host = net["a"]
        process = host.start("sleep", [*PEER, "sleep", "600"])
        wait_for("the child", lambda: "ready" in process.output() and len(host.pids()) == 2)
        check(tree(process.pid) == host.pids(), f"{tree(process.pid)}, {host.pids()}")
        check(cpu_s(host.pids()) > 0, "no CPU time")
        before = until_calm(host.pids)
        time.sleep(1)
        check(wakeups(host.pids()) == before and len(before) >= 2, "sleepers were woken")
        signal_all(host.pids, signal.SIGSTOP)
        states = lambda: {pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] for pid in host.pids()}
        wait_for("all are stopped", lambda: states() == {"T"})
        signal_all(host.pids, signal.SIGCONT)
        wait_for("none is stopped", lambda: states() == {"S"})
        child = host.pids()[1]
        process.kill()
        check(process.wait() == -signal.SIGKILL, f"{process.code}")
        check(is_alive(child), "an orphan has ended too")
        os.kill(child, signal.SIGTERM)
        wait_for("the first process reaps orphans", lambda: not host.pids())
        check(host.run("none", ["/none"]).code == 127, "a missing program has another exit code")


@test
def a_rig_that_is_killed_leaves_nothing(folder):
    text = (
        "import signal, sys, time, pathlib; sys.path.insert(0, sys.argv[1])\n"
        # Shells let what runs in their background ignore it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from net import Net\n"
        "folder = pathlib.Path(sys.argv[2])\n"
        "nets = [Net(['a', 'b'], folder / kind, kind=kind) for kind in ('switch', 'bridge')]\n"
        "for net in nets:\n"
        "    net['b'].start('sleep', [sys.executable, sys.argv[1] + '/peer.py', 'sleep', '600'])\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n")
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        rig = subprocess.Popen([sys.executable, "-B", "-c", text, str(HERE), str(folder / str(int(number)))],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env={**os.environ, MARK: str(folder)})
        check(rig.stdout.readline() == "ready\n", "the other rig has not started")
        # Two hosts each, a hub, and where the rig itself is.
        made = {space for pid in left(folder) for space in [space_of(pid)]}
        check(len(made) == 6, f"it has made {made}")
        rig.send_signal(number)
        rig.wait(PATIENCE_S)
        rig.stdout.close()
        wait_for(lambda: f"processes that are left: {left(folder)}", lambda: not left(folder))


def left(folder):
    """The processes of the rig with a folder, hosts and switches among them."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = pathlib.Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"{MARK}={folder}".encode() in environment:
            found.append(int(entry))
    return found


def space_of(pid):
    """The network namespace of a process, or nothing if it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def own_children():
    return {pid for pid in tree(os.getpid()) if pid != os.getpid()}


def main():
    """Returns whether all is as it should be."""
    devices = lambda: sorted(os.listdir("/sys/class/net"))
    mounts = lambda: len(pathlib.Path("/proc/self/mounts").read_text().splitlines())
    devices_before, mounts_before, is_good = devices(), mounts(), True
    for function in TESTS:
        name = function.__name__.replace("_", " ")
        before, begun, error = own_children(), time.monotonic(), None
        with tempfile.TemporaryDirectory(prefix="slackwater-hosts-") as folder:
            try:
                said = function(pathlib.Path(folder)) or ""
            except Failed as failed:
                error = str(failed)
        if error is None and own_children() - before:
            error = f"processes are left: {own_children() - before}"
        outcome = "ok" if error is None else "FAILED"
        is_good = is_good and error is None
        print(f"{outcome:<7}{time.monotonic() - begun:>6.1f} s  {name}", flush=True)
        print(f"{'':17}{error or said}", flush=True) if error or said else None
    if (devices(), mounts()) != (devices_before, mounts_before):
        print(f"FAILED: devices {devices()}, {mounts()} mounts; before {devices_before}, {mounts_before}")
        is_good = False
    return is_good
