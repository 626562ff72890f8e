"""Rows that this process pushes, and data frames as tables."""

import datetime as dt
import decimal
import threading
import unittest

import slackwater
from engine import needs, needs_engine, wait_until

BEGIN = dt.datetime(2026, 1, 1)


def windows(session, **options):
    """A table of sensors, and the averages of ten seconds."""
    schema = {"sensor": "STRING", "ts": "TIMESTAMP(3)", "v": "DOUBLE"}
    table = session.table("p", schema, event_time="ts", **options)
    query = session.sql(
        "SELECT window_start AS at, sensor, AVG(v) AS mean FROM TUMBLE(TABLE p, DESCRIPTOR(ts), "
        "INTERVAL '10' SECOND) GROUP BY window_start, window_end, sensor"
    )
    return table, query


def row(second, value, sensor="a"):
    return {"sensor": sensor, "ts": BEGIN + dt.timedelta(seconds=second), "v": value}


def rows_read(run):
    sources = (run.progress() or {}).get("sources")
    return sources[0]["rows"] if sources else 0


@needs_engine
class Pushed(unittest.TestCase):
    def test_rows_of_any_kind_are_pushed(self):
        table, query = windows(slackwater.Session(), watermark="1 s")
        with query.start() as run:
            self.assertEqual(table.push([row(1, 1.0), row(2, 3.0)]), 2)
            self.assertEqual(table.push([("a", "2026-01-01 00:00:03", 5)]), 1)
            self.assertEqual(table.push({"sensor": ["b"], "ts": [BEGIN], "v": [None]}), 1)
            self.assertEqual(table.push({"ts": [BEGIN + dt.timedelta(seconds=60)]}), 1)
            batches = iter(run)
            first = []
            while len(first) < 2:
                first += next(batches).to_pylist()
            self.assertEqual({one["sensor"]: one["mean"] for one in first}, {"a": 3.0, "b": None})
            self.assertTrue(run.is_running, "windows are emitted by the watermark")
            table.close()
            last = [one for batch in batches for one in batch.to_pylist()]
            self.assertEqual([one["sensor"] for one in last], [None])
        with self.assertRaisesRegex(slackwater.QueryError, "closed"):
            table.push([row(1, 1.0)])

    def test_a_schema_that_is_wrong(self):
        session = slackwater.Session()
        for schema, options, said in (
            (5, {}, "a schema is a dictionary of columns, and not 5"),
            ({}, {}, "a schema is a dictionary"),
            (["a", "b"], {}, "a schema is a dictionary"),
            ({"a": "BIGINT"}, {"event_time": "ts"}, "event_time='ts' is not a column\n  = the columns are a"),
        ):
            with self.assertRaisesRegex(slackwater.SqlError, said):
                session.table("t", schema, **options)

    def test_late_rows_are_counted(self):
        table, query = windows(slackwater.Session(), watermark=dt.timedelta(seconds=2))
        run = query.start()
        with table:
            table.push([row(0, 1.0)])
            table.push([row(100, 1.0)])
            self.assertTrue(wait_until(lambda: rows_read(run) == 2))
            table.push([row(5, 1.0)])
        self.assertEqual(run.wait().rows_late, 1)

    def test_what_is_wrong_with_rows(self):
        session = slackwater.Session()
        table = session.table("p", {"n": "BIGINT", "d": "DATE"})
        for rows, said in (
            ([{"n": "x", "d": None}], "n"),
            ([{"n": 1.5, "d": None}], "n"),
            ([{"n": 1, "d": 3}], "date"),
            ([(1,)], "1 values for 2 columns"),
            (7, "int is not rows"),
            ([{"N": 1}], "there is no column 'N'"),
            ({"n": [1], "D": [None]}, "there is no column 'D'"),
            ({"n": [1, 2], "d": [None]}, "column 'd' has 1 values, and others have 2"),
            ([{"n": 1 << 70}], f"{1 << 70} is not a number of Int64"),
        ):
            with self.assertRaisesRegex(slackwater.SqlError, said):
                table.push(rows)
        with self.assertRaisesRegex(slackwater.SqlError, "event time"):
            session.table("q", {"n": "BIGINT"}, watermark="1 s")
        with self.assertRaisesRegex(slackwater.SqlError, "duration"):
            session.table("q", {"t": "TIMESTAMP(3)"}, event_time="t", watermark="soon")
        with self.assertRaisesRegex(slackwater.SqlError, "BIGIN"):
            session.table("q", {"n": "BIGIN"})

    @needs("pyarrow")
    def test_regression_a_fraction_is_not_cut_off(self):
        import pyarrow

        table = slackwater.Session().table("p", {"n": "BIGINT"})
        for values in ([1.9], [True], [BEGIN]):
            with self.assertRaisesRegex(slackwater.SqlError, "column 'n'"):
                table.push(pyarrow.table({"n": values}))
        self.assertEqual(table.push(pyarrow.table({"n": [2.0]})), 1)

    def test_a_push_waits_for_the_query(self):
        session = slackwater.Session()
        table = session.table("p", "n BIGINT")
        column = list(range(1_000_000))
        rows = table._feed.rows([column])
        with self.assertRaisesRegex(slackwater.QueryError, "no query reads it"):
            for _ in range(20):
                table.push(rows)
        query = session.sql("SELECT COUNT(*) AS n FROM p")
        counts = []
        with query.start() as run:
            reader = threading.Thread(target=lambda: counts.extend(run.rows().to_pylist()))
            reader.start()
            for _ in range(20):
                table.push(rows)
            table.close()
            reader.join()
        self.assertGreaterEqual(counts[0]["n"], 20_000_000)

    def test_one_query_reads_a_table(self):
        table, query = windows(slackwater.Session(), watermark=0)
        with query.start() as run:
            table.push([row(1, 1.0)])
            self.assertTrue(wait_until(lambda: rows_read(run) == 1))
            with self.assertRaisesRegex(slackwater.QueryError, "already being read"):
                query.to_pylist()

    def test_sessions_don_t_share_tables(self):
        one, other = slackwater.Session(), slackwater.Session()
        for session, number in ((one, 1), (other, 2)):
            session.register("t", [(number,)], schema="n INT")
        self.assertEqual(one.sql("SELECT n FROM t").to_pylist(), [{"n": 1}])
        self.assertEqual(other.sql("SELECT n FROM t").to_pylist(), [{"n": 2}])


@needs_engine
class Registered(unittest.TestCase):
    def test_values_of_each_type(self):
        session = slackwater.Session()
        schema = {
            "b": "BOOLEAN", "i": "INT", "f": "FLOAT", "s": "STRING", "d": "DECIMAL(10, 2)",
            "day": "DATE", "ts": "TIMESTAMP(6)", "list": "ARRAY<BIGINT>", "r": "ROW<a BIGINT, t STRING>",
        }  # fmt: skip
        whole = {
            "b": True, "i": -3, "f": 1.5, "s": "ä", "d": decimal.Decimal("12.30"),
            "day": dt.date(2026, 2, 3), "ts": dt.datetime(2026, 2, 3, 4, 5, 6, 789),
            "list": [1, None, 3], "r": {"a": 7, "t": "x"},
        }  # fmt: skip
        rows = [whole, dict.fromkeys(schema)]
        session.register("t", rows, schema=schema)
        self.assertEqual(session.sql("SELECT * FROM t").to_pylist(), rows)
        batch = next(iter(session.sql("SELECT i, r FROM t")))
        self.assertEqual(batch.column_names, ["i", "r"])
        self.assertEqual(batch["i"].to_pylist(), [-3, None])
        self.assertEqual((batch["i"][0], batch["i"][-1], batch["i"].null_count), (-3, None, 1))
        with self.assertRaises(KeyError):
            batch["j"]
        with self.assertRaises(IndexError):
            batch["i"][2]

    @needs("pyarrow")
    def test_types_of_arrow_that_sql_does_not_have(self):
        import pyarrow

        session = slackwater.Session()
        waits = pyarrow.array([dt.timedelta(seconds=1)])
        letters = pyarrow.array([[("x", 1)]], pyarrow.map_(pyarrow.string(), pyarrow.int64()))
        long = pyarrow.array([decimal.Decimal(1)], pyarrow.decimal256(50, 2))
        union = pyarrow.UnionArray.from_sparse(pyarrow.array([0], pyarrow.int8()), [pyarrow.array([1])])
        for column in (waits, letters, long, union):
            with self.assertRaisesRegex(slackwater.SqlError, "column 'c' has") as caught:
                session.register("t", pyarrow.table({"c": column}))
            self.assertNotIn("CREATE TABLE", str(caught.exception))

    def test_a_table_is_replaced(self):
        session = slackwater.Session()
        for number in (1, 2):
            session.register("t", [{"n": number}], schema="n BIGINT")
        self.assertEqual(session.sql("SELECT n FROM t").to_pylist(), [{"n": 2}])
        with self.assertRaisesRegex(slackwater.SqlError, "schema"):
            session.register("t", [{"n": 1}])

    @needs("pandas", "pyarrow")
    def test_frames_of_pandas(self):
        import pandas

        frame = pandas.DataFrame(
            {
                "k": ["a", "b", "a"],
                "at": pandas.to_datetime(["2026-01-01 00:00:01", "2026-01-01 00:00:02", None]),
                "v": [1, 2, 3],
                "c": pandas.Categorical(["x", "y", "x"]),
            }
        )
        session = slackwater.Session()
        session.register("t", frame)
        rows = session.sql("SELECT k, `at`, v, c FROM t").to_pandas()
        self.assertEqual(rows["v"].tolist(), [1, 2, 3])
        self.assertEqual(rows["c"].tolist(), ["x", "y", "x"])
        self.assertEqual(rows["at"][1], pandas.Timestamp("2026-01-01 00:00:02"))
        table = session.table("p", frame[["k", "v"]].convert_dtypes())
        self.assertEqual(table.push(frame[["v", "k"]]), 3)
        table.close()
        self.assertEqual(session.sql("SELECT SUM(v) AS v FROM p").to_pylist(), [{"v": 6}])

    @needs("polars")
    def test_frames_of_polars(self):
        import polars

        frame = polars.DataFrame({"k": ["a", "a long string, not inlined", None], "v": [1, 2, 3]})
        session = slackwater.Session()
        session.register("t", frame)
        self.assertTrue(session.sql("SELECT k, v FROM t").to_polars().equals(frame))
        self.assertTrue(polars.DataFrame(session.sql("SELECT k, v FROM t")).equals(frame))

    @needs("duckdb")
    def test_relations_of_duckdb(self):
        import duckdb

        session = slackwater.Session()
        session.register("t", duckdb.sql("SELECT range AS n, 'x' || range AS s FROM range(10000)"))
        rows = session.sql("SELECT n, s FROM t WHERE n >= 5000")  # noqa: F841
        self.assertEqual(duckdb.sql("SELECT COUNT(*), MAX(s) FROM rows").fetchall(), [(5000, "x9999")])
