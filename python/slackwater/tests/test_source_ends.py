"""Generators whose query ends, and queries that resume from their offsets."""

import contextlib
import dataclasses
import datetime as dt
import glob
import io
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import slackwater
from engine import needs_engine, numbers, rows_read, wait_until

BEGIN = dt.datetime(2026, 1, 1)


@dataclasses.dataclass(frozen=True)
class Place:
    """An offset that JSON does not have."""

    file: str
    row: int


def blocked_for_ever():
    while True:
        time.sleep(0.05)


# A process that ends while a query runs, with a generator that yields and one that is blocked.
ENDS = """
import slackwater, time
session = slackwater.Session()

@session.source("numbers", {"n": "BIGINT"}, partitions=2)
def numbers(partition):
    try:
        while True:
            yield [(1,)]
            time.sleep(partition * 3_600)
    finally:
        print("closed", partition, flush=True)

run = session.sql("SELECT n FROM numbers").start()
next(iter(run))
print("the end", flush=True)
"""


@needs_engine
class Ends(unittest.TestCase):
    """Generators are closed when their query ends."""

    def setUp(self):
        self.closed = []

    def is_closed(self, times=1):
        def is_over():
            names = [thread.name for thread in threading.enumerate()]
            return len(self.closed) == times and not any(n.startswith("numbers[") for n in names)

        self.assertTrue(wait_until(is_over), self.closed)

    def endless(self, partition):
        n = 0
        try:
            while True:
                yield [(n, "")]
                n += 1
        finally:
            self.closed.append(partition)

    def silent(self, partition):
        try:
            yield [(1, "")]
            blocked_for_ever()
        finally:
            self.closed.append(partition)

    def test_a_break_closes_them(self):
        for read in (self.endless, self.silent):
            self.closed.clear()
            for _ in numbers(slackwater.Session(), read, partitions=2):
                break
            self.is_closed(2)

    def test_a_stop_closes_them(self):
        for read in (self.endless, self.silent):
            self.closed.clear()
            run = numbers(slackwater.Session(), read).start()
            self.assertTrue(wait_until(lambda: rows_read(run) > 0))
            run.stop()
            self.assertIsNotNone(run.wait(30))
            self.assertEqual(self.closed, [0], "it is closed before the query has ended")

    def test_another_partition_that_fails_closes_them(self):
        def read(partition):
            if partition == 1:
                raise OSError("gone")
            yield from self.silent(partition)

        with self.assertRaisesRegex(slackwater.QueryError, "partition 1.*\n(.*\n)*.*gone"):
            numbers(slackwater.Session(), read, partitions=2).to_pylist()
        self.is_closed()

    def test_one_that_never_yields_is_left_behind(self):
        free = threading.Event()

        def read():
            try:
                free.wait()
                yield [(1, "")]
            finally:
                self.closed.append(0)

        run = numbers(slackwater.Session(), read).start()
        self.assertTrue(wait_until(lambda: run.progress() is not None))
        run.stop()
        self.assertIsNotNone(run.wait(30), "the query ends nevertheless")
        self.assertEqual(self.closed, [])
        free.set()
        self.is_closed()

    def test_the_end_of_the_process_closes_them(self):
        tests = os.path.dirname(os.path.abspath(__file__))
        environment = {**os.environ, "PYTHONPATH": os.path.dirname(tests)}
        command = [sys.executable, "-B", "-c", ENDS]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        self.assertEqual((ran.returncode, ran.stdout), (0, "the end\nclosed 0\n"), ran.stderr)
        self.assertIn("partition 1 is still being read", ran.stderr)

    def test_one_that_yields_after_its_close(self):
        def read():
            while True:
                try:
                    yield [(1, "")]
                except GeneratorExit:
                    self.closed.append(0)
                    yield [(2, "")]

        with contextlib.redirect_stderr(io.StringIO()) as said:
            for _ in numbers(slackwater.Session(), read):
                break
            self.is_closed()
            self.assertTrue(wait_until(lambda: "ignored GeneratorExit" in said.getvalue()))

    def test_what_finally_raises_is_printed(self):
        def read():
            try:
                while True:
                    yield [(1, "")]
            finally:
                self.closed.append(0)
                raise OSError("while it was closed")

        with contextlib.redirect_stderr(io.StringIO()) as said:
            for _ in numbers(slackwater.Session(), read):
                break
            self.is_closed()
            self.assertTrue(wait_until(lambda: "while it was closed" in said.getvalue()))


def wake_ups():
    """How often each thread of this process but this one has gone to sleep."""
    slept = {}
    for task in os.listdir("/proc/self/task"):
        if int(task) == threading.get_native_id():
            continue
        with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{task}/status") as status:
            lines = dict(line.split(":", 1) for line in status)
            slept[task, lines["Name"].strip()] = int(lines["voluntary_ctxt_switches"])
    return slept


@needs_engine
class Idle(unittest.TestCase):
    def test_nothing_wakes_up_while_nothing_is_yielded(self):
        come = threading.Semaphore(0)

        def read(partition, offset):
            yield [(partition, "")], 1
            come.acquire()

        session = slackwater.Session()
        numbers(session, read, partitions=3)
        session.sink("out", {"n": "BIGINT"}, lambda batch: None)
        run = session.sql("INSERT INTO out SELECT n FROM numbers").start()
        self.assertTrue(wait_until(lambda: rows_read(run) == 3))
        time.sleep(0.5)
        before = wake_ups()
        time.sleep(1.5)
        after = wake_ups()
        come.release(3)
        self.assertEqual(run.wait().rows_out, 3)
        self.assertEqual(after, before)


@needs_engine
class Resumed(unittest.TestCase):
    """Queries that are stopped and run again."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, *parts):
        return os.path.join(self.folder.name, *parts)

    def run_some(self, read, partitions, enough):
        """Runs the query until `enough` rows were read or it ends; returns whether it has ended."""
        session = slackwater.Session(state=self.path("state"), checkpoint_interval="20 ms")
        numbers(session, read, partitions=partitions, dead_letter=self.path("letters"))
        session.sql(
            "CREATE TABLE out (n BIGINT, s STRING) "
            f"WITH ('connector' = 'file', 'path' = '{self.path('out')}', 'format' = 'csv')"
        )
        run = session.sql("INSERT INTO out SELECT n, s FROM numbers").start()

        def is_enough():
            return not run.is_running or rows_read(run) >= enough

        self.assertTrue(wait_until(is_enough, 60))
        run.stop()
        self.assertIsNotNone(run.wait(60))
        return not glob.glob(self.path("out", ".*"))

    def written(self):
        rows = []
        for path in glob.glob(self.path("out", "*")):
            with open(path, encoding="utf-8") as file:
                rows += [line.strip().split(",") for line in file if not line.startswith("n,")]
        return sorted((s, int(n)) for n, s in rows)

    def test_offsets_of_any_type_and_batches_of_any_size(self):
        seed = random.randrange(1 << 32)
        chance = random.Random(seed)
        kinds = [
            lambda n: n, lambda n: str(n), lambda n: float(n), lambda n: (n, "x"), lambda n: {"n": [n]},
            lambda n: {n: None}, lambda n: n.to_bytes(4, "big"), lambda n: Place("f", n),
            lambda n: 2**100 + n, lambda n: BEGIN + dt.timedelta(seconds=n),
        ]  # fmt: skip
        rows, partitions = 200, 3
        kind_of = [chance.choice(kinds) for _ in range(partitions)]
        calls = []

        def read(partition, offset):
            known = {}
            for n in range(rows + 1):
                known[repr(kind_of[partition](n))] = n
            next_row = 0 if offset is None else known[repr(offset)]
            calls.append((partition, next_row))
            while next_row < rows:
                size = min(chance.randrange(8), rows - next_row)
                next_row += size
                time.sleep(0.001)
                given = [(n, f"p{partition}") for n in range(next_row - size, next_row)]
                yield given, kind_of[partition](next_row)

        with self.subTest(seed=seed):
            total = rows * partitions
            for enough in (total // 4, total // 3, 2 * total):
                self.run_some(read, partitions, enough)
            expected = [(f"p{p}", n) for p in range(partitions) for n in range(rows)]
            self.assertEqual(self.written(), expected)
            self.assertTrue(any(row > 0 for _, row in calls), "some call has resumed")

    def test_a_partition_that_is_no_longer_there(self):
        def read(partition, offset):
            yield [(partition, "")], 1
            blocked_for_ever()

        self.run_some(read, 2, 2)
        with self.assertRaisesRegex(slackwater.Error, r"numbers\[1\].*has 1 partitions"):
            self.run_some(read, 1, 1)

    def test_without_offsets_it_begins_again(self):
        def read():
            yield [(1, "")]
            blocked_for_ever()

        for _ in range(2):
            self.run_some(read, 1, 1)
        self.assertEqual([n for _, n in self.written()], [1, 1])
