"""A query from a Python source to sinks of each kind; test_crash.py kills it and runs it again.

    crash_script.py FOLDER ROWS SEED
"""

import json
import os
import random
import sys
import time

import slackwater

PARTITIONS = 2


def synced(path, text):
    """Writes a file whose content is on the disk when it has its name."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


class Files(slackwater.Sink):
    """A file for each checkpoint: `staged-` until it counts, then `visible-`."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def begin(self):
        self.rows = []
        for name in os.listdir(self.folder):
            if not name.startswith("visible-"):
                os.remove(self.path(name))

    def write(self, batch):
        self.rows += [list(row.values()) for row in batch.to_pylist()]

    def prepare(self, checkpoint):
        synced(self.path(f"staged-{checkpoint}"), json.dumps(self.rows))
        self.rows = []
        return checkpoint

    def commit(self, checkpoint):
        staged, visible = self.path(f"staged-{checkpoint}"), self.path(f"visible-{checkpoint}")
        if os.path.exists(staged):
            os.replace(staged, visible)
        elif not os.path.exists(visible):
            raise AssertionError(f"{checkpoint} was prepared and is gone")


class Lines:
    """Appends lines to a file: at least once."""

    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8")

    def __call__(self, batch):
        for row in batch.to_pylist():
            self.file.write(f"{row['p']} {row['n']}\n")
        self.file.flush()


def main():
    folder, rows, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    session = slackwater.Session(state=f"{folder}/state", checkpoint_interval="20 ms")

    @session.source("events", {"p": "BIGINT", "n": "BIGINT"}, partitions=PARTITIONS)
    def events(partition, offset):
        # One partition has an offset that JSON has, the other one that it does not have.
        after = (offset or 0) if partition == 0 else (offset or (0, "x"))[0]
        chance = random.Random(f"{seed} {partition} {after} {time.monotonic_ns()}")
        while after < rows:
            size = min(chance.randrange(60), rows - after)
            after += size
            given = [(partition, n) for n in range(after - size, after)]
            yield given, (after if partition == 0 else (after, "x"))
            time.sleep(chance.random() * 0.004)

    session.sql(
        "CREATE TABLE built_in (p BIGINT, n BIGINT) "
        f"WITH ('connector' = 'file', 'path' = '{folder}/built-in', 'format' = 'csv')"
    )
    pairs = {"p": "BIGINT", "n": "BIGINT"}
    session.sink("staged", pairs, Files(f"{folder}/staged"), exactly_once=True)
    session.sink("lines", pairs, Lines(f"{folder}/lines"))
    totals = {"p": "BIGINT", "c": "BIGINT", "t": "BIGINT"}
    session.sink("totals", totals, Files(f"{folder}/totals"), exactly_once=True, changes=True)
    session.execute(
        "INSERT INTO built_in SELECT p, n FROM events;"
        "INSERT INTO staged SELECT p, n FROM events;"
        "INSERT INTO lines SELECT p, n FROM events;"
        "INSERT INTO totals SELECT p, COUNT(*), SUM(n) FROM events GROUP BY p"
    )


main()
