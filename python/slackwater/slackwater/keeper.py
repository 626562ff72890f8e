"""Keeps a program that outlives whoever started it: an agent, or the query's own process.

Run as a program by its path, with the standard library alone. Ray kills the processes that its workers have
started, and its workers when it loses sight of the head. A query needs neither, so its processes are kept
here:

    {"command": [...], "folder": PATH, "mark": PATH or null, …}  the first line of standard input
    stop                                                        SIGTERM to the program; again: SIGKILL
    (end of input)                                              whoever started it has gone

    {"code": 0, "said": "the last lines"}                       the last line of standard output

An orphan goes on as long as its mark is there, the file that says that it has joined a query, or without
one as long as it runs. After that it is ended. The folder, which has the secret, is removed at the end, and
the secret as soon as the program has joined.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Optional

# An agent that is told to stop leaves within 30 s.
STOP_PATIENCE_S = 35.0
LOOK_S = 0.2
SAID_BYTES = 4096
PR_SET_PDEATHSIG = 1


def leave() -> None:
    """Becomes a process that nobody waits for, and that no signal to a group or a terminal reaches."""
    if os.fork():
        os._exit(0)
    os.setsid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)


def be_as_others() -> None:
    """Ray's workers give way to everybody (nice 15), which a query is not to do, if it may change that."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    except OSError:
        # Only root may: docs/ray.md says how to start Ray instead.
        pass


def start(order: dict) -> subprocess.Popen:
    """Starts the program; it is killed if this process is."""
    parent = os.getpid()
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # Ignored signals would stay ignored.
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        if os.getppid() != parent:
            os._exit(1)

    with open(os.path.join(order["folder"], "said"), "wb") as said:
        return subprocess.Popen(
            order["command"], stdin=subprocess.DEVNULL, stdout=said, stderr=said, preexec_fn=prepare
        )


def keep(order: dict, program: subprocess.Popen) -> int:
    """Waits for the program's end; returns its exit code."""
    mark: Optional[str] = order["mark"]
    secret: Optional[str] = order.get("secret")
    is_orphan, seen, kill_at, unread = False, time.monotonic(), None, b""
    while program.poll() is None:
        inputs = [] if is_orphan else [0]
        readable, _, _ = select.select(inputs, [], [], LOOK_S)
        now = time.monotonic()
        if readable:
            read = os.read(0, 4096)
            unread += read
            is_orphan = not read
            while b"\n" in unread:
                line, unread = unread.split(b"\n", 1)
                if line == b"stop":
                    number = signal.SIGTERM if kill_at is None else signal.SIGKILL
                    program.send_signal(number)
                    kill_at = kill_at or now + STOP_PATIENCE_S
        has_joined = mark is None or os.path.exists(mark)
        if has_joined:
            seen = now
            if secret and mark is not None:
                remove(secret)
                secret = None
        if is_orphan and now - seen > order["orphan_patience_s"] and kill_at is None:
            program.terminate()
            kill_at = now + STOP_PATIENCE_S
        if kill_at is not None and now > kill_at:
            program.kill()
    return program.returncode


def remove(path: str) -> None:
    """Removes a file, if it is there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def tail(path: str) -> str:
    """The last lines of a file."""
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - SAID_BYTES))
        return file.read().decode(errors="replace")


def main() -> None:
    """Keeps one program."""
    # Byte by byte: what follows the line belongs to select.
    line = b""
    while not line.endswith(b"\n"):
        read = os.read(0, 1)
        if not read:
            return
        line += read
    order = json.loads(line)
    leave()
    be_as_others()
    try:
        ended = {"code": keep(order, start(order)), "said": tail(os.path.join(order["folder"], "said"))}
    except OSError as error:
        ended = {"code": 127, "said": str(error)}
    shutil.rmtree(order["folder"], ignore_errors=True)
    try:
        os.write(1, json.dumps(ended).encode() + b"\n")
    except OSError:
        # Nobody listens any more.
        pass


if __name__ == "__main__":
    sys.exit(main())
