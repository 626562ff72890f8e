"""Tables whose rows go to Python."""

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest

import slackwater
from engine import needs_engine, wait_until

TESTS = os.path.dirname(os.path.abspath(__file__))
SCHEMA = {"n": "BIGINT", "s": "STRING"}


def session_of(rows, **options):
    """A session with a table of numbers, which resumes."""
    session = slackwater.Session(checkpoint_interval="20 ms", **options)

    @session.source("numbers", SCHEMA)
    def numbers(offset):
        for n in range(offset or 0, rows):
            yield [(n, f"s{n}")], n + 1

    return session


class Staged(slackwater.Sink):
    """Keeps what was prepared apart from what counts."""

    def __init__(self):
        self.calls, self.rows, self.staged, self.visible = [], [], {}, {}
        self.fails = {}

    def said(self, method):
        self.calls.append(method)
        if self.fails.get(method, 0) > 0:
            self.fails[method] -= 1
            raise OSError(f"{method} can't")

    def begin(self):
        self.said("begin")
        self.rows = []
        self.staged = {}

    def write(self, batch):
        self.said("write")
        self.rows += [row["n"] for row in batch.to_pylist()]

    def prepare(self, checkpoint):
        self.said("prepare")
        assert checkpoint not in self.staged and checkpoint not in self.visible
        self.staged[checkpoint], self.rows = self.rows, []
        return checkpoint, self.staged[checkpoint]

    def commit(self, prepared):
        self.said("commit")
        checkpoint, rows = prepared
        self.staged.pop(checkpoint, None)
        self.visible.setdefault(checkpoint, rows)

    def close(self):
        self.said("close")

    def all(self):
        return sorted(n for rows in self.visible.values() for n in rows)


@needs_engine
class Sinks(unittest.TestCase):
    def test_a_function_gets_batches(self):
        session, got = session_of(10), []
        session.sink("out", SCHEMA, got.append)
        report = session.sql("INSERT INTO out SELECT n, s FROM numbers").run()
        self.assertIsInstance(got[0], slackwater.RecordBatch)
        rows = [row for batch in got for row in batch.to_pylist()]
        self.assertEqual(rows, [{"n": n, "s": f"s{n}"} for n in range(10)])
        self.assertEqual((report.rows_out, report.sinks[0]["table"]), (10, "out"))
        self.assertIn("custom out", session.explain("INSERT INTO out SELECT n, s FROM numbers"))

    def test_changes_have_a_column(self):
        session = session_of(4)
        got = []
        session.sink("out", {"odd": "BIGINT", "c": "BIGINT"}, got.append, changes=True)
        session.sql("INSERT INTO out SELECT n % 2, COUNT(*) FROM numbers GROUP BY n % 2").run()
        rows = [tuple(row.values()) for batch in got for row in batch.to_pylist()]
        self.assertEqual(got[0].column_names, ["change", "odd", "c"])
        self.assertEqual(set(rows), {
            ("+I", 0, 1), ("+I", 1, 1), ("-U", 0, 1), ("+U", 0, 2), ("-U", 1, 1), ("+U", 1, 2),
        })  # fmt: skip

    def test_a_query_that_takes_rows_back_needs_changes(self):
        session = session_of(4)
        query = "SELECT c FROM (SELECT s, COUNT(*) AS c FROM numbers GROUP BY s) GROUP BY c"
        session.sink("out", {"n": "BIGINT"}, lambda batch: None)
        with self.assertRaisesRegex(slackwater.SqlError, "retracts rows"):
            session.sql(f"INSERT INTO out {query}")

    def test_what_is_not_a_sink(self):
        class NoPrepare(slackwater.Sink):
            def write(self, batch):
                pass

        class NoBegin(Staged):
            begin = slackwater.Sink.begin

        async def later(batch):
            pass

        class Later(slackwater.Sink):
            async def write(self, batch):
                pass

        session = slackwater.Session()
        for sink, exactly_once, said in (
            (7, False, "'int' is not a sink"),
            (NoPrepare, False, r"is a class\n  = give an object: NoPrepare\(\)"),
            (NoPrepare(), True, "no method prepare and no commit"),
            (NoBegin(), True, "no method begin"),
            (lambda batch: None, True, "no method begin and no prepare and no commit"),
            (later, False, "async"),
            (Later(), False, "async"),
        ):
            with self.assertRaisesRegex(slackwater.SqlError, said) as raised:
                session.sink("out", SCHEMA, sink, exactly_once=exactly_once)
            self.assertTrue(raised.exception.hint)
        session.sink("out", SCHEMA, NoPrepare())
        with self.assertRaisesRegex(slackwater.SqlError, "can't be read"):
            session.sql("SELECT * FROM out")

    def test_exactly_once_needs_checkpoints(self):
        session = session_of(4)
        session.sink("out", SCHEMA, Staged(), exactly_once=True)
        with self.assertRaisesRegex(slackwater.Error, "takes no checkpoints") as raised:
            session.sql("INSERT INTO out SELECT n, s FROM numbers").run()
        self.assertIn('Session(state="DIR")', str(raised.exception))

    def test_what_write_raises_ends_the_query(self):
        session, sink = session_of(4), Staged()
        sink.fails = {"write": 1}
        session.sink("out", SCHEMA, sink)
        with self.assertRaises(slackwater.QueryError) as raised:
            session.sql("INSERT INTO out SELECT n, s FROM numbers").run()
        for said in ("table 'out'", "write() has raised", "Traceback", "OSError: write can't"):
            self.assertIn(said, str(raised.exception))
        self.assertTrue(raised.exception.hint)
        self.assertEqual(sink.calls, ["begin", "write", "close"])

    def test_two_queries_at_a_time_are_refused(self):
        session, free, came = session_of(4), threading.Event(), threading.Event()

        def slow(batch):
            came.set()
            free.wait(30)

        session.sink("out", SCHEMA, slow)
        query = session.sql("INSERT INTO out SELECT n, s FROM numbers")
        run = query.start()
        self.assertTrue(came.wait(30))
        with self.assertRaisesRegex(slackwater.QueryError, "another query of this process writes"):
            query.run()
        free.set()
        run.wait()
        query.run()

    def test_a_drop_of_a_query_lets_the_sink_go(self):
        session, seen, closed = session_of(1_000_000), [], []

        class Counts(slackwater.Sink):
            def write(self, batch):
                seen.append(1)

            def close(self):
                closed.append(1)

        session.sink("out", SCHEMA, Counts())
        run = session.sql("INSERT INTO out SELECT n, s FROM numbers").start()
        self.assertTrue(wait_until(lambda: len(seen) > 0))
        del run
        self.assertTrue(wait_until(lambda: closed == [1]))


@needs_engine
class ExactlyOnce(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def query(self, sink, rows=400, exactly_once=True):
        session = session_of(rows, state=os.path.join(self.folder.name, "state"))
        session.sink("out", SCHEMA, sink, exactly_once=exactly_once)
        return session.sql("INSERT INTO out SELECT n, s FROM numbers")

    def test_rows_are_visible_when_their_checkpoint_is_stored(self):
        sink = Staged()
        self.query(sink).run()
        self.assertEqual(sink.all(), list(range(400)))
        self.assertEqual(sink.staged, {})
        counts = (sink.calls.count("begin"), sink.calls.count("close"))
        self.assertEqual((sink.calls[0], *counts), ("begin", 1, 1))
        again = Staged()
        self.query(again).run()
        self.assertEqual(set(again.calls) - {"commit"}, set(), "the query has finished")

    def test_a_run_continues_where_the_last_one_was_stopped(self):
        sink = Staged()
        run = self.query(sink, rows=20_000).start()
        self.assertTrue(wait_until(lambda: len(sink.visible) > 1))
        run.stop()
        run.wait()
        self.assertLess(len(sink.all()), 20_000)
        first = list(sink.all())
        self.query(sink, rows=20_000).run()
        self.assertEqual(sink.all(), list(range(20_000)))
        self.assertEqual(first, list(range(len(first))))

    def test_a_commit_that_raises_once_is_repeated(self):
        sink = Staged()
        sink.fails = {"commit": 1}
        # Enough that the first commit comes before the end, which is no restart.
        report = self.query(sink, rows=4_000).run()
        self.assertEqual(sink.all(), list(range(4_000)))
        self.assertEqual(report.restarts, 1)
        self.assertEqual(sink.calls.count("begin"), 2)

    def test_a_commit_that_raises_again_ends_the_query_and_is_repeated_by_the_next_run(self):
        sink = Staged()
        sink.fails = {"commit": 1_000}
        with self.assertRaisesRegex(slackwater.Error, "commit can't"):
            self.query(sink).run()
        self.assertLess(sink.calls.count("commit"), 20, "it is not tried for ever")
        sink.fails = {}
        self.query(sink).run()
        self.assertEqual(sink.all(), list(range(400)))

    def test_a_prepare_that_raises_ends_the_query(self):
        sink = Staged()
        sink.fails = {"prepare": 1}
        with self.assertRaisesRegex(slackwater.QueryError, r"prepare\(\) has raised(.*\n)*.*prepare can't"):
            self.query(sink).run()
        self.query(sink).run()
        self.assertEqual(sink.all(), list(range(400)))

    def test_what_is_prepared_must_be_storable_and_small(self):
        class Odd(Staged):
            def __init__(self, what):
                super().__init__()
                self.what = what

            def prepare(self, checkpoint):
                return self.what

        for what, said in ((lambda: 1, "can't be stored"), ("x" * 100_000, "at most 65536 are stored")):
            with self.assertRaisesRegex(slackwater.QueryError, said):
                self.query(Odd(what)).run()

    def test_flush_is_called_before_a_checkpoint_has_the_rows(self):
        class Buffered(slackwater.Sink):
            def __init__(self):
                self.rows, self.out = [], []

            def begin(self):
                self.rows = []

            def write(self, batch):
                self.rows += [row["n"] for row in batch.to_pylist()]

            def flush(self):
                self.out += self.rows
                self.rows = []

        sink = Buffered()
        run = self.query(sink, rows=20_000, exactly_once=False).start()
        self.assertTrue(wait_until(lambda: len(sink.out) > 0))
        run.stop()
        run.wait()
        sink.rows = [-1]
        self.query(sink, rows=20_000, exactly_once=False).run()
        self.assertEqual(sorted(set(sink.out)), list(range(20_000)))


# A query whose sink kills its process at a place, once.
KILLED = """
    import json, os, signal, sys
    import slackwater

    folder, place = sys.argv[1:]

    def die(at):
        mark = os.path.join(folder, "died")
        if at == place and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

    class Files(slackwater.Sink):
        def begin(self):
            self.rows = []
            for name in os.listdir(folder):
                if name.startswith("staged-"):
                    os.remove(os.path.join(folder, name))
        def write(self, batch):
            self.rows += [row["n"] for row in batch.to_pylist()]
            if len(self.rows) > 5:
                die("write")
        def prepare(self, checkpoint):
            with open(os.path.join(folder, "staged-" + checkpoint), "w") as file:
                json.dump(self.rows, file)
            self.rows = []
            die("prepare")
            return checkpoint
        def commit(self, checkpoint):
            die("before commit")
            staged = os.path.join(folder, "staged-" + checkpoint)
            with open(os.path.join(folder, "commits"), "a") as file:
                file.write(checkpoint + "\\n")
            if os.path.exists(staged):
                os.rename(staged, os.path.join(folder, "visible-" + checkpoint))
            die("after commit")

    session = slackwater.Session(state=os.path.join(folder, "state"), checkpoint_interval="10 ms")

    @session.source("numbers", {"n": "BIGINT"})
    def numbers(offset):
        for n in range(offset or 0, 2_000):
            yield [(n,)], n + 1

    session.sink("out", {"n": "BIGINT"}, Files(), exactly_once=True)
    session.execute("INSERT INTO out SELECT n FROM numbers")
"""


@needs_engine
class Killed(unittest.TestCase):
    def test_a_commit_is_repeated_after_a_crash(self):
        script = textwrap.dedent(KILLED)
        environment = {**os.environ, "PYTHONPATH": os.path.dirname(TESTS)}
        for place in ("write", "prepare", "before commit", "after commit"):
            with self.subTest(place), tempfile.TemporaryDirectory() as folder:
                for expected in (-signal.SIGKILL, 0):
                    command = [sys.executable, "-B", "-c", script, folder, place]
                    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
                    self.assertEqual(ran.returncode, expected, ran.stderr)
                rows = []
                for name in os.listdir(folder):
                    self.assertFalse(name.startswith("staged-"), name)
                    if name.startswith("visible-"):
                        with open(os.path.join(folder, name), encoding="utf-8") as file:
                            rows += json.load(file)
                self.assertEqual(sorted(rows), list(range(2_000)))
                with open(os.path.join(folder, "commits"), encoding="utf-8") as file:
                    commits = file.read().split()
                twice = len(commits) - len(set(commits))
                self.assertGreaterEqual(twice, place == "after commit", "it was committed again")


@needs_engine
class Example(unittest.TestCase):
    def test_the_example_is_killed_and_run_again(self):
        root = os.path.abspath(os.path.join(TESTS, "../../.."))
        script = os.path.join(root, "examples/python_source_and_sink.py")
        environment = {**os.environ, "PYTHONPATH": os.path.dirname(TESTS)}
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-B", script]
            run = functools.partial(
                subprocess.run, command, cwd=folder, env=environment, capture_output=True
            )
            with self.assertRaises(subprocess.TimeoutExpired):
                run(timeout=1.5)
            ended = run(timeout=60, text=True)
        self.assertEqual(ended.stdout, "60 averages, from 4.5 to 4.5\n", ended.stderr)
