"""A server's client, with a real server."""

import asyncio
import datetime as dt
import decimal
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import unittest
import warnings
from unittest import mock

import slackwater
from engine import IS_BUILT, needs, wait_until
from served import Served, needs_program

TESTS = os.path.dirname(os.path.abspath(__file__))
SERVED = None

# A value of each type of SQL, as a query writes it.
TYPES = {
    "b": ("CAST('true' AS BOOLEAN)", True),
    "i8": ("CAST(-128 AS TINYINT)", -128),
    "i16": ("CAST(32767 AS SMALLINT)", 32767),
    "i32": ("CAST(-7 AS INT)", -7),
    "i64": ("CAST('9223372036854775807' AS BIGINT)", 2**63 - 1),
    "f32": ("CAST('0.1' AS FLOAT)", 0.10000000149011612),
    "f64": ("CAST('1e300' AS DOUBLE)", 1e300),
    "d": ("CAST('12345678901234567890.12' AS DECIMAL(22, 2))", decimal.Decimal("12345678901234567890.12")),
    "d0": ("CAST('12345678901234567890' AS DECIMAL(20, 0))", decimal.Decimal(12345678901234567890)),
    "s": ("'ä\U0001f600 ''\"\\'", "ä\U0001f600 '\"\\"),
    "day": ("DATE '1969-12-31'", dt.date(1969, 12, 31)),
    "t0": ("CAST('2026-01-02 03:04:05' AS TIMESTAMP(0))", dt.datetime(2026, 1, 2, 3, 4, 5)),
    "t3": ("CAST('2026-01-02 03:04:05.007' AS TIMESTAMP(3))", dt.datetime(2026, 1, 2, 3, 4, 5, 7000)),
    "t9": ("CAST('2026-01-02 03:04:05.123456789' AS TIMESTAMP(9))",
           dt.datetime(2026, 1, 2, 3, 4, 5, 123456)),
    "old": ("CAST('0001-01-01 00:00:00.5' AS TIMESTAMP(6))", dt.datetime(1, 1, 1, 0, 0, 0, 500_000)),
    "a": ("ARRAY[1, NULL, 3]", [1, None, 3]),
    "r": ("ROW(1, 'x', CAST('1.50' AS DECIMAL(3, 2)))",
          {"c0": 1, "c1": "x", "c2": decimal.Decimal("1.50")}),
}  # fmt: skip
SELECT_TYPES = "SELECT " + ", ".join(f"{text} AS {name}" for name, (text, _) in TYPES.items())
EXPECTED = {name: value for name, (_, value) in TYPES.items()}


def setUpModule():
    global SERVED
    warnings.simplefilter("ignore", UserWarning)
    if not getattr(needs_program(Server), "__unittest_skip__", False):
        SERVED = Served()


def tearDownModule():
    if SERVED is not None:
        SERVED.stop()


def without_pyarrow():
    return mock.patch.dict(sys.modules, {"pyarrow": None, "pyarrow.ipc": None})


def folded(changes):
    """The rows that changes leave, of a view with the key k."""
    left = {}
    for row in changes:
        assert (row["op"] == "+I") == (row["k"] not in left), row
        if row["op"].startswith("+"):
            left[row["k"]] = tuple(row.values())[1:]
        elif row["op"] == "-D":
            del left[row["k"]]
    return sorted(left.values())


@needs_program
class Server(unittest.TestCase):
    """Each test has a table and a view of its own."""

    def setUp(self):
        self.session = slackwater.connect(SERVED.url)
        self.addCleanup(self.session.close)
        self.name = self.id().rsplit(".", 1)[1]

    def counted(self, session=None, **options):
        """A table, and a view that counts its rows by key."""
        session = session or self.session
        table = session.table(f"t_{self.name}", {"k": "STRING", "n": "BIGINT"}, **options)
        view = f"v_{self.name}"
        session.sql(
            f"CREATE MATERIALIZED VIEW {view} AS "
            f"SELECT k, COUNT(*) AS n, SUM(n) AS s FROM t_{self.name} GROUP BY k"
        )
        self.addCleanup(lambda: SERVED.process.poll() is None and session.sql(
            f"DROP TABLE t_{self.name} CASCADE"))  # fmt: skip
        return table, view


class Reads(Server):
    def test_the_same_code_takes_both_sessions(self):
        self.assertIsInstance(self.session, slackwater.BaseSession)
        if not IS_BUILT:
            self.skipTest("the engine's module is not built: make python")
        statements = "CREATE VIEW both_sessions AS SELECT 1 AS one, CAST(NULL AS STRING) AS nothing"
        read = "SELECT one, nothing FROM both_sessions"
        answers = []
        for session in (self.session, slackwater.Session()):
            with self.assertRaises(slackwater.SqlError) as caught:
                session.sql("SELECT 1;\nCREATE TABL t (n BIGINT)")
            with self.assertRaises(slackwater.SqlError) as other:
                session.sql("CREATE TABLE t (\n  n BIGIN)")
            session.sql("CREATE TABLE both (n BIGINT) WITH ('connector' = 'datagen', 'rows' = '1')")
            with self.assertRaisesRegex(slackwater.SqlError, "explain"):
                session.sql("EXPLAIN SELECT n FROM both")
            session.drop("both")
            with self.assertRaises(slackwater.SqlError):
                session.drop("no_such_table")
            found = other.exception
            answers.append([str(found), found.message, found.hint, found.line, found.column])
            self.assertIsInstance(caught.exception, slackwater.SqlError)
        self.assertEqual(answers[0], answers[1])
        self.assertIsNone(self.session.sql(statements))
        self.assertEqual(self.session.sql(read).to_pylist(), [{"one": 1, "nothing": None}])
        self.session.drop("both_sessions")

    def test_all_types_come_back(self):
        kinds = dict(self.session.sql(SELECT_TYPES).columns)
        self.assertEqual((kinds["d"], kinds["a"], kinds["t9"]), ("DECIMAL(22, 2)", "ARRAY<BIGINT>", "TIMESTAMP(9)"))
        nulls = "SELECT " + ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in kinds.items()
                                      if name not in "ar")  # fmt: skip
        for missing in (False, True):
            with without_pyarrow() if missing else mock.patch.dict(os.environ):
                self.assertEqual(self.session.sql(SELECT_TYPES).to_pylist(), [EXPECTED])
                self.assertEqual(set(self.session.sql(nulls).to_pylist()[0].values()), {None})

    @unittest.skipUnless(IS_BUILT, "the engine's module is not built: make python")
    def test_values_are_those_of_a_query_in_this_process(self):
        own = slackwater.Session()
        own.register("one", [(1,)], schema="n BIGINT")
        here = own.sql(f"{SELECT_TYPES} FROM one").to_pylist()
        self.assertEqual(self.session.sql(SELECT_TYPES).to_pylist(), here)

    @needs("pyarrow", "pandas", "polars", "duckdb")
    def test_frames(self):
        import duckdb
        import polars
        import pyarrow

        query = self.session.sql("SELECT k, n FROM (VALUES ('a', 1), ('ä', NULL)) AS t (k, n)")
        rows = [{"k": "a", "n": 1}, {"k": "ä", "n": None}]
        by_k = lambda listed: sorted(listed, key=lambda row: row["k"])  # noqa: E731
        self.assertEqual(by_k(query.to_arrow().to_pylist()), rows)
        self.assertEqual(by_k(query.to_polars().to_dicts()), rows)
        self.assertEqual(sorted(query.to_pandas()["k"]), ["a", "ä"])
        self.assertEqual(by_k(pyarrow.table(query).to_pylist()), rows)
        self.assertEqual(by_k(polars.DataFrame(query).to_dicts()), rows)
        self.assertEqual(duckdb.sql("SELECT COUNT(n), MAX(k) FROM query").fetchall(), [(1, "ä")])
        with without_pyarrow():
            self.assertEqual(query.to_polars().schema, {"k": polars.String, "n": polars.Int64})
        for batch in query:
            self.assertEqual((batch.num_rows, batch.num_columns), (len(batch), 2))
            self.assertEqual(batch["n"].to_pylist(), batch.column(1).to_pylist())
            self.assertEqual(batch["k"][-1], batch.to_pylist()[-1]["k"])
            with self.assertRaises(KeyError):
                batch["x"]
            with self.assertRaises(IndexError):
                batch["n"][len(batch)]

    def test_empty_results_have_columns(self):
        query = self.session.sql("SELECT 1 AS n, 'x' AS s LIMIT 0")
        for missing in (False, True):
            with without_pyarrow() if missing else mock.patch.dict(os.environ):
                self.assertEqual(query.to_pylist(), [])
                self.assertEqual(query.rows().column_names, ["n", "s"])
                self.assertEqual(list(query), [])

    @needs("pyarrow")
    def test_empty_frames_have_types(self):
        table = self.session.sql("SELECT 1 AS n, 'x' AS s LIMIT 0").to_arrow()
        self.assertEqual((table.num_rows, str(table.schema.field("n").type)), (0, "int64"))

    def test_infinity_and_nan(self):
        query = self.session.sql("SELECT CAST('NaN' AS DOUBLE) AS x, CAST('-inf' AS DOUBLE) AS y")
        with without_pyarrow():
            self.assertEqual(query.to_pylist(), [{"x": None, "y": None}], "JSON has neither")
        if slackwater.client.forms.has_pyarrow():
            row = query.to_pylist()[0]
            self.assertTrue(math.isnan(row["x"]))
            self.assertEqual(row["y"], -math.inf)

    def test_errors_have_a_place_and_a_hint(self):
        text = "-- ä comment; with a semicolon\nSELECT 'a;b',\n  foo\nFROM (SELECT 1 AS food) AS t;"
        with self.assertRaises(slackwater.SqlError) as caught:
            self.session.sql(text)
        error = caught.exception
        self.assertEqual((error.line, error.column, error.kind), (3, 3, "undefined"))
        self.assertIn("foo", error.message)
        self.assertIn("food", error.hint)
        self.assertIn("3 |   foo\n  |   ^^^\n  = ", str(error))
        with self.assertRaises(slackwater.SqlError) as caught:
            self.session.sql("SET 'linger' = '5 ms';\n\n  CREATE VIEW v AS SELECT 1;\n CREATE TABLE t (n BIGIN)")
        self.assertEqual((caught.exception.line, caught.exception.column), (4, 18))
        with self.assertRaisesRegex(slackwater.SqlError, "divi"):
            self.session.sql("SELECT 1 / 0 AS x").to_pylist()
        with self.assertRaises(slackwater.SqlError) as caught:
            self.session.execute("CREATE VIEW twice AS SELECT 1; CREATE VIEW twice AS SELECT 1")
        self.session.drop("twice")
        self.assertEqual(caught.exception.kind, "duplicate")
        for text, said in (
            ("SELECT 1; SELECT 2", "several"),
            ("SELECT 1; SET 'linger' = '1 ms'", "after the query"),
        ):
            with self.assertRaisesRegex(slackwater.SqlError, said):
                self.session.sql(text)

    def test_a_text_that_is_too_long(self):
        with self.assertRaisesRegex(slackwater.SqlError, "(?s)1048576.*less"):
            self.session.sql(f"SELECT '{'x' * (2 << 20)}' AS x", []).to_pylist()

    def test_parameters(self):
        text = "SELECT k FROM (VALUES ('a', 1), ('b', 2)) AS t (k, n) WHERE n = CAST($1 AS BIGINT)"
        self.assertEqual(self.session.sql(text, [2]).to_pylist(), [{"k": "b"}])
        self.assertEqual(self.session.sql(text, [None]).to_pylist(), [])
        with self.assertRaisesRegex(slackwater.SqlError, "x"):
            self.session.sql(text, ["x"]).to_pylist()
        with self.assertRaisesRegex(slackwater.SqlError, "parameters"):
            self.session.sql("SET 'linger' = '1 ms'", [1])

    def test_settings_are_kept_for_later_statements(self):
        session = slackwater.connect(SERVED.url, latency_target=dt.timedelta(milliseconds=20), chunk_rows=100)
        session.sql("SET 'linger' = '3 ms'; SET state_ttl TO '1 h'")
        session.sql("RESET 'state_ttl'")
        shown = {row["name"]: row["value"] for row in session.sql("SHOW SETTINGS").to_pylist()}
        self.assertEqual((shown["linger"], shown["chunk_rows"]), ("3 ms", "100"))
        self.assertNotEqual(shown["state_ttl"], "1 h")
        self.assertIn("20", shown["latency_target"])
        with self.assertRaisesRegex(slackwater.SqlError, "latency_targe"):
            slackwater.connect(SERVED.url, latency_targe="5 ms")

    def test_explain(self):
        _, view = self.counted()
        self.assertIn("#0", self.session.explain(f"SELECT * FROM {view} WHERE k = 'a'"))
        with self.assertRaises(slackwater.SqlError) as caught:
            self.session.explain("SELECT x FROM (VALUES (1)) AS t (n)")
        self.assertEqual(caught.exception.column, 8)


class Rows(Server):
    def test_rows_are_pushed_and_read(self):
        table, view = self.counted()
        self.assertEqual(table.column_names, ["k", "n"])
        self.assertEqual(table.push([{"k": "a", "n": 1}, {"k": "ä\n\"'\\", "n": None}]), 2)
        self.assertEqual(table.push([("a", 5)]), 1)
        self.assertEqual(table.push({"k": ["b", "b"], "n": [1, 2]}), 2)
        self.assertEqual(table.push('{"k": "b", "n": 4}\n'), 1)
        self.assertEqual(table.push([]), 0)
        read = {row["k"]: (row["n"], row["s"]) for row in self.session.sql(f"SELECT * FROM {view}").to_pylist()}
        self.assertEqual(read, {"a": (2, 6), "ä\n\"'\\": (1, None), "b": (3, 7)})
        again = self.session.table(f"t_{self.name}")
        self.assertEqual(again.push([("b", 1)]), 1)

    def test_what_is_wrong_with_rows(self):
        table, _ = self.counted()
        for rows, said in (
            ([{"k": "a", "n": "x"}], "n"),
            ([{"k": "a", "n": math.nan}], "csv"),
            ([(1,)], "1 values for 2 columns"),
            (7, "int is not rows"),
        ):
            with self.assertRaisesRegex(slackwater.SqlError, said):
                table.push(rows)
        with self.assertRaisesRegex(slackwater.SqlError, "8192 rows were accepted"):
            table.push([("a", 1)] * 8192 + [("a", "x")])
        with self.assertRaisesRegex(slackwater.SqlError, "no table 'nothing'"):
            self.session.table("nothing")
        with self.assertRaisesRegex(slackwater.SqlError, "schema"):
            self.session.table(f"t_{self.name}", event_time="k")
        table.close()
        with self.assertRaisesRegex(slackwater.SqlError, "closed"):
            table.push([("a", 1)])

    def test_values_of_each_type_are_pushed(self):
        columns = {
            "b": "BOOLEAN", "i": "INT", "x": "DOUBLE", "d": "DECIMAL(30, 2)", "day": "DATE",
            "ts": "TIMESTAMP(6)", "s": "STRING",
        }  # fmt: skip
        utc = dt.datetime(2026, 1, 1, 9, tzinfo=dt.timezone(dt.timedelta(hours=1)))
        whole = {
            "b": True, "i": 2, "x": -math.inf, "d": decimal.Decimal("1234567890123456789012345678.05"),
            "day": dt.date(2026, 2, 3), "ts": utc, "s": 'a,"b"\nc',
        }  # fmt: skip
        expected = {**whole, "ts": dt.datetime(2026, 1, 1, 8)}
        empty = {**dict.fromkeys(columns), "i": 3, "s": ""}
        table = self.session.table("typed", columns, format="csv")
        self.addCleanup(self.session.sql, "DROP TABLE typed CASCADE")
        self.session.sql("CREATE MATERIALIZED VIEW typed_rows AS SELECT * FROM typed")
        self.assertEqual(table.push([whole, empty]), 2)
        query = self.session.sql("SELECT * FROM typed_rows ORDER BY i")
        if slackwater.client.forms.has_pyarrow():
            self.assertEqual(query.to_pylist(), [expected, empty])
        with without_pyarrow():
            self.assertEqual(query.to_pylist(), [{**expected, "x": None}, empty])

    def test_lists_and_rows_are_pushed(self):
        table = self.session.table("nested", {"l": "ARRAY<BIGINT>", "r": "ROW<a BIGINT, t STRING>"})
        self.addCleanup(self.session.sql, "DROP TABLE nested CASCADE")
        self.session.sql("CREATE MATERIALIZED VIEW nested_rows AS SELECT * FROM nested")
        row = {"l": [1, None, 3], "r": {"a": 7, "t": "x"}}
        table.push([row, {}])
        read = self.session.sql("SELECT * FROM nested_rows").to_pylist()
        self.assertEqual(sorted(read, key=str), sorted([row, {"l": None, "r": None}], key=str))

    def test_computed_columns_are_not_pushed(self):
        self.session.sql(
            "CREATE TABLE computed (ms BIGINT, k STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3), "
            "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'http', 'csv.header' = 'true')"
        )
        self.addCleanup(self.session.sql, "DROP TABLE computed CASCADE")
        self.session.sql("CREATE MATERIALIZED VIEW computed_rows AS SELECT k, ts FROM computed")
        table = self.session.table("computed")
        self.assertEqual(table.column_names, ["ms", "k"])
        self.assertEqual(table.push([(1500, "a")]), 1)
        read = self.session.sql("SELECT k, ts FROM computed_rows").to_pylist()
        self.assertEqual(read, [{"k": "a", "ts": dt.datetime(1970, 1, 1, 0, 0, 1, 500_000)}])

    @needs("pandas", "polars", "pyarrow")
    def test_frames_are_pushed(self):
        import pandas
        import polars
        import pyarrow

        table, view = self.counted()
        columns = {"n": [1, 2, None], "k": ["a", "b", None]}
        pushed = [pandas.DataFrame(columns).convert_dtypes(), polars.DataFrame(columns)]
        pushed += [pyarrow.table(columns), pyarrow.record_batch(columns)]
        for frame in pushed:
            self.assertEqual(table.push(frame), 3)
        read = {row["k"]: row["s"] for row in self.session.sql(f"SELECT k, s FROM {view}").to_pylist()}
        self.assertEqual(read, {"a": 4, "b": 8, None: None})

    def test_a_view_is_read_while_rows_come_in(self):
        table, view = self.counted()
        query = self.session.sql(f"SELECT * FROM {view}")
        pushed, threads = 40, []
        for number in range(2):
            rows = [(f"k{number}", 1)] * 50
            threads.append(threading.Thread(target=lambda r=rows: [table.push(r) for _ in range(pushed)]))
        for thread in threads:
            thread.start()
        before, reads = 0, 0
        while any(thread.is_alive() for thread in threads):
            rows = query.to_pylist()
            total = sum(row["n"] for row in rows)
            self.assertTrue(all(row["n"] == row["s"] for row in rows), "rows are of one moment")
            self.assertEqual(total % 50, 0, "a push is read as a whole")
            self.assertGreaterEqual(total, before)
            before, reads = total, reads + 1
        self.assertGreater(reads, 3)
        total = 2 * pushed * 50
        # A read may be of a moment just before the last push.
        self.assertTrue(wait_until(lambda: sum(row["n"] for row in query.to_pylist()) == total))

    def test_changes_are_those_of_the_view(self):
        table, view = self.counted()
        table.push([("a", 1), ("b", 2)])
        for missing in (False, True):
            with without_pyarrow() if missing else mock.patch.dict(os.environ):
                run = self.session.changes(view).start()
                wanted, changes = self.session.sql(f"SELECT * FROM {view}"), []
                self.assertTrue(run.is_running)
                writer = threading.Thread(
                    target=lambda: [
                        *(table.push([("a", n), (f"k{n % 7}", n)]) for n in range(30)),
                        table.push([(f"last {missing}", 0)]),
                    ]
                )
                writer.start()
                for batch in run:
                    changes += batch.to_pylist()
                    if any(row["k"] == f"last {missing}" for row in changes):
                        break
                writer.join()
                left = sorted(tuple(row.values()) for row in wanted.to_pylist())
                self.assertEqual(folded(changes), left)
                self.assertIn("+U", {row["op"] for row in changes})
                self.assertFalse(run.is_running)

    def test_changes_come_at_once(self):
        table, view = self.counted()
        with self.session.changes(view).start() as run:
            batches = iter(run)
            for n in range(3):
                table.push([(f"k{n}", n)])
                self.assertEqual(next(batches).to_pylist(), [{"op": "+I", "k": f"k{n}", "n": 1, "s": n}])
        self.assertEqual(list(batches), [])

    def test_changes_end_with_their_view(self):
        with open(os.path.join(SERVED.folder, "three.csv"), "w", encoding="utf-8") as file:
            file.write("1\n2\n3\n")
        self.session.sql(
            "CREATE TABLE three (n BIGINT) WITH ('connector' = 'file', 'path' = 'three.csv');"
            "CREATE MATERIALIZED VIEW ended AS SELECT n FROM three"
        )
        self.addCleanup(self.session.sql, "DROP TABLE three CASCADE")
        self.session.job("ended").wait(30)
        changes = self.session.changes("ended").to_pylist()
        self.assertEqual(sorted(row["n"] for row in changes), [1, 2, 3])
        table, view = self.counted()
        table.push([("a", 1)])
        for end, said in ((self.session.job(view).stop, "stopped"), (self.session.job(view).drop, "dropped")):
            self.session.job(view).start()
            batches = iter(self.session.changes(view))
            self.assertEqual(len(next(batches)), 1)
            end()
            with self.assertRaisesRegex(slackwater.QueryError, f"(?s){said}.*all rows"):
                next(batches)
        with self.assertRaises(slackwater.SqlError):
            self.session.changes("no_such_view").to_pylist()
        self.session.sql(f"CREATE MATERIALIZED VIEW {view} AS SELECT k FROM t_{self.name}")


class Jobs(Server):
    def test_jobs_are_listed_stopped_and_started(self):
        table, view = self.counted()
        self.assertIn(view, [job.name for job in self.session.jobs()])
        job = self.session.job(view)
        table.push([("a", 1), ("b", 2)])
        self.assertTrue(wait_until(lambda: job.progress()["sources"][0]["rows"] == 2))
        self.assertEqual((job.status, job.is_running, job.reason), ("running", True, None))
        self.assertEqual((job.report.rows_in, job.report.rows_bad), (2, 0))
        self.assertIn("plan", job.report["job"])
        self.assertTrue(job.why())
        self.assertIsNone(job.wait(0.2), "it goes on")
        job.set(latency_target="50 ms")
        self.assertTrue(wait_until(lambda: job.progress()["sinks"][0]["target_ms"] == 50))
        with self.assertRaisesRegex(slackwater.SqlError, "soon"):
            job.set(latency_target="soon")
        job.stop()
        self.assertEqual((job.status, job.is_running), ("stopped", False))
        self.assertEqual(job.wait().rows_in, 2)
        with self.assertRaises(slackwater.Error) as caught:
            self.session.sql(f"SELECT * FROM {view}").to_pylist()
        self.assertIn("START JOB", str(caught.exception))
        with self.assertRaisesRegex(slackwater.Error, "(?s)no job.*START JOB"):
            table.push([("a", 1)], timeout=0.5)
        job.start()
        self.assertEqual(len(self.session.sql(f"SELECT * FROM {view}").to_pylist()), 2)
        with self.assertRaisesRegex(slackwater.SqlError, "no job 'nothing'"):
            self.session.job("nothing")

    def test_an_insert_is_a_job(self):
        folder = SERVED.folder
        with open(os.path.join(folder, "in.csv"), "w", encoding="utf-8") as file:
            file.write("1\n2\n3\n")
        self.session.sql(
            "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'file', 'path' = 'in.csv');"
            "CREATE TABLE doubles (n BIGINT) WITH ('connector' = 'file', 'path' = 'out.csv', 'overwrite' = 'true')"
        )
        self.addCleanup(self.session.sql, "DROP TABLE numbers CASCADE; DROP TABLE doubles CASCADE")
        query = self.session.sql("INSERT INTO doubles SELECT n * 2 FROM numbers")
        self.assertEqual(query.columns, [])
        query.run()
        with open(os.path.join(folder, "out.csv"), encoding="utf-8") as file:
            self.assertEqual(file.read().split(), ["2", "4", "6"])
        job = self.session.execute(
            "SET 'pipeline.name' = 'it''s ä/job'; INSERT INTO doubles SELECT n FROM numbers"
        )
        self.assertEqual(job.name, "it's ä/job")
        job.wait(30)
        self.assertEqual(job.status, "finished")
        with self.assertRaisesRegex(slackwater.SqlError, "nothing"):
            self.session.sql("INSERT INTO doubles SELECT n FROM nothing")

    def test_a_job_that_fails_says_why(self):
        with open(os.path.join(SERVED.folder, "bad.csv"), "w", encoding="utf-8") as file:
            file.write("1\nx\n")
        self.session.sql(
            "SET 'restarts' = '0'; CREATE TABLE bad (n BIGINT) WITH ('connector' = 'file', 'path' = 'bad.csv', "
            "'on_error' = 'fail'); CREATE TABLE hole (n BIGINT) WITH ('connector' = 'blackhole')"
        )
        self.addCleanup(self.session.sql, "DROP TABLE bad CASCADE; DROP TABLE hole CASCADE")
        with self.assertRaises(slackwater.QueryError) as caught:
            self.session.sql("INSERT INTO hole SELECT n FROM bad").run()
        self.assertIn("bad.csv:2", str(caught.exception))


class Ends(Server):
    def streams(self):
        """The streams of changes that the server sends, by its open connections from this process."""
        with open("/proc/net/tcp", encoding="ascii") as file:
            # Established, from here to the server's port.
            return sum(line.split()[2:4] == [f"0100007F:{SERVED.port:04X}", "01"] for line in file)

    def test_a_reader_that_stops_releases_the_server(self):
        table, view = self.counted()
        table.push([("a", 1)])
        self.session.close()
        before = self.streams()
        for batch in self.session.changes(view):
            self.assertEqual(self.streams(), before + 1)
            break
        self.assertTrue(wait_until(lambda: self.streams() == before))
        run = self.session.changes(view).start()
        self.assertTrue(wait_until(lambda: self.streams() == before + 1))
        del run
        self.assertTrue(wait_until(lambda: self.streams() == before))

    def test_a_run_is_stopped_by_another_thread(self):
        _, view = self.counted()
        run = self.session.changes(view).start()
        read = []
        reader = threading.Thread(target=lambda: read.extend(run))
        reader.start()
        run.stop()
        reader.join(10)
        self.assertFalse(reader.is_alive())
        waiting = self.session.changes(view).start()
        self.assertIsNone(waiting.wait(0.2))
        self.assertTrue(waiting.is_running)
        waiting.stop()
        waiting.wait(10)
        self.assertFalse(waiting.is_running)

    def test_async_for(self):
        table, view = self.counted()
        table.push([("a", 1)])

        async def read(count):
            found = []
            async for batch in self.session.changes(view):
                found += batch.to_pylist()
                if len(found) >= count:
                    return found

        self.assertEqual(len(asyncio.run(read(1))), 1)
        started = time.monotonic()
        with self.assertRaises(asyncio.TimeoutError):
            asyncio.run(asyncio.wait_for(read(2), 0.5))
        self.assertLess(time.monotonic() - started, 10, "the thread that reads was woken")

    def test_connections_are_used_again(self):
        query = self.session.sql("SELECT 1 AS n")
        opened = self.session._wire._open
        with mock.patch.object(self.session._wire, "_open", side_effect=opened) as opening:
            for _ in range(5):
                query.to_pylist()
            with without_pyarrow():
                query.to_pylist()
            self.session.jobs()
            self.assertEqual(opening.call_count, 0)
            threads = [threading.Thread(target=query.to_pylist) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertLessEqual(len(self.session._wire._idle), 4)

    def test_ctrl_c_ends_a_stream(self):
        _, view = self.counted()
        self.session.close()
        before = self.streams()
        for wait in ("for batch in query: pass", "query.to_pylist()", "query.run()"):
            body = f"""
                import slackwater, sys
                if sys.argv[1] == "lines":
                    sys.modules["pyarrow"] = None
                query = slackwater.connect("{SERVED.url}").changes("{view}")
                print("begun", flush=True)
                try:
                    {wait}
                except KeyboardInterrupt:
                    print("interrupted")
            """
            for form in ("arrow", "lines"):
                child = subprocess.Popen(
                    [sys.executable, "-c", textwrap.dedent(body), form],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    env={**os.environ, "PYTHONPATH": os.path.dirname(TESTS)},
                )  # fmt: skip
                self.assertEqual(child.stdout.readline(), "begun\n")
                self.assertTrue(wait_until(lambda: self.streams() == before + 1), "it reads")
                time.sleep(0.3)
                child.send_signal(signal.SIGINT)
                started = time.monotonic()
                out, err = child.communicate(timeout=30)
                self.assertEqual((child.returncode, out), (0, "interrupted\n"), err)
                self.assertLess(time.monotonic() - started, 5)
                self.assertTrue(wait_until(lambda: self.streams() == before))


@needs_program
class Doors(unittest.TestCase):
    def test_tokens(self):
        with Served(token="secret") as served, mock.patch.dict(os.environ):
            os.environ.pop("SLACKWATER_TOKEN", None)
            for token in (None, "secre", "ä", "a\nb"):
                with self.assertRaisesRegex(slackwater.ServerError, "token") as caught:
                    slackwater.connect(served.url, token)
                self.assertTrue(caught.exception.hint)
            self.assertIn("SLACKWATER_TOKEN", str(caught.exception) + caught.exception.hint + "SLACKWATER_TOKEN")
            session = slackwater.connect(served.url, "secret")
            self.assertEqual(session.sql("SELECT 1 AS n").to_pylist(), [{"n": 1}])
            os.environ["SLACKWATER_TOKEN"] = "secret"
            self.assertEqual(slackwater.connect(served.url).tables(), [])

    def test_a_server_that_goes_and_comes_back(self):
        with Served() as served:
            session = slackwater.connect(served.url)
            table = session.table("t", {"k": "STRING", "n": "BIGINT"}, acknowledge="checkpoint")
            session.sql("SET 'checkpoint_interval' = '50 ms'; "
                        "CREATE MATERIALIZED VIEW v AS SELECT k, COUNT(*) AS n FROM t GROUP BY k")  # fmt: skip
            table.push([("a", 1)])
            batches = iter(session.changes("v"))
            self.assertEqual(next(batches).to_pylist(), [{"op": "+I", "k": "a", "n": 1}])
            served.kill()
            with self.assertRaises(slackwater.ServerError) as caught:
                list(batches)
            self.assertIn(served.url, str(caught.exception))
            self.assertIn("all rows", caught.exception.hint)
            with self.assertRaises(slackwater.ServerError) as caught:
                session.sql("SELECT * FROM v")
            self.assertIn("slackwater serve", caught.exception.hint)
            with self.assertRaises(slackwater.ServerError):
                table.push([("a", 1)], timeout=0.2)
            pushed = []
            thread = threading.Thread(target=lambda: pushed.append(table.push([("b", 1)] * 5, timeout=60)))
            thread.start()
            time.sleep(0.3)
            served.start()
            thread.join(70)
            self.assertEqual(pushed, [5], "a push waits for the server")
            counts = {row["k"]: row["n"] for row in session.sql("SELECT * FROM v").to_pylist()}
            self.assertEqual(counts, {"a": 1, "b": 5})
