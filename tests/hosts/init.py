"""The first process of a host: makes the host's namespaces, starts commands in them, and reports their ends.

Its standard input is a socket to the rig. When that ends, however the rig died, this process exits, and the
kernel ends all other processes of the host and removes its namespaces, mounts and devices: nothing is left.
"""

import ctypes
import fcntl
import json
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import sys

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWTIME = 0x20000000, 0x40000000, 0x00000080
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MESSAGE_BYTES_MAX = 1 << 17

LIBC = ctypes.CDLL(None, use_errno=True)


def call(what, result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source, target, kind, flags):
    arguments = [text.encode() if text else None for text in (source, target, kind)]
    call(f"mount {target}", LIBC.mount(*arguments, flags, None))


def enter(spec):
    """Makes the namespaces; a host's clock and numbers of processes begin with the next child."""
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWTIME
    call("unshare", LIBC.unshare(flags))
    name = spec["name"].encode()
    call("sethostname", LIBC.sethostname(name, len(name)))
    offset = f"monotonic {spec['clock_s']} 0\nboottime {spec['clock_s']} 0\n"
    pathlib.Path("/proc/self/timens_offsets").write_text(offset)


def furnish(spec):
    """The host's own view of files, and its network devices; returns what the switch needs."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc", 0)
    for source, target in spec["binds"]:
        mount(source, target, None, MS_BIND)
    # A silent host sends nothing at all.
    pathlib.Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    if not spec["tun"]:
        return []
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH14x", b"eth0", IFF_TUN | IFF_NO_PI))
    for text in (f"addr add {spec['address']}/24 dev eth0", "link set eth0 txqueuelen 5000 up"):
        subprocess.run(["ip", *text.split()], check=True)
    return [tun]


class Init:
    """Starts, signals and reaps the host's processes, one request at a time."""

    def __init__(self, rig):
        self.rig = rig
        self.names = {}
        self.woken, wake = os.pipe()
        for end in (self.woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def tell(self, message, descriptors=(), pid=None):
        extra = []
        if descriptors:
            packed = struct.pack(f"{len(descriptors)}i", *descriptors)
            extra.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, packed))
        # The kernel translates the number of a process into that which the rig sees.
        credentials = struct.pack("3i", pid or os.getpid(), 0, 0)
        extra.append((socket.SOL_SOCKET, socket.SCM_CREDENTIALS, credentials))
        self.rig.sendmsg([json.dumps(message).encode()], extra)

    def serve(self):
        poll = select.poll()
        poll.register(self.rig, select.POLLIN)
        poll.register(self.woken, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self.woken:
                    os.read(self.woken, 4096)
                elif not self.take():
                    return
            self.reap()

    def take(self):
        data, descriptors, _, _ = socket.recv_fds(self.rig, MESSAGE_BYTES_MAX, 8)
        if not data:
            return False
        request = json.loads(data)
        if request["do"] == "start":
            self.start(request, descriptors)
        elif request["do"] == "signal":
            self.signal(request)
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def start(self, request, descriptors):
        pid = os.fork()
        if pid == 0:
            try:
                run(request, descriptors)
            finally:
                os._exit(127)
        self.names[pid] = request["process"]
        self.tell({"process": request["process"], "is": "started"}, pid=pid)

    def signal(self, request):
        # Not reaped yet, so the number is still its own.
        for pid, name in self.names.items():
            if name == request["process"]:
                os.kill(pid, request["number"])

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self.names.pop(pid, None)
            # Orphans, whose parents were killed, end here too.
            if name is not None:
                self.tell({"process": name, "is": "ended", "code": os.waitstatus_to_exitcode(status)})


def run(request, descriptors):
    """In the child: becomes the command."""
    os.setsid()
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(descriptors[0], 1)
    os.dup2(descriptors[1], 2)
    try:
        os.chdir(request["cwd"])
        os.execvpe(request["command"][0], request["command"], request["environment"])
    except OSError as error:
        os.write(2, f"{request['command'][0]}: {error}\n".encode())


def main():
    spec = json.loads(sys.argv[1])
    rig = socket.socket(fileno=0)
    # Ctrl-C at the rig's terminal is the rig's business.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    enter(spec)
    pid = os.fork()
    if pid:
        rig.detach()
        os.close(0)
        os.waitpid(pid, 0)
        return
    descriptors = furnish(spec)
    init = Init(rig)
    init.tell({"is": "ready"}, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    init.serve()


if __name__ == "__main__":
    main()
