"""A server for tests: the program of the checkout, on a free port, with its data in a temporary folder."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
PATIENCE_S = 60


def program() -> str | None:
    """The program: SLACKWATER_PROGRAM, or the newest build of the checkout."""
    named = os.environ.get("SLACKWATER_PROGRAM")
    if named:
        return named
    built = [os.path.join(ROOT, "target", kind, "slackwater") for kind in ("debug", "release")]
    built = [path for path in built if os.access(path, os.X_OK)]
    return max(built, key=os.path.getmtime) if built else None


needs_program = unittest.skipUnless(program(), "the program is not built: cargo build")


class Served:
    """A server. `with Served() as served`: it has ended, and its folder is gone, at the end."""

    def __init__(self, token: str | None = None) -> None:
        self.folder = tempfile.mkdtemp(prefix="slackwater-test-")
        self.token = token
        self.port = 0
        self.log: list[str] = []
        self.start()

    def start(self) -> None:
        """Starts it; again with the same data and the same port."""
        command = [program(), "serve", "--dir", os.path.join(self.folder, "data"), "--pg", "off"]
        command += ["--http", f"127.0.0.1:{self.port}"]
        variables = {name: value for name, value in os.environ.items() if name != "SLACKWATER_TOKEN"}
        if self.token is not None:
            variables["SLACKWATER_TOKEN"] = self.token
        self.process = subprocess.Popen(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=variables,
        )  # fmt: skip
        ready = threading.Event()
        self._reading = threading.Thread(target=self._read, args=(ready,), daemon=True)
        self._reading.start()
        if not ready.wait(PATIENCE_S) or not self.port:
            self.kill()
            raise AssertionError("the server has not started: " + "\n".join(self.log))

    def _read(self, ready: threading.Event) -> None:
        for line in self.process.stderr:
            self.log.append(line.rstrip())
            if found := re.search(r"ready for a browser at http://127.0.0.1:(\d+)/", line):
                self.port = int(found[1])
                ready.set()
        ready.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """Ends it as a lack of memory does."""
        self.process.kill()
        self._ended()

    def _ended(self) -> None:
        self.process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        self.process.stderr.close()

    def stop(self) -> None:
        """Ends it as a user does, and removes its data."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self._ended()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
