#!/usr/bin/env python3
"""Tests copies of a query on a machine of two NUMA nodes: a kernel of Debian 12 in QEMU.

    python3 tests/cpufreq/fetch.py target/cpufreq
    python3 tests/numa/run.py --program target/release/slackwater
    … --kvm                                          # with KVM, where that works

The query has a process for each node. Checked are the cores that their threads may use, and on which node the
memory lies that they take while rows come (`/proc/PID/numa_maps`). Exit code 1 means that something failed; 2
that it can't run here.
"""

import argparse
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CPUFREQ = HERE.parent / "cpufreq"
sys.path.insert(0, str(CPUFREQ))
sys.dont_write_bytecode = True

import image  # noqa: E402
from guest import Failed, Guest  # noqa: E402

NODES = 2
# Two cores and 1 GiB for each node; the firmware says that the other one is twice as far.
MACHINE = [
    "-cpu", "max", "-smp", "4,sockets=2,cores=2,threads=1", "-m", "2048",
    "-object", "memory-backend-ram,id=m0,size=1024M", "-object", "memory-backend-ram,id=m1,size=1024M",
    "-numa", "node,nodeid=0,cpus=0-1,memdev=m0", "-numa", "node,nodeid=1,cpus=2-3,memdev=m1",
    "-numa", "dist,src=0,dst=1,val=20",
]
# Long keys, each of them once: what is kept of them grows with the rows. 20 s in all, at 1,000 rows/s.
FILES, ROWS, KEY_BYTES, ROWS_PER_S = 4, 5_000, 2_000, 1_000
# Of what a process takes while rows come, at least so much must lie on its own node, of at least so many
# pages.
OWN_MIN, PAGES_MIN = 0.9, 1_000
QUERY = f"""
CREATE TABLE t (ms BIGINT, k STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts) WITH (
  'connector' = 'file', 'path' = '/data/in-*.csv', 'replay_rate' = '{ROWS_PER_S}/s');
CREATE TABLE counts (k STRING, n BIGINT) WITH ('connector' = 'blackhole');
CREATE TABLE windows (at TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO counts SELECT k, COUNT(*) FROM t GROUP BY k;
INSERT INTO windows SELECT window_start, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)
  GROUP BY window_start, window_end;
"""


def make_archive(tools, folder, program):
    """Writes the guest's files; the path of the archive."""
    stripped = pathlib.Path(folder) / "slackwater"
    shutil.copy(program, stripped)
    # Debugging symbols would fill the guest's memory.
    if shutil.which("strip"):
        subprocess.run(["strip", str(stripped)], check=True)
    archive = image.Archive()
    for name in ("proc", "sys", "dev", "run", "tmp", "bin", "modules"):
        archive.folder(name)
    archive.file("init", (CPUFREQ / "init").read_bytes(), 0o755)
    busybox = tools.root / "bin/busybox"
    busybox = busybox if busybox.exists() else pathlib.Path(tools.find("busybox"))
    archive.file("bin/busybox", busybox.read_bytes(), 0o755)
    archive.program("usr/bin/slackwater", stripped, tools, None)
    archive.file("query.sql", QUERY.encode())
    for file in range(FILES):
        rows = (f"{row},{file}-{row}-{'x' * KEY_BYTES}\n" for row in range(ROWS))
        archive.file(f"data/in-{file}.csv", "".join(rows).encode())
    path = pathlib.Path(folder) / "files.cpio"
    path.write_bytes(archive.end())
    stripped.unlink()
    return path


def pages(text):
    """The pages of anonymous memory on each node, from a process's numa_maps."""
    found = [0] * NODES
    for line in text.splitlines():
        if "file=" in line:
            continue
        for node, count in re.findall(r" N(\d+)=(\d+)", line):
            found[int(node)] += int(count)
    return found


def cores(text):
    """The cores of a list of the kernel, such as 0-1,3."""
    parts = [part.split("-") for part in text.strip().split(",") if part]
    return {core for part in parts for core in range(int(part[0]), int(part[-1]) + 1)}


class Copies:
    """The query in the guest."""

    def __init__(self, guest):
        self.guest = guest

    def start(self):
        said = self.guest.run("cd /tmp; echo 0 > /proc/sys/kernel/numa_balancing; slackwater topology", 120)
        print(said)
        if "node 1" not in said:
            raise Failed("the program sees one node")
        options = "--set copies=nodes --processes nodes --workers 4 --report /tmp/report.json"
        self.guest.run(f"slackwater run /query.sql {options} > /tmp/out 2>&1 & echo $! > /tmp/pid")

    def workers(self):
        """The worker processes, by their numbers; none while they start."""
        said = self.guest.run(
            "p=$(cat /tmp/pid); [ -d /proc/$p ] || { cat /tmp/out; exit 1; }; "
            "grep -l \"^PPid:.$p$\" /proc/[0-9]*/status; true")
        return [int(number) for number in re.findall(r"/proc/(\d+)/status", said)]

    def pinned(self, process):
        """The threads of a process that may use one core only: their names and cores."""
        said = self.guest.run(f"grep -H -e ^Name: -e ^Cpus_allowed_list: /proc/{process}/task/*/status")
        names = dict(re.findall(r"task/(\d+)/status:Name:\s*(\S+)", said))
        lists = re.findall(r"task/(\d+)/status:Cpus_allowed_list:\s*(\S+)", said)
        return [(names[thread], cores(listed)) for thread, listed in lists if len(cores(listed)) == 1]

    def memory(self, process):
        return pages(self.guest.run(f"cat /proc/{process}/numa_maps"))

    def check(self):
        """Where threads and memory are."""
        running = self.guest.eventually(
            "a process for each node", lambda: (lambda found: found if len(found) == NODES else None)(
                self.workers()), 300)
        own = {}
        for process in running:
            pinned = self.guest.eventually(
                "two pinned workers", lambda process=process: (
                    lambda found: found if len(found) >= 2 else None)(self.pinned(process)), 120)
            nodes = {core // 2 for _, listed in pinned for core in listed}
            print(f"process {process}: " + ", ".join(f"{name} on core {listed}" for name, listed in pinned))
            if len(nodes) != 1:
                raise Failed(f"the workers of process {process} are on nodes {sorted(nodes)}")
            own[process] = nodes.pop()
        if sorted(own.values()) != [0, 1]:
            raise Failed(f"the copies are on nodes {sorted(own.values())}")
        before = {process: self.memory(process) for process in running}
        for _ in range(100):
            time.sleep(3)
            after = {process: self.memory(process) for process in running}
            grown = {process: [now - then for now, then in zip(after[process], before[process])]
                     for process in running}
            if all(sum(of_process) >= PAGES_MIN for of_process in grown.values()):
                break
        for process in running:
            node = own[process]
            of_process = grown[process]
            print(f"process {process}, node {node}: pages on nodes 0, 1 before {before[process]}, "
                  f"since then {of_process}")
            share = of_process[node] / max(sum(of_process), 1)
            if sum(of_process) < PAGES_MIN or share < OWN_MIN:
                raise Failed(f"process {process} of node {node} has {share:.0%} of {sum(of_process)} new "
                             "pages there")

    def end(self):
        """The query ends with its input."""
        code = self.guest.code("p=$(cat /tmp/pid); while [ -d /proc/$p ]; do sleep 1; done; "
                               "grep -q '\"copies\": *2' /tmp/report.json", 300)
        print(self.guest.run("cat /tmp/out"))
        if code != 0:
            raise Failed("the report has no two copies")


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--program", default="target/release/slackwater", help="the program")
    parser.add_argument("--packages", default="target/cpufreq", help="where fetch.py has put packages")
    parser.add_argument("--minutes", type=float, default=10, help="when the machine is killed [10]")
    parser.add_argument("--kvm", action="store_true", help="use KVM")
    options = parser.parse_args()
    if not pathlib.Path(options.program).exists():
        parser.error(f"there is no {options.program}: cargo build --release -p slackwater")
    # Ended by a signal it ends its machine, as at any other end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = tempfile.mkdtemp(prefix="slackwater-numa-")
    guest, begun = None, time.monotonic()
    try:
        tools = image.Tools(options.packages)
        archive = make_archive(tools, folder, options.program)
        guest = Guest(tools, folder, archive, MACHINE, options.minutes * 60, options.kvm)
        print(f"booted ({time.monotonic() - begun:.0f} s)", flush=True)
        copies = Copies(guest)
        copies.start()
        copies.check()
        copies.end()
    except image.Missing as missing:
        print(f"run.py: skipped: {missing}", file=sys.stderr)
        return 2
    except Failed as error:
        print(f"FAILED {error}")
        console = pathlib.Path(folder) / "console"
        print("\n".join(console.read_text(errors="replace").splitlines()[-40:]) if console.exists() else "")
        return 1
    finally:
        if guest is not None:
            guest.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"ok: each copy's threads and memory are on its node ({time.monotonic() - begun:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
