"""One run of the program, and checks of how it ended."""

import os
import pathlib
import resource
import signal
import subprocess
import threading
import time

# No undisturbed run takes longer; a stopped one is not waited for.
PATIENCE_S = 90


class Failed(Exception):
    """A broken promise."""


class Run:
    """A running process of the program. `tracing` contains arguments of strace."""

    def __init__(self, program, arguments, folder, tracing=None, file_bytes_max=None, says_to=None, title=""):
        self.title = title
        self.said_bytes = []
        self.harmed = []
        self.code = None
        command = [program, *arguments]
        if tracing:
            # -D: the tracer becomes the grandchild, and this process is the program.
            command = ["strace", "-D", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", *tracing, *command]

        def limit():
            if file_bytes_max is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))

        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if says_to is None else open(says_to, "wb"),
            preexec_fn=limit,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        # A pipe, not a file: the round's limits of files and its full disks must not affect messages.
        for line in self.process.stderr or []:
            self.said_bytes.append(line)

    @property
    def pid(self):
        return self.process.pid

    def workers(self):
        """The processes that it has started."""
        children = []
        for task in pathlib.Path(f"/proc/{self.pid}/task").glob("*/children"):
            try:
                children += [int(pid) for pid in task.read_text().split()]
            except OSError:
                pass
        return [pid for pid in children if is_worker(pid)]

    def is_running(self):
        return self.process.poll() is None

    def send(self, number, pid=None):
        try:
            os.kill(pid or self.pid, number)
            return True
        except ProcessLookupError:
            return False

    def ends_within(self, seconds):
        try:
            self.process.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            return False

    def said(self):
        if not self.is_running():
            # Workers of a killed process may take a moment to end.
            self.reader.join(2)
        return b"".join(list(self.said_bytes)).decode(errors="replace")

    def finish(self, patience_s=PATIENCE_S):
        """Waits for its end, and checks how it ended; returns its outcome."""
        if not self.ends_within(patience_s):
            stacks = ""
            self.send(signal.SIGKILL)
            self.process.wait()
            raise Failed(f"{self.title}: hangs: not ended after {patience_s} s {stacks}\n{self.said()}")
        self.code = self.process.returncode
        said = self.said()
        for word in ("panicked at", "internal error", "RUST_BACKTRACE"):
            if word in said:
                raise Failed(f"{self.title}: panics:\n{said}")
        if "and checkpointed" in said and "before a last checkpoint" in said:
            raise Failed(f"{self.title}: says that it was saved, and that it was not:\n{said}")
        if self.code == 0:
            return "saved" if "stopped before its inputs ended" in said else "finished"
        if self.code < 0:
            if -self.code in self.harmed:
                return "killed"
            raise Failed(f"{self.title}: ended by signal {-self.code}, which was not sent\n{said}")
        if self.code not in (1, 2):
            raise Failed(f"{self.title}: exit code {self.code}\n{said}")
        error = said.partition("error: ")[2]
        if not error.strip():
            raise Failed(f"{self.title}: exit code {self.code} without an error\n{said}")
        return "refused" if self.code == 2 else "failed"

    def end(self):
        if self.is_running():
            self.send(signal.SIGCONT)
            self.send(signal.SIGKILL)
            self.process.wait()
        self.reader.join(2)


def is_worker(pid):
    try:
        return b"slackwater" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def sleep(rng, at_most_s):
    """Sleeps for a random time; returns how long as text."""
    seconds = rng.random() * at_most_s
    time.sleep(seconds)
    return f"{seconds * 1000:.0f} ms later"
