"""A host of a test: it starts commands, signals their processes and says what they cost."""

import ctypes
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
# In the environment of everything that a rig starts: the self-test finds what is left by it.
MARK = "SLACKWATER_RIG"
PATIENCE_S = 60
MESSAGE_BYTES_MAX = 1 << 17
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """A broken promise, of the program or of the rig."""


class Skipped(Exception):
    """A scenario that can't run here, with its reason."""


def wait_for(what, wanted, limit_s=PATIENCE_S, every_s=0.02):
    """Calls `wanted` until it returns something true, and returns that."""
    end = time.monotonic() + limit_s
    while True:
        found = wanted()
        if found:
            return found
        if time.monotonic() > end:
            raise Failed(f"not within {limit_s} s: {what() if callable(what) else what}")
        time.sleep(every_s)


def marked():
    """The environment of what a rig starts."""
    return {MARK: "1", **os.environ}


class Process:
    """A command in a host, with its log files. `code` is negative for a signal, as in subprocess."""

    def __init__(self, host, name, log):
        self.host, self.name, self.log = host, name, log
        self.pid, self.code = None, None
        self.begun, self.ended = threading.Event(), threading.Event()

    def is_running(self):
        return not self.ended.is_set()

    def wait(self, limit_s=PATIENCE_S):
        """The exit code."""
        if not self.ended.wait(limit_s):
            raise Failed(f"{self.name} on {self.host.name}: has not ended within {limit_s} s\n{self.tail()}")
        return self.code

    def send(self, number):
        """Sends a signal, unless the process has ended."""
        if self.is_running():
            self.host.ask({"do": "signal", "process": self.name, "number": int(number)})

    def kill(self):
        self.send(signal.SIGKILL)

    def output(self):
        return self.log.with_suffix(".out").read_text(errors="replace")

    def said(self):
        """What it has written to its standard error."""
        return self.log.with_suffix(".err").read_text(errors="replace")

    def tail(self, lines=40):
        return "\n".join(self.said().splitlines()[-lines:])

    def tree(self):
        """The process and all its descendants that run, parents first."""
        return tree(self.pid) if self.pid else []

    def workers(self):
        """The worker processes that it has started."""
        return [pid for pid in children(self.pid) if is_program(pid)] if self.pid else []


class Host:
    """A set of namespaces with a first process that starts the others. On the loopback network one host has
    all names."""

    def __init__(self, name, address, logs, clock_s=0, binds=(), tun=False):
        self.name, self.address, self.logs, self.clock_s = name, address, logs, clock_s
        self.processes, self.count = {}, 0
        self.lock = threading.Lock()
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        binds = [(str(source), str(target)) for source, target in binds]
        spec = {"name": name, "address": address, "clock_s": clock_s, "binds": binds, "tun": tun}
        self.middle = subprocess.Popen(
            [sys.executable, "-B", str(HERE / "init.py"), json.dumps(spec)], stdin=theirs,
            stdout=subprocess.DEVNULL, env=marked())
        theirs.close()
        self.socket.settimeout(PATIENCE_S)
        message, self.init, descriptors = self.receive()
        if message is None:
            raise Failed(f"{name}: its namespaces can't be made")
        self.tun = descriptors[0] if descriptors else None
        self.socket.settimeout(None)
        self.space = os.readlink(f"/proc/{self.init}/ns/pid")
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def receive(self):
        """A message, the process that it is about, and descriptors; nothing when the host is gone."""
        room = socket.CMSG_SPACE(12) + socket.CMSG_SPACE(4 * 4)
        data, extra, _, _ = self.socket.recvmsg(MESSAGE_BYTES_MAX, room)
        pid, descriptors = 0, []
        for _, kind, content in extra:
            if kind == socket.SCM_CREDENTIALS:
                pid = struct.unpack("3i", content)[0]
            elif kind == socket.SCM_RIGHTS:
                descriptors += struct.unpack(f"{len(content) // 4}i", content)
        return (json.loads(data) if data else None), pid, descriptors

    def read(self):
        while True:
            try:
                message, pid, _ = self.receive()
            except OSError:
                message = None
            if message is None:
                break
            process = self.processes[message["process"]]
            if message["is"] == "started":
                process.pid = pid
                process.begun.set()
            else:
                process.code = message["code"]
                process.ended.set()
        # The host is gone, and all of its processes with it.
        for process in list(self.processes.values()):
            if process.code is None:
                process.code = -signal.SIGKILL
            process.begun.set()
            process.ended.set()

    def ask(self, request, descriptors=()):
        with self.lock:
            try:
                socket.send_fds(self.socket, [json.dumps(request).encode()], descriptors)
            except OSError:
                pass

    def start(self, name, command, environment=None, folder="/"):
        """Starts a command; log files are named after the host, its count of commands, and the name."""
        with self.lock:
            self.count += 1
            log = self.logs / f"{self.name}-{self.count:02}-{name}"
            process = Process(self, log.name, log)
            self.processes[process.name] = process
        outputs = [open(log.with_suffix(ending), "ab") for ending in (".out", ".err")]
        own = {**marked(), "HOSTNAME": self.name, **(environment or {})}
        request = {"do": "start", "process": process.name, "command": [str(word) for word in command],
                   "environment": own, "cwd": str(folder)}
        self.ask(request, [output.fileno() for output in outputs])
        for output in outputs:
            output.close()
        if not process.begun.wait(PATIENCE_S):
            raise Failed(f"{name} on {self.name}: has not started")
        return process

    def run(self, name, command, limit_s=PATIENCE_S, **more):
        """Runs a command to its end."""
        process = self.start(name, command, **more)
        process.wait(limit_s)
        return process

    def pids(self):
        """All processes of the host but its first, as the rig numbers them."""
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == self.init:
                continue
            try:
                if os.readlink(f"/proc/{entry}/ns/pid") == self.space:
                    found.append(int(entry))
            except OSError:
                pass
        return sorted(found)

    def listening(self, pids=None):
        """The addresses and TCP ports at which processes of the host listen, all of them or some."""
        wanted = None
        if pids is not None:
            wanted = {link for pid in pids for link in sockets(pid)}
        found = set()
        for line in pathlib.Path(f"/proc/{self.init}/net/tcp").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and (wanted is None or f"socket:[{words[9]}]" in wanted):
                address, port = words[1].split(":")
                found.add((socket.inet_ntoa(struct.pack("=I", int(address, 16))), int(port, 16)))
        return sorted(found)

    def connect(self, port, limit_s):
        """A connection to one of its own ports, from inside its network."""
        outcome = []

        def enter_and_connect():
            # A network belongs to a thread: this one ends with it.
            try:
                with open(f"/proc/{self.init}/ns/net", "rb") as space:
                    if LIBC.setns(space.fileno(), CLONE_NEWNET) != 0:
                        raise OSError(ctypes.get_errno(), "setns")
                outcome.append(socket.create_connection((self.address, port), limit_s))
            except OSError as error:
                outcome.append(error)

        thread = threading.Thread(target=enter_and_connect, daemon=True)
        thread.start()
        thread.join()
        if isinstance(outcome[0], OSError):
            raise outcome[0]
        return outcome[0]

    def close(self):
        """Ends the host, and with it all of its processes."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        try:
            self.middle.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.middle.kill()
            self.middle.wait()
        self.reader.join(PATIENCE_S)
        self.socket.close()
        if self.tun is not None:
            os.close(self.tun)
            self.tun = None


def children(pid):
    """The processes that a process has started."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:
            pass
    return sorted(found)


def tree(pid):
    found = [pid] if is_alive(pid) else []
    for child in children(pid):
        found += tree(child)
    return found


def is_alive(pid):
    """Whether a process runs, and is no zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def kill(pid):
    """kill -9 of a process, which may have ended meanwhile, as its parent was killed before it."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def is_program(pid):
    try:
        return b"slackwater" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def sockets(pid):
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for descriptor in descriptors:
        try:
            yield os.readlink(f"/proc/{pid}/fd/{descriptor}")
        except OSError:
            pass


def signal_all(list_pids, number):
    """Signals processes until no new ones appear; returns them. `list_pids` lists those that are there."""
    signaled = set()
    while True:
        new = [pid for pid in list_pids() if pid not in signaled]
        if not new:
            return sorted(signaled)
        for pid in new:
            signaled.add(pid)
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass


def cpu_s(pids):
    """The CPU time of all threads of processes, as the scheduler counts it."""
    total_ns = 0
    for task in tasks(pids):
        try:
            total_ns += int((task / "schedstat").read_text().split()[0])
        except OSError:
            pass
    return total_ns / 1e9


def wakeups(pids):
    """The voluntary context switches of each thread of processes, by process and thread."""
    found = {}
    for task in tasks(pids):
        try:
            lines = (task / "status").read_text().splitlines()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        place = (int(task.parts[2]), int(task.name), fields["Name"].strip())
        found[place] = int(fields["voluntary_ctxt_switches"])
    return found


def until_calm(list_pids, calm_s=1.0, limit_s=PATIENCE_S):
    """Waits until no thread was woken for a while; returns the wakeups so far."""
    last = [None]

    def is_calm():
        before, last[0] = last[0], wakeups(list_pids())
        return last[0] == before

    wait_for("no thread is woken any more", is_calm, limit_s, every_s=calm_s)
    return last[0]


def tasks(pids):
    for pid in pids:
        yield from pathlib.Path(f"/proc/{pid}/task").glob("*")


def memory_max(pid, line="VmHWM"):
    """The most bytes of memory that a process has had; with the line VmRSS, those that it has."""
    for text in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if text.startswith(line + ":"):
            return int(text.split()[1]) << 10
    raise Failed(f"process {pid} is gone")
