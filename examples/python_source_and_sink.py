"""A source and a sink in Python, exactly once: kill it, run it again, and each row is counted once.

    python3 examples/python_source_and_sink.py     # after pip install; or, in a checkout:
    make python && PYTHONPATH=python/slackwater python3 examples/python_source_and_sink.py

Two partitions of readings are made from their offsets; averages of ten seconds go to a table of SQLite.
"""

import datetime
import os
import sqlite3
import time

import slackwater

BEGIN = datetime.datetime(2026, 1, 1)
FOLDER = "python-example"
SECONDS = 300


class Averages(slackwater.Sink):
    """Rows wait in a table `staged` until their checkpoint is stored."""

    def __init__(self, path):
        # The engine calls it from several threads, one at a time.
        self.database = sqlite3.connect(path, check_same_thread=False)
        with self.database as transaction:
            columns = "sensor TEXT, window_start TEXT, mean REAL"
            transaction.execute(f"CREATE TABLE IF NOT EXISTS staged (checkpoint TEXT, {columns})")
            transaction.execute(f"CREATE TABLE IF NOT EXISTS averages ({columns})")

    def begin(self):
        self.rows = []
        with self.database as transaction:
            transaction.execute("DELETE FROM staged")

    def write(self, batch):
        self.rows += [(r["sensor"], str(r["window_start"]), r["mean"]) for r in batch.to_pylist()]

    def prepare(self, checkpoint):
        with self.database as transaction:
            rows = [(checkpoint, *row) for row in self.rows]
            transaction.executemany("INSERT INTO staged VALUES (?, ?, ?, ?)", rows)
        self.rows = []
        return checkpoint

    def commit(self, checkpoint):
        # The second time there is nothing to move.
        with self.database as transaction:
            columns = "sensor, window_start, mean"
            moved = f"INSERT INTO averages SELECT {columns} FROM staged WHERE checkpoint = ?"
            transaction.execute(moved, (checkpoint,))
            transaction.execute("DELETE FROM staged WHERE checkpoint = ?", (checkpoint,))


def main():
    os.makedirs(FOLDER, exist_ok=True)
    session = slackwater.Session(state=f"{FOLDER}/state", checkpoint_interval="200 ms")

    @session.source(
        "readings",
        {"sensor": "STRING", "ts": "TIMESTAMP(3)", "v": "DOUBLE"},
        event_time="ts",
        watermark="2 s",
        partitions=2,
    )
    def readings(partition, offset):
        for second in range(offset or 0, SECONDS):
            at = BEGIN + datetime.timedelta(seconds=second)
            yield [(f"sensor {partition}", at, float(second % 10))], second + 1
            time.sleep(0.01)

    averages = Averages(f"{FOLDER}/averages.db")
    columns = {"sensor": "STRING", "window_start": "TIMESTAMP(3)", "mean": "DOUBLE"}
    session.sink("averages", columns, averages, exactly_once=True)
    session.execute(
        "INSERT INTO averages SELECT sensor, window_start, AVG(v) AS mean "
        "FROM TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '10' SECOND) "
        "GROUP BY sensor, window_start, window_end"
    )
    count, least, most = averages.database.execute(
        "SELECT COUNT(*), MIN(mean), MAX(mean) FROM averages"
    ).fetchone()
    print(f"{count} averages, from {least} to {most}")


if __name__ == "__main__":
    main()
