"""A server's client, with a real server: reads, jobs, tokens."""

import datetime as dt
import decimal
import math
import os
import threading
import time
import unittest
from unittest import mock

import slackwater
from clients import Server, Shared, begin, end, without_pyarrow
from engine import IS_BUILT, needs, wait_until
from served import Served, needs_program

setUpModule, tearDownModule = begin, end

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


class Reads(Server):
    def test_the_same_code_takes_both_sessions(self):
        self.assertIsInstance(self.session, slackwater.BaseSession)
        if not IS_BUILT:
            self.skipTest("the engine's module is not built: make python")
        create = "CREATE TABLE both (ip STRING) WITH ('connector' = 'datagen', 'generator' = 'uservisits')"
        answers = []
        for session in (self.session, slackwater.Session()):
            self.assertIsNone(session.sql(f"{create}; SET 'linger' = '5 ms'"))
            self.assertIn("both", session.tables())
            found = []
            for text in (
                "CREATE TABLE t (\n  n BIGIN)",
                "EXPLAIN SELECT ip FROM both",
                "SELECT ip,\n oip FROM both",
                "INSERT INTO nowhere SELECT ip FROM both",
            ):
                with self.assertRaises(slackwater.SqlError) as caught:
                    session.sql(text)
                error = caught.exception
                found.append([error.message, error.hint, error.line, error.column])
            answers.append(found)
            session.drop("both")
            with self.assertRaises(slackwater.SqlError):
                session.drop("both")
        self.assertEqual(answers[0], answers[1])

    def test_all_types_come_back(self):
        kinds = dict(self.session.sql(SELECT_TYPES).columns)
        found = [kinds[name] for name in ("d", "a", "t9")]
        self.assertEqual(found, ["DECIMAL(22, 2)", "ARRAY<BIGINT>", "TIMESTAMP(9)"])
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
            self.session.sql("SET 'linger' = '5 ms';\n\n SET 'chunk_rows' = '9';\n CREATE TABLE t (n BIGIN)")
        self.assertEqual((caught.exception.line, caught.exception.column), (4, 20))
        with self.assertRaisesRegex(slackwater.SqlError, "Divide"):
            self.session.sql("SELECT 1 / 0 AS x").to_pylist()
        twice = "CREATE TABLE twice (n BIGINT) WITH ('connector' = 'http');"
        with self.assertRaises(slackwater.SqlError) as caught:
            self.session.execute(twice + twice)
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
        target = dt.timedelta(milliseconds=20)
        session = slackwater.connect(Shared.served.url, latency_target=target, chunk_rows=100)
        session.sql("SET 'linger' = '3 ms'; SET state_ttl TO '1 h'")
        session.sql("RESET 'state_ttl'")
        shown = {row["name"]: row["value"] for row in session.sql("SHOW SETTINGS").to_pylist()}
        self.assertEqual((shown["linger"], shown["chunk_rows"]), ("3 ms", "100"))
        self.assertNotEqual(shown["state_ttl"], "1 h")
        self.assertIn("20", shown["latency_target"])
        with self.assertRaisesRegex(slackwater.SqlError, "latency_targe"):
            slackwater.connect(Shared.served.url, latency_targe="5 ms")

    def test_explain(self):
        _, view = self.counted()
        self.assertIn("#0", self.session.explain(f"SELECT * FROM {view}"))
        self.assertIn("looks up", self.session.explain(f"SELECT * FROM {view} WHERE k = 'a'"))
        with self.assertRaises(slackwater.SqlError) as caught:
            self.session.explain("SELECT x FROM (VALUES (1)) AS t (n)")
        self.assertEqual(caught.exception.column, 8)


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
        folder = Shared.served.folder
        with open(os.path.join(folder, "in.csv"), "w", encoding="utf-8") as file:
            file.write("1\n2\n3\n")
        self.session.sql(
            "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'file', 'path' = 'in.csv');"
            "CREATE TABLE doubles (n BIGINT) WITH ('connector' = 'file', 'path' = 'out.csv', "
            "'overwrite' = 'true')"
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
        with open(os.path.join(Shared.served.folder, "bad.csv"), "w", encoding="utf-8") as file:
            file.write("1\nx\n")
        self.session.sql(
            "SET 'restarts' = '0';"
            "CREATE TABLE bad (n BIGINT) WITH ('connector' = 'file', 'path' = 'bad.csv', "
            "'on_error' = 'fail');"
            "CREATE TABLE hole (n BIGINT) WITH ('connector' = 'blackhole')"
        )
        self.addCleanup(self.session.sql, "DROP TABLE bad CASCADE; DROP TABLE hole CASCADE")
        with self.assertRaises(slackwater.QueryError) as caught:
            self.session.sql("INSERT INTO hole SELECT n FROM bad").run()
        self.assertIn("bad.csv:2", str(caught.exception))


@needs_program
class Doors(unittest.TestCase):
    def test_tokens(self):
        with Served(token="secret") as served, mock.patch.dict(os.environ):
            os.environ.pop("SLACKWATER_TOKEN", None)
            for token in (None, "secre", "ä", "a\nb"):
                with self.assertRaisesRegex(slackwater.ServerError, "token") as caught:
                    slackwater.connect(served.url, token)
                self.assertTrue(caught.exception.hint)
            with self.assertRaisesRegex(slackwater.ServerError, "(?s)token is missing or wrong.*token='…'"):
                slackwater.connect(served.url, "wrong")
            session = slackwater.connect(served.url, "secret")
            self.assertEqual(session.sql("SELECT 1 AS n").to_pylist(), [{"n": 1}])
            for method in ("register", "source", "sink"):
                with self.assertRaisesRegex(AttributeError, f"no '{method}': "):
                    getattr(session, method)
            os.environ["SLACKWATER_TOKEN"] = "secret"
            self.assertEqual(slackwater.connect(served.url).tables(), [])

    def test_a_server_that_goes_and_comes_back(self):
        with Served() as served:
            session = slackwater.connect(served.url)
            table = session.table("t", {"k": "STRING", "n": "BIGINT"}, acknowledge="checkpoint")
            session.sql("SET 'checkpoint_interval' = '50 ms'")
            session.sql("CREATE MATERIALIZED VIEW v AS SELECT k, COUNT(*) AS n FROM t GROUP BY k")
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
