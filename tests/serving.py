"""Starts `slackwater serve` for tests, and stops it. Only the standard library."""

import os
import re
import signal
import subprocess
import threading
import time

PATIENCE_S = 60


class Server:
    """A server on free ports of the loopback address, with its folder. Its log is in `log`, a line each."""

    def __init__(self, program, folder, *arguments, http=False):
        self.log, self.pg_port, self.http_port = [], None, None
        command = [program, "serve", "--dir", os.path.join(folder, "data"), "--pg", "127.0.0.1:0",
                   "--http", "127.0.0.1:0" if http else "off", *arguments]
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True)
        ready = threading.Event()
        self.reading = threading.Thread(target=self.read, args=(ready,), daemon=True)
        self.reading.start()
        ready.wait(PATIENCE_S)
        if not self.pg_port:
            self.process.kill()
            raise SystemExit("the server has not started: " + "\n".join(self.log))

    def read(self, ready):
        for line in self.process.stderr:
            self.log.append(line.rstrip())
            if found := re.search(r"ready for a browser at http://127.0.0.1:(\d+)/", line):
                self.http_port = int(found[1])
            if found := re.search(r"ready for psql -h 127.0.0.1 -p (\d+)", line):
                self.pg_port = int(found[1])
                ready.set()
        ready.set()

    def memory_max(self):
        """The most bytes of memory that the server's process has had; its jobs have their own."""
        return memory_max(self.process.pid)

    def stop(self):
        """Ends it as a user does. Returns whether it ended well."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE_S) == 0
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return False


def wait_for(what, wanted, limit_s=PATIENCE_S):
    """Calls `wanted` until it is true."""
    end = time.monotonic() + limit_s
    while not wanted():
        if time.monotonic() > end:
            raise SystemExit(f"not in {limit_s} s: {what}")
        time.sleep(0.05)


def memory_max(pid, line="VmHWM"):
    """The most bytes of memory that a process has had; with the line VmRSS, those that it has."""
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(line + r":\s+(\d+) kB", file.read())[1]) << 10
