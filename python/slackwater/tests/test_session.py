"""Queries in this process."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from datetime import timedelta

import slackwater
from engine import declare_visits, needs_engine, threads, wait_until

TESTS = os.path.dirname(os.path.abspath(__file__))


def counted(session, **options):
    declare_visits(session, **options)
    return session.sql("SELECT country, COUNT(*) AS n FROM visits GROUP BY country")


@needs_engine
class Sessions(unittest.TestCase):
    def test_a_query_runs_each_time_it_is_read(self):
        session = slackwater.Session()
        query = counted(session, rows=5000)
        self.assertIsNone(query.report)
        for _ in range(2):
            self.assertEqual(sum(row["n"] for row in query.to_pylist()), 5000)
        self.assertEqual(query.report.rows_in, 5000)
        self.assertEqual(query.report["rows_bad"], 0)
        self.assertEqual(query.progress()["status"], "finished")
        with self.assertRaises(AttributeError):
            query.report.no_such_field

    def test_batches_come_with_their_changes(self):
        session = slackwater.Session(parallelism=2)
        declare_visits(session, rows=3000)
        names = [name for name, _ in session.sql("SELECT ip, page_id FROM visits").columns]
        self.assertEqual(names, ["ip", "page_id"])
        rows = sum(len(batch) for batch in session.sql("SELECT ip, page_id FROM visits"))
        self.assertEqual(rows, 3000)
        query = session.sql("SELECT COUNT(*) AS n FROM visits")
        self.assertEqual(query.columns, [("change", "Utf8View"), ("n", "Int64")])
        last = [batch.to_pylist()[-1] for batch in query][-1]
        self.assertEqual((last["change"][0], last["n"]), ("+", 3000))

    def test_statements_are_kept_and_forgotten(self):
        session = slackwater.Session()
        declare_visits(session, rows=10)
        self.assertIsNone(session.sql("CREATE VIEW v AS SELECT ip FROM visits; SET 'parallelism' = '2'"))
        self.assertEqual(session.tables(), ["visits", "v"])
        self.assertEqual(len(session.sql("SELECT * FROM v").rows()), 10)
        with self.assertRaisesRegex(slackwater.SqlError, "used by another declaration"):
            session.drop("visits")
        session.sql("DROP VIEW v; DROP TABLE IF EXISTS nothing")
        session.drop("visits")
        self.assertEqual(session.tables(), [])

    def test_an_insert_writes_and_reports(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.csv")
            session = slackwater.Session()
            declare_visits(session, rows=100)
            session.sql(f"CREATE TABLE o (ip STRING) WITH ('connector' = 'file', 'path' = '{path}')")
            report = session.execute("INSERT INTO o SELECT ip FROM visits")
            self.assertEqual((report.rows_in, report.rows_out), (100, 100))
            with open(path, encoding="utf-8") as file:
                self.assertGreaterEqual(len(file.readlines()), 100)

    def test_state_is_resumed_from(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.csv")
            for _ in range(2):
                session = slackwater.Session(state=os.path.join(folder, "state"))
                declare_visits(session, rows=100)
                session.sql(f"CREATE TABLE o (ip STRING) WITH ('connector' = 'file', 'path' = '{path}')")
                report = session.execute("INSERT INTO o SELECT ip FROM visits")
            self.assertEqual(report.rows_in, 0, "it had finished")

    def test_errors_have_a_line_and_a_hint(self):
        session = slackwater.Session()
        declare_visits(session, rows=10)
        with self.assertRaises(slackwater.SqlError) as caught:
            session.sql("SELECT ip,\n       revenu\nFROM visits")
        error = caught.exception
        self.assertEqual((error.line, error.column), (2, 8))
        self.assertEqual(error.message, "there is no column 'revenu'")
        self.assertIn("ad_revenue", error.hint)
        self.assertIn("2 |        revenu", str(error))
        for text in ("SELEC", "SELECT ip FROM visits; SELECT ip FROM visits", "CREATE TABLE t (a INT)"):
            with self.assertRaises(slackwater.Error):
                session.sql(text)
        with self.assertRaisesRegex(slackwater.SqlError, "latency_targe"):
            slackwater.Session(latency_targe="5 ms")
        with self.assertRaisesRegex(slackwater.SqlError, "processes"):
            counted(slackwater.Session(processes=2), rows=10)

    def test_a_query_that_fails_says_why(self):
        session = slackwater.Session()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "in.csv")
            with open(path, "w", encoding="utf-8") as file:
                file.write("1\n2\nthree\n")
            session.sql(
                "CREATE TABLE t (n BIGINT) WITH ('connector' = 'file', 'format' = 'csv', "
                f"'path' = '{path}', 'on_error' = 'fail', 'csv.header' = 'false')"
            )
            query = session.sql("SELECT n FROM t")
            with self.assertRaises(slackwater.QueryError) as caught:
                query.to_pylist()
            self.assertIn("in.csv:3", str(caught.exception))

    def test_explain_and_settings(self):
        session = slackwater.Session(latency_target=timedelta(milliseconds=50), parallelism=2)
        declare_visits(session, rows=10)
        self.assertIn("within 50.0 ms", session.explain("SELECT ip FROM visits"))
        with self.assertRaisesRegex(slackwater.SqlError, "explain"):
            session.sql("EXPLAIN SELECT ip FROM visits")

    def test_a_slow_reader_slows_the_query(self):
        session = slackwater.Session()
        declare_visits(session)
        with session.sql("SELECT ip FROM visits").start() as run:
            batches = iter(run)
            next(batches)
            rows = lambda: run.progress()["sources"][0]["rows"]  # noqa: E731
            self.assertTrue(wait_until(lambda: run.progress()["sources"]))
            before = -1
            while before != (before := rows()):
                time.sleep(0.3)
            self.assertLess(before, 1_000_000, "the table has no end")
            for _ in range(50):
                next(batches)
            self.assertTrue(wait_until(lambda: rows() > before))
        self.assertTrue(wait_until(lambda: not run.is_running))

    def test_a_reader_that_stops_ends_the_query(self):
        session = slackwater.Session()
        declare_visits(session)
        before = threads()
        for batch in session.sql("SELECT ip FROM visits"):
            self.assertGreater(len(batch), 0)
            break
        self.assertTrue(wait_until(lambda: threads() <= before), "its threads have ended")
        run = session.sql("SELECT ip FROM visits").start()
        self.assertTrue(wait_until(lambda: threads() > before))
        del run
        self.assertTrue(wait_until(lambda: threads() <= before))

    def test_stop_and_wait(self):
        session = slackwater.Session()
        declare_visits(session, rate="1000/s")
        run = session.sql("SELECT ip FROM visits").start()
        self.assertIsNone(run.wait(0.2))
        self.assertTrue(run.is_running)
        run.stop()
        self.assertGreater(run.wait().rows_in, 0)
        self.assertFalse(run.is_running)

    def test_async_for(self):
        session = slackwater.Session()
        declare_visits(session, rows=3000)

        async def read():
            return sum([len(batch) async for batch in session.sql("SELECT ip FROM visits")])

        self.assertEqual(asyncio.run(read()), 3000)
        endless = slackwater.Session()
        declare_visits(endless, rate="10/s")

        async def cancelled():
            async for _ in endless.sql("SELECT ip FROM visits"):
                pass

        before = threads()
        with self.assertRaises(asyncio.TimeoutError):
            asyncio.run(asyncio.wait_for(cancelled(), 0.5))
        self.assertTrue(wait_until(lambda: threads() <= before + 1), "the query was cancelled")

    def test_threads_read_at_the_same_time(self):
        session = slackwater.Session()
        query = counted(session, rows=20_000)
        sums = []
        readers = [
            threading.Thread(target=lambda: sums.append(sum(row["n"] for row in query.to_pylist())))
            for _ in range(4)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        self.assertEqual(sums, [20_000] * 4)


@needs_engine
class Interrupts(unittest.TestCase):
    def run_and_interrupt(self, body: str) -> subprocess.CompletedProcess:
        start = """
            import sys, slackwater
            from engine import declare_visits
            session = slackwater.Session()
            declare_visits(session, rate="100/s")
            query = session.sql("SELECT ip FROM visits")
        """
        program = textwrap.dedent(start) + textwrap.dedent(body)
        child = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([TESTS, os.path.dirname(TESTS)])},
        )
        self.assertEqual(child.stdout.readline(), "begun\n")
        time.sleep(0.3)
        started = time.monotonic()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
        self.assertLess(time.monotonic() - started, 5)
        return subprocess.CompletedProcess(program, child.returncode, out, err)

    def test_ctrl_c_ends_a_wait(self):
        for wait in ("query.to_pylist()", "query.run()", "for batch in query: pass"):
            body = f"""
                print("begun", flush=True)
                try:
                    {wait}
                except KeyboardInterrupt:
                    print("interrupted")
            """
            done = self.run_and_interrupt(body)
            self.assertEqual((done.returncode, done.stdout), (0, "interrupted\n"), done.stderr)

    def test_a_program_that_ends_ends_its_queries(self):
        body = """
            run = query.start()
            print("begun", flush=True)
            try:
                import time; time.sleep(60)
            except KeyboardInterrupt:
                sys.exit(7)
        """
        done = self.run_and_interrupt(body)
        self.assertEqual((done.returncode, done.stderr), (7, ""))

    def test_regression_the_engine_is_loaded_by_a_thread_that_ends(self):
        program = """
            import threading

            def first():
                import slackwater
                slackwater.Session().execute("CREATE TABLE t (a INT) WITH ('connector' = 'print')")

            for _ in range(20):
                thread = threading.Thread(target=first)
                thread.start()
                thread.join()
            print("fine")
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True,
                              text=True, timeout=60)  # fmt: skip
        self.assertEqual((done.returncode, done.stdout), (0, "fine\n"), done.stderr)
