"""Roots for tests of packages: this machine's, over which changes are thrown away, and one that has glibc and
nothing else. Nothing of this machine is changed. Needs root, for namespaces."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

PATIENCE_S = 60
# What a program without Rust, and without this machine's other installations, finds.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp"}

# In a mount namespace of its own: $1 becomes a root that looks like this machine's.
OVER = """set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/changes" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/changes,workdir=$1/work" "$1/root"
# No toolchain: these are in the homes of users.
mount -t tmpfs tmpfs "$1/root/root"
mkdir "$1/root/root/packages"
mount --bind "$2" "$1/root/root/packages"
"""
INSIDE = OVER + """
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
root="$1/root"
shift 2
exec chroot "$root" "$@"
"""
BOOTED = OVER + """
: > "$1/root/etc/machine-id"
exec systemd-nspawn --quiet --directory "$1/root" --boot --register=no --keep-unit --private-network \
  --console=pipe systemd.unit=basic.target
"""


class Failed(Exception):
    """The package does not do what is expected."""


class Skipped(Exception):
    """This machine can't check it; why."""


def needs_root():
    if os.geteuid() != 0:
        raise Skipped("namespaces need root")


def checked(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        shown = " ".join(map(str, command[-6:]))
        raise Failed(f"{shown}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def first_rows(command, wanted, patience=PATIENCE_S, **options):
    """Runs a demo until it has printed so many lines; ends it with Ctrl-C; the lines."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    lines, until = [], time.monotonic() + patience
    try:
        while len(lines) < wanted:
            line = process.stdout.readline()
            if not line or time.monotonic() > until:
                process.kill()
                raise Failed(f"{len(lines)} lines came: {lines}\n{process.stderr.read()}")
            lines.append(line.rstrip())
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    if process.returncode != 0:
        raise Failed(f"Ctrl-C: exit code {process.returncode}\n{said}")
    return lines


class Throwaway:
    """This machine's root; what is changed in it is gone afterwards. /root/packages has `packages`."""

    def __init__(self, packages):
        needs_root()
        self.folder = tempfile.mkdtemp(prefix="slackwater-root-")
        self.packages = str(packages)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, script, **options):
        """Runs a script of the shell in it. What one script has changed, the next one does not see."""
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", INSIDE, "sh"]
        command += [self.folder, self.packages, "/bin/sh", "-ec", script]
        return checked(command, env=ENVIRONMENT, timeout=10 * PATIENCE_S, **options)


class Booted:
    """A machine with this one's root and a systemd of its own. Its network is the loopback device."""

    def __init__(self, packages):
        needs_root()
        if not shutil.which("systemd-nspawn"):
            raise Skipped("systemd-nspawn is missing: apt-get install systemd-container")
        self.folder = tempfile.mkdtemp(prefix="slackwater-booted-")
        self.log = open(f"{self.folder}.log", "w+", encoding="utf-8")
        command = ["unshare", "--mount", "sh", "-c", BOOTED, "sh", self.folder, str(packages)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=ENVIRONMENT)
        self.init = None

    def __enter__(self):
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            found = children.read_text().split() if children.exists() else []
            self.init = found[0] if found else None
            if self.init and self.is_running():
                return self
            time.sleep(0.2)
        said = self.said()
        self.__exit__()
        raise Skipped(f"systemd does not boot in a namespace here\n{said}")

    def __exit__(self, *_):
        if self.process.poll() is None:
            # Of nspawn: the machine is powered off at once.
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        os.unlink(self.log.name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def is_running(self):
        _, said = self.try_run("systemctl is-system-running")
        return said.strip() in ("running", "degraded")

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def try_run(self, script):
        """The exit code and the output of a script of the shell."""
        command = ["nsenter", "--target", self.init, "--all", "/bin/sh", "-ec", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT,
                              timeout=5 * PATIENCE_S)
        return done.returncode, done.stdout + done.stderr

    def run(self, script):
        code, said = self.try_run(script)
        if code != 0:
            _, journal = self.try_run("journalctl --no-pager --lines 40 || true")
            raise Failed(f"{script}: exit code {code}\n{said}\n{journal}")
        return said

    def until(self, script, wanted, patience=PATIENCE_S):
        """Runs a script until its output is as wanted."""
        end = time.monotonic() + patience
        while True:
            _, said = self.try_run(script)
            if wanted(said):
                return said
            if time.monotonic() > end:
                _, journal = self.try_run("journalctl --no-pager --lines 40 || true")
                raise Failed(f"{script}: {said}\n{journal}")
            time.sleep(0.1)


def glibc(folder):
    """Makes a root with this machine's glibc and nothing else."""
    for library in ("c", "m", "pthread", "dl", "rt", "util"):
        for path in pathlib.Path("/lib").glob(f"*-linux-gnu/lib{library}.so.[0-9]*"):
            target = folder / str(path.parent).lstrip("/")
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    said = checked(["readelf", "--program-headers", "/bin/sh"])
    loader = pathlib.Path(re.search(r"interpreter: (\S+)\]", said)[1])
    target = folder / str(loader.parent).lstrip("/")
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(loader, target)
    for name in ("proc", "tmp", "dev"):
        (folder / name).mkdir()


def in_root(folder, arguments, user):
    """The command that runs a program in a root, as a user."""
    script = 'mount -t proc proc "$1/proc"; shift; exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh", str(folder),
            "chroot", f"--userspec={user}", str(folder), *arguments]
