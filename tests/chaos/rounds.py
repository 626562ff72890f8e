"""A round: a query, its disturbances, and whether the answer is right in the end."""

import collections
import os
import re
import shutil
import subprocess

import harm
import queries
from process import Failed, Run

STEPS_MAX = 5

# Size of a round's own disk in KiB, where one can be mounted.
DISK_KB = 2048


class Round:
    """One seed."""

    def __init__(self, rng, folder, program, tried, only):
        self.only = only
        self.rng, self.folder, self.program, self.tried = rng, folder, program, tried
        self.runs, self.notes = [], []
        self.is_relaxed = False
        self.is_mounted = rng.random() < 0.35 and self.mount()

    def mount(self):
        if os.geteuid() != 0:
            return False
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_KB}k", "tmpfs", str(self.folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def remount(self, how):
        command = ["mount", "-o", f"remount,{how}", str(self.folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def run(self):
        self.text, self.outputs = queries.query(self.rng, self.folder)
        (self.folder / "query.sql").write_text(self.text)
        for _ in range(self.rng.randint(1, STEPS_MAX)):
            harm.step(self.rng, self.only)(self)
            if self.is_finished():
                break
        self.settle()

    def settle(self):
        """Undisturbed the query runs to its end, and stays finished."""
        for kind in ("left alone", "run again"):
            outcome = self.ends(kind, self.start(), "", {"finished"})
            assert outcome == "finished"
            for output, expected in self.outputs:
                self.compare(output, expected, is_final=True)

    def is_finished(self):
        return bool(self.runs) and self.runs[-1].code == 0 and "stopped before" not in self.runs[-1].said()

    def start(self, *arguments, tracing=None, file_bytes_max=None, says_to=None):
        own = queries.settings(self.rng)
        given = {argument.partition("=")[0] for argument in arguments}
        if {"--processes", "--parallelism"} & given:
            own = [argument for argument in own if argument.partition("=")[0] not in (given | {"--workers"})]
        command = ["run", "query.sql", "--state", "state", *own, *arguments]
        self.notes.append(" ".join([*(tracing or []), *command[4:]]))
        run = Run(self.program, command, self.folder, tracing, file_bytes_max, says_to, title=self.notes[-1])
        self.runs.append(run)
        return run

    def ends(self, kind, run, what, allowed):
        """Waits for the end of a run, counts it, and checks what it has written."""
        outcome = run.finish()
        self.notes.append(f"  {kind}: {what}: {outcome}\n    " + run.said().strip().replace("\n", "\n    "))
        self.tried[(kind, outcome)] += 1
        if outcome not in allowed:
            raise Failed(f"{kind}: {what}: {outcome}, and not {' or '.join(sorted(allowed))}\n{run.said()}")
        if not any(other.is_running() for other in self.runs):
            for output, expected in self.outputs:
                self.compare(output, expected, is_final=False)
        return outcome

    def compare(self, output, expected, is_final):
        """What a reader finds is final, and contains each row once."""
        try:
            found = collections.Counter(output.rows())
        except Exception as error:  # pylint: disable=broad-except
            raise Failed(f"{output.path}: can't be read: {error}") from error
        few = expected - found if is_final or (found and not output.is_folder) else None
        if self.is_relaxed:
            many = {row for row in found if row not in expected}
        else:
            many = found - expected
        if few or many:
            sums = f"{sum(found.values())} rows, {sum(expected.values())} expected"
            raise Failed(
                f"{output.path}: {sums}; missing {list((few or {}).items() if few else [])[:3]}, "
                f"too many {list(many)[:3]}"
            )

    def next_unfinished(self):
        """The file that the next incarnation will write, of some sink."""
        records = self.folder / "state" / "checkpoints"
        names = [path.name for path in records.iterdir()] if records.is_dir() else []
        numbers = [int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.json", name)]
        single = [output for output, _ in self.outputs if not output.is_folder]
        if not single:
            return None
        path = self.rng.choice(single).path
        epoch = max(numbers, default=0) + self.rng.choice([1, 1, 2])
        return path.parent / f".{path.name}.{epoch:010}.unfinished"

    def list_checkpoints(self):
        """`slackwater checkpoints` lists what is there, or reports why it can't."""
        command = [self.program, "checkpoints", "state"]
        listed = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False)
        if listed.returncode not in (0, 1, 2) or "panicked" in listed.stderr:
            raise Failed(f"slackwater checkpoints: {listed.returncode}\n{listed.stderr}")

    def stored_files(self):
        state = self.folder / "state"
        return sorted(path for path in state.rglob("*") if path.is_file()) if state.is_dir() else []

    def hidden_files(self):
        return sorted({path for output, _ in self.outputs for path in output.hidden()})

    def remove_outputs(self):
        for path in self.hidden_files():
            path.unlink(missing_ok=True)
        for output, _ in self.outputs:
            if output.is_folder:
                shutil.rmtree(output.path, ignore_errors=True)
            else:
                output.path.unlink(missing_ok=True)
        self.is_relaxed = False

    def story(self):
        return "\n".join([self.text if hasattr(self, "text") else "", *self.notes])

    def end(self):
        for run in self.runs:
            run.end()
        if self.is_mounted:
            kept = self.folder.with_name(self.folder.name + "-kept")
            shutil.copytree(self.folder, kept, dirs_exist_ok=True, symlinks=True)
            subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)
            shutil.copytree(kept, self.folder, dirs_exist_ok=True)
            shutil.rmtree(kept)
