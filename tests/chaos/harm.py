"""Disturbances of runs and files. Each step starts one run or two, harms them, and waits for their end.

A new kind of harm is a function that takes the round, and a line in STEPS.
"""

import functools
import os
import shutil
import signal
import subprocess

from process import Failed, sleep

# Longer than an undisturbed run takes: most moments fall within the run.
MOMENT_S = 2.0

# System calls that write, name or lock files, and about how many of them a run makes.
CALLS = {"rename": 6, "linkat": 12, "unlink": 12, "fsync": 40, "ftruncate": 3, "flock": 4, "mkdir": 2}


@functools.cache
def has_strace():
    """Whether strace exists, and is permitted to trace."""
    command = ["strace", "-D", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fsync", "true"]
    try:
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def delays(round_):
    """Arguments of strace that delay some system call, and a description."""
    rng = round_.rng
    if not has_strace():
        return None
    micros = rng.choice([50_000, 200_000, 700_000, 1_500_000])
    unfinished = round_.next_unfinished()
    if unfinished and rng.random() < 0.5:
        # The moment at which a sink's file is opened, locked or renamed.
        call = rng.choice(["openat", "openat", "flock", "rename"])
        tracing = ["-P", str(unfinished), "-e", f"trace={call}", "-e", f"inject={call}:delay_enter={micros}"]
        return tracing, f"{call} of {unfinished.name} takes {micros / 1e6} s"
    call = rng.choice(sorted(CALLS))
    nth = rng.randint(1, CALLS[call])
    tracing = ["-e", f"trace={call}", "-e", f"inject={call}:delay_enter={micros}:when={nth}"]
    return tracing, f"{call} {nth} takes {micros / 1e6} s"


def names_place(round_, run, what):
    """Checks that a run that failed names the file, or the folder, that it could not write."""
    if run.code == 0:
        return
    places = ["state/", "state:", "shared memory", *(output.path.name for output, _ in round_.outputs)]
    # A warning before the error may be what names it.
    if not any(place in run.said() for place in places):
        raise Failed(f"{what}: the message names no place:\n{run.said()}")


def kill_parent(round_):
    run = round_.start()
    when = sleep(round_.rng, MOMENT_S)
    run.harmed.append(signal.SIGKILL)
    run.send(signal.SIGKILL)
    round_.ends("kill the first process", run, when, {"killed", "finished"})


def kill_worker(round_):
    run = round_.start("--processes=2", "--parallelism=2")
    when = sleep(round_.rng, MOMENT_S)
    workers = run.workers()
    if workers:
        run.send(round_.rng.choice([signal.SIGKILL, signal.SIGSEGV]), round_.rng.choice(workers))
    round_.ends("kill a worker", run, when, {"finished"})


def stop(round_):
    run = round_.start()
    when = sleep(round_.rng, MOMENT_S)
    number = round_.rng.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    # A run that does not listen to signals yet has nothing to save.
    run.harmed.append(number)
    run.send(number)
    round_.ends(f"stop by {signal.Signals(number).name}", run, when, {"saved", "finished", "killed"})


def duration(round_):
    run = round_.start(f"--duration={round_.rng.randint(1, 900)}ms")
    round_.ends("stop by --duration", run, "", {"saved", "finished"})


def freeze(round_):
    run = round_.start()
    when = sleep(round_.rng, MOMENT_S)
    frozen = [run.pid, *run.workers()]
    frozen = round_.rng.choice([frozen, frozen[:1], frozen[-1:]])
    for pid in frozen:
        run.send(signal.SIGSTOP, pid)
    when += ", continued " + sleep(round_.rng, 3)
    for pid in frozen:
        run.send(signal.SIGCONT, pid)
    round_.ends("stop and continue", run, when, {"finished"})


def two_runs(round_):
    """Two runs on one folder: the one that started last continues, and the other can't harm it."""
    rng = round_.rng
    traced = [delays(round_) if rng.random() < 0.6 else None, delays(round_) if rng.random() < 0.3 else None]
    whats = [what and what[1] for what in traced]
    older = round_.start(tracing=traced[0] and traced[0][0])
    when = sleep(rng, rng.choice([0.2, 0.6, 1.5]))
    is_frozen = rng.random() < 0.3
    frozen = [older.pid, *older.workers()] if is_frozen else []
    for pid in frozen:
        older.send(signal.SIGSTOP, pid)
    younger = round_.start(tracing=traced[1] and traced[1][0])
    is_late = is_frozen and rng.random() < 0.5
    if is_frozen and not is_late:
        when += ", the first continued " + sleep(rng, 3)
        for pid in frozen:
            older.send(signal.SIGCONT, pid)
    what = f"{when}, frozen: {is_frozen}, late: {is_late}, slow calls: {whats}"
    kind = "two runs, one frozen" if is_frozen else "two runs, slow calls" if any(whats) else "two runs"
    of_younger = round_.ends(kind, younger, what, {"finished", "failed", "refused"})
    for pid in frozen:
        older.send(signal.SIGCONT, pid)
    of_older = round_.ends(kind, older, "the first of them", {"finished", "failed", "refused"})
    if not is_frozen and "finished" not in (of_older, of_younger):
        raise Failed(f"neither of two runs finished\n{older.said()}\n{younger.said()}")


def slow_calls(round_):
    traced = delays(round_)
    if traced:
        run = round_.start(tracing=traced[0])
        round_.ends("slow system call", run, traced[1], {"finished"})


def failing_calls(round_):
    if not has_strace():
        return
    rng = round_.rng
    call = rng.choice(["fsync", "linkat", "rename", "unlink", "ftruncate", "mkdir", "flock"])
    error = rng.choice(["ENOSPC", "EIO", "EROFS", "EACCES"])
    nth = rng.randint(1, CALLS[call])
    # For each thread: once, or from then on.
    which = rng.choice([f"{nth}", f"{nth}+"])
    tracing = ["-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={which}"]
    run = round_.start("--set=restarts=2", tracing=tracing)
    what = f"{call} fails: {error}, {which}"
    round_.ends(f"{call} fails", run, what, {"finished", "failed", "refused"})
    names_place(round_, run, what)


def small_files(round_):
    bytes_max = round_.rng.choice([0, 100, 1000, 4000, 20_000])
    run = round_.start("--set=restarts=2", file_bytes_max=bytes_max)
    round_.ends("files can't grow", run, f"{bytes_max} bytes", {"finished", "failed", "refused"})
    names_place(round_, run, "files can't grow")


def full_log(round_):
    """Messages can't be written: warnings about a worker that died, and the summary."""
    run = round_.start("--processes=2", "--parallelism=2", says_to="/dev/full")
    when = sleep(round_.rng, MOMENT_S)
    for worker in run.workers()[:1]:
        run.send(signal.SIGKILL, worker)
    round_.ends("full log", run, when, {"finished"})


def full_disk(round_):
    if not round_.is_mounted:
        return
    filler = round_.folder / "filler"
    left = round_.rng.choice([0, 4096, 32_768, 131_072])
    with open(filler, "wb") as file:
        try:
            while True:
                file.write(b"\0" * 65_536)
                file.flush()
        except OSError:
            pass
    os.truncate(filler, max(0, filler.stat().st_size - left))
    run = round_.start("--set=restarts=2")
    is_freed = round_.rng.random() < 0.5
    when = sleep(round_.rng, MOMENT_S)
    if is_freed:
        filler.unlink()
    what = f"{left} bytes left, freed {when}: {is_freed}"
    round_.ends("full disk", run, what, {"finished", "failed", "refused"})
    filler.unlink(missing_ok=True)
    names_place(round_, run, what)


def read_only(round_):
    if not round_.is_mounted or not round_.remount("ro"):
        return
    run = round_.start()
    what = "read-only"
    if round_.rng.random() < 0.5:
        what += " until " + sleep(round_.rng, MOMENT_S)
        round_.remount("rw")
    try:
        round_.ends("read-only disk", run, what, {"finished", "failed", "refused"})
    finally:
        round_.remount("rw")
    names_place(round_, run, what)


def damage(round_):
    """Changes a file. It is restored after the run was refused, unless duplicates are accepted."""
    rng = round_.rng
    files = round_.stored_files() + round_.hidden_files()
    if not files:
        return
    path = rng.choice(files)
    kept = path.read_bytes()
    # A flipped bit in a file of rows can't be detected: these files have no checksum.
    kinds = ["flip", "truncate", "remove", "empty"]
    is_rows = path in round_.hidden_files()
    kind = rng.choice(kinds[1:] if is_rows else kinds)
    if kind == "flip" and kept:
        changed = bytearray(kept)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
    elif kind == "truncate":
        path.write_bytes(kept[: rng.randrange(len(kept) + 1)])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "remove":
        path.unlink()
    round_.list_checkpoints()
    place = "a file of rows" if is_rows else f"a file of {path.parent.name}/"
    what = f"{kind} {path.relative_to(round_.folder)}"
    run = round_.start()
    outcome = round_.ends(f"{kind} {place}", run, what, {"finished", "failed", "refused"})
    if outcome == "finished":
        return
    said = run.said()
    sinks = [output.path.name for output, _ in round_.outputs]
    if path.name not in said and not (is_rows and any(sink in said for sink in sinks)):
        raise Failed(f"{what}: the message doesn't name the file:\n{said}")
    if "(" not in said and "= " not in said:
        raise Failed(f"{what}: the message doesn't say what to do:\n{said}")
    if "--accept-duplicates" in said and rng.random() < 0.4:
        run = round_.start("--accept-duplicates")
        round_.is_relaxed = True
        outcome = round_.ends("accept duplicates", run, what, {"finished", "failed", "refused"})
        if outcome == "finished":
            return
    path.write_bytes(kept)


def forget(round_):
    """The state is removed, or ignored: existing output is refused or overwritten."""
    rng = round_.rng
    arguments = ["--from-scratch"]
    if rng.random() < 0.5:
        shutil.rmtree(round_.folder / "state", ignore_errors=True)
        arguments = []
    run = round_.start(*arguments)
    kind = "from scratch" if arguments else "remove the state"
    if round_.ends(kind, run, "", {"finished", "refused"}) == "refused":
        if not any(output.path.name in run.said() for output, _ in round_.outputs):
            raise Failed(f"{kind}: the message doesn't name the output:\n{run.said()}")
        shutil.rmtree(round_.folder / "state", ignore_errors=True)
        round_.remove_outputs()


# Steps with their weights.
STEPS = [
    (4, kill_parent),
    (3, kill_worker),
    (3, stop),
    (3, duration),
    (2, freeze),
    (6, two_runs),
    (2, slow_calls),
    (3, failing_calls),
    (1, small_files),
    (1, full_log),
    (2, full_disk),
    (1, read_only),
    (5, damage),
    (1, forget),
]


def step(rng, only):
    """A random step; one of those named in `only`, if there are any."""
    among = [(weight, step) for weight, step in STEPS if not only or step.__name__ in only]
    weights, steps = zip(*among)
    return rng.choices(steps, weights)[0]
