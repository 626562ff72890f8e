"""Runs a query in this process' terminal, and Ray's side beside it."""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any, Dict, List, Optional

from .. import program
from ..problem import FAILED, Problem
from .query import Query

# How long Ray may take to answer when a query starts.
CONNECT_PATIENCE_S = 60.0
# The pause before Ray's side is started again, and the longest.
PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 15.0
LOOK_S = 0.2
PR_SET_PDEATHSIG = 1


def say(text: str) -> None:
    """Tells the user."""
    print(f"ray: {text}", file=sys.stderr, flush=True)


class Driver:
    """Ray's side, as long as there is one."""

    def __init__(self, address: str) -> None:
        environment = dict(os.environ, SLACKWATER_RAY_ADDRESS=address, PYTHONUNBUFFERED="1")
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        paths = [root, *environment.get("PYTHONPATH", "").split(os.pathsep)]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "slackwater.ray.driver"], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )

    def answer(self, patience_s: float) -> Dict[str, Any]:
        """Its first line."""
        output = self._output()
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            line = output.readline() if selector.select(patience_s) else b""
        if line:
            return dict(json.loads(line))
        self.end(0)
        hint = "look at `ray status`, and at its logs in /tmp/ray/session_latest"
        raise Problem("Ray does not answer", hint)

    def has_answered(self) -> bool:
        """Whether there is something to read, or it has ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._output(), selectors.EVENT_READ)
            return bool(selector.select(0))

    def tell(self, told: Dict[str, Any]) -> None:
        """Says what to do."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(told).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            # It has ended, which is looked for.
            pass

    def has_ended(self) -> bool:
        """Whether it has gone."""
        return self._process.poll() is not None

    def end(self, patience_s: float) -> None:
        """The query is over."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(patience_s)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()

    def _output(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout


def start(command: List[str]) -> subprocess.Popen:
    """Starts the query; it is stopped, and saved, if this process is killed."""
    libc = ctypes.CDLL(None)
    return subprocess.Popen(
        command, preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    )


class Watched:
    """Ray's side, started again while the query runs."""

    def __init__(self, driver: Driver, told: Dict[str, Any], address: str) -> None:
        self.driver: Optional[Driver] = driver
        self._told, self._address = told, address
        self._is_told, self._pause_s, self._again_s = True, PAUSE_MIN_S, 0.0
        driver.tell(told)

    def look(self, now_s: float) -> None:
        """Starts it again, if it has ended."""
        if self.driver is None:
            if now_s >= self._again_s:
                self.driver, self._is_told = Driver(self._address), False
            return
        if self.driver.has_ended():
            if self._is_told:
                say("Ray is gone: the query goes on with the agents that it has")
                self._pause_s = PAUSE_MIN_S
            self.driver.end(0)
            self.driver, self._again_s = None, now_s + self._pause_s
            self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)
        elif not self._is_told and self.driver.has_answered():
            if "address" in self.driver.answer(0):
                self.driver.tell(self._told)
                self._is_told = True
                say("Ray is back")


def run(query: Query, address: str) -> int:
    """Runs a query; returns its exit code."""
    binary = program.find(query.binary, "this node")
    key = program.generate_key(binary)
    driver = Driver(address)
    answer = driver.answer(CONNECT_PATIENCE_S)
    if "problem" in answer:
        driver.end(1)
        message, hint, code = answer["problem"]
        raise Problem(message, hint, code)
    place = query.place(answer["address"])
    folder = tempfile.mkdtemp(prefix="slackwater-")
    try:
        process = start(query.command(binary, place, program.write_secret(folder, key)))
        # A terminal sends SIGINT to the query as well: two that follow each other closely are one.
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda number, _: process.send_signal(number))
        watched = Watched(driver, query.told(place, key), address)
        while process.poll() is None:
            watched.look(time.monotonic())
            try:
                process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                pass
        if watched.driver is not None:
            watched.driver.end(10)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    code = process.returncode
    return code if code >= 0 else 128 - code


def report(problem: Problem) -> int:
    """Shows a problem; returns the exit code."""
    print(f"error: {problem}", file=sys.stderr)
    return problem.code or FAILED
