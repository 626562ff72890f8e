"""Tables that generators fill."""

import asyncio
import datetime as dt
import functools
import json
import os
import tempfile
import threading
import time
import unittest

import slackwater
from engine import needs, needs_engine, numbers, rows_read, wait_until

BEGIN = dt.datetime(2026, 1, 1)


def read_numbers(query):
    return sorted(row["n"] for row in query.to_pylist())


@needs_engine
class Sources(unittest.TestCase):
    def test_rows_of_any_kind_are_yielded(self):
        session = slackwater.Session()
        session.register("few", [(5, "e")], schema={"n": "BIGINT", "s": "STRING"})
        few = session.sql("SELECT n, s FROM few").rows()

        def read():
            yield [{"n": 1, "s": "a"}, {"s": None, "n": None}]
            yield [(2, "b"), [3, "c"]]
            yield {"n": [4], "s": ["d"]}
            yield {"n": [6]}
            yield few
            yield few.batches[0]
            yield []
            yield ((7, "g") for _ in range(2))

        rows = [(row["n"], row["s"]) for row in numbers(session, read).to_pylist()]
        expected = [(1, "a"), (None, None), (2, "b"), (3, "c"), (4, "d"), (6, None), (5, "e"), (5, "e")]
        self.assertEqual(rows, expected + [(7, "g"), (7, "g")])

    @needs("pyarrow", "pandas", "polars")
    def test_frames_and_tables_are_yielded(self):
        import pandas
        import polars
        import pyarrow

        def read(offset):
            yield pyarrow.table({"s": ["a", "b"], "n": [1, 2]}), 2
            yield pandas.DataFrame({"n": [3], "s": ["c"]}), 3
            yield polars.DataFrame({"n": [4], "s": ["d"], "other": [1]}), 4
            parts = [pyarrow.record_batch({"n": [n], "s": ["x"]}) for n in (5, 6)]
            yield pyarrow.Table.from_batches(parts), 6
            yield pyarrow.table({"n": ["7", "seven", None], "s": ["g"] * 3}), 9

        query = numbers(slackwater.Session(), read, dead_letter=os.devnull)
        rows = [row["n"] for row in query.to_pylist()]
        self.assertEqual(rows, [1, 2, 3, 4, 5, 6, 7, None])
        self.assertEqual(query.report.rows_bad, 1)

    def test_each_partition_is_read_by_its_own_thread(self):
        seen = {}

        def read(partition, offset):
            seen[partition] = (offset, threading.current_thread().name)
            yield [(partition * 10 + n, "") for n in range(3)], 3

        session = slackwater.Session(parallelism=2)
        query = numbers(session, read, partitions=3)
        self.assertEqual(read_numbers(query), [0, 1, 2, 10, 11, 12, 20, 21, 22])
        self.assertEqual(seen, {p: (None, f"numbers[{p}]") for p in range(3)})
        self.assertEqual(read_numbers(query), [0, 1, 2, 10, 11, 12, 20, 21, 22], "it is read again")
        self.assertEqual(query.report.rows_in, 9)
        self.assertEqual(query.report.sources[0]["table"], "numbers")
        self.assertIn("numbers (custom)", session.explain("SELECT n FROM numbers"))

    def test_watermarks_are_of_partitions(self):
        ready = threading.Event()

        def read(partition):
            at = BEGIN + dt.timedelta(seconds=100)
            if partition == 0:
                yield [(at, 1)]
            else:
                ready.wait(30)
                yield [(BEGIN, 2), (at, 3)]

        session = slackwater.Session()
        schema = {"ts": "TIMESTAMP(3)", "n": "BIGINT"}
        session.source("t", schema, event_time="ts", watermark="1 s", partitions=2)(read)
        query = session.sql(
            "SELECT window_start AS at, SUM(n) AS n "
            "FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) "
            "GROUP BY window_start, window_end"
        )
        with query.start() as run:
            self.assertTrue(wait_until(lambda: rows_read(run) == 1))
            ready.set()
            rows = sorted((row["at"], row["n"]) for batch in run for row in batch.to_pylist())
            late = run.report.rows_late
        self.assertEqual(rows, [(BEGIN, 2), (BEGIN + dt.timedelta(seconds=100), 4)])
        self.assertEqual(late, 0)

    def test_a_slow_query_makes_the_generator_wait_at_its_yield(self):
        count, free = [0], threading.Event()

        def read():
            for n in range(5_000):
                count[0] = n
                yield [(n, "")]

        session = slackwater.Session()
        numbers(session, read)
        session.sink("slow", {"n": "BIGINT"}, lambda batch: free.wait(60))
        run = session.sql("INSERT INTO slow SELECT n FROM numbers").start()
        self.assertTrue(wait_until(lambda: count[0] >= 1_000))
        time.sleep(0.3)
        self.assertLess(count[0], 4_000)
        free.set()
        self.assertEqual(run.wait().rows_out, 5_000)

    def test_a_query_that_needs_the_end(self):
        def read():
            yield from ([(n, "")] for n in (3, 1, 2))

        session = slackwater.Session()
        numbers(session, read)
        first = "SELECT n FROM numbers ORDER BY n LIMIT 2"
        with self.assertRaisesRegex(slackwater.SqlError, "may never end"):
            session.sql("SELECT n FROM numbers LIMIT 2")
        numbers(session, read, ends=True)
        self.assertEqual(session.sql(first).to_pylist(), [{"n": 1}, {"n": 2}])

    def test_async_generators(self):
        closed = []

        async def read(partition, offset):
            try:
                for n in range(3):
                    await asyncio.sleep(0)
                    yield [(n, "")], n + 1
                if partition == 1:
                    await asyncio.sleep(3_600)
            finally:
                closed.append(partition)

        session = slackwater.Session()
        query = numbers(session, read, partitions=2)
        with query.start() as run:
            self.assertTrue(wait_until(lambda: rows_read(run) == 6))
        self.assertTrue(wait_until(lambda: sorted(closed) == [0, 1]))
        self.assertEqual(read_numbers(numbers(session, read)), [0, 1, 2])

    def test_declarations_that_are_wrong(self):
        session = slackwater.Session()
        source = functools.partial(session.source, "t", {"n": "BIGINT"})

        def one(partition, offset):
            yield [], 0

        def wrong_name(position):
            yield []

        def positional(offset, /):
            yield []

        def none():
            yield []

        for declare, said in (
            (lambda: source(partitions=2)(none), "no parameter 'partition'"),
            (lambda: source()(wrong_name), "parameter 'position'"),
            (lambda: source()(positional), "given by its name"),
            (lambda: source(partitions=0)(one), "partitions=0"),
            (lambda: source(partitions=-1)(one), "partitions=-1"),
            (lambda: source(partitions="2")(one), "partitions='2'"),
            (lambda: source(partitions=300)(one), "from 1 to 256"),
            (lambda: source()(7), "not a function"),
            (lambda: source(idle_timeout="soon")(one), "soon"),
            (lambda: source(no_such_option=1)(one), "no_such_option"),
            (lambda: session.source("t", {"n": "BIGIN"})(one), "BIGIN"),
        ):
            with self.assertRaisesRegex(slackwater.SqlError, said):
                declare()
                session.sql("SELECT * FROM t")
        self.assertIs(source()(one), one)
        session.sql("SELECT * FROM t")
        with self.assertRaisesRegex(slackwater.SqlError, "can't be written"):
            session.sql("INSERT INTO t SELECT n FROM t")


@needs_engine
class BadInput(unittest.TestCase):
    def fails(self, read, *said, error=slackwater.QueryError):
        query = numbers(slackwater.Session(), read)
        with self.assertRaises(error) as raised:
            query.to_pylist()
        for text in ("table 'numbers', partition 0", *said):
            self.assertIn(text, str(raised.exception))
        self.assertTrue(raised.exception.hint, str(raised.exception))

    def test_what_it_raises_ends_the_query_with_its_traceback(self):
        def at_once(offset):
            raise OSError("no server")

        def first(offset):
            raise OSError("no server")
            yield

        def in_the_middle(offset):
            yield [(1, "a")], 1
            raise OSError("no server")

        for read in (at_once, first, in_the_middle):
            self.fails(read, "Traceback", f"in {read.__name__}", "OSError: no server")

    def test_a_function_that_returns_rows_is_no_generator(self):
        for rows in ([(1, "a")], ((1, "a"),), {"n": [1]}, "rows"):
            self.fails(lambda rows=rows: rows, "and not a generator")

    def test_what_is_not_rows_and_an_offset(self):
        def not_a_pair(offset):
            yield [(1, "a")]

        def three(offset):
            yield [(1, "a")], 1, 2

        def not_rows(offset):
            yield 7, 1

        def text(offset):
            yield "rows", 1

        def unknown_columns(offset):
            yield {"n": [1], "m": [2]}, 1

        def uneven(offset):
            yield {"n": [1], "s": ["a", "b"]}, 1

        def function(offset):
            yield [(1, "a")], lambda: 1

        def large(offset):
            yield [(1, "a")], "x" * 20_000

        async def no_generator(offset):
            return 1

        def nothing(offset):
            return None

        for read, said in (
            (not_a_pair, "'list' was yielded instead of rows and an offset"),
            (three, "a tuple of 3 was yielded"),
            (not_rows, "int is not rows"),
            (text, "str is not rows"),
            (unknown_columns, "the columns m are not in the table"),
            (uneven, "has 1 values, and others have 2"),
            (function, "the offset can't be stored"),
            (large, "an offset has 20007 bytes"),
            (no_generator, "'coroutine', and not a generator"),
            (nothing, "'NoneType', and not a generator"),
        ):
            with self.subTest(said):
                self.fails(read, said)

    @needs("pyarrow")
    def test_arrow_without_a_column(self):
        import pyarrow

        def read(offset):
            yield pyarrow.table({"n": [1]}), 1

        self.fails(read, "there is no column 's'")

    def test_rows_with_wrong_values_are_rejected_and_kept(self):
        class Odd:
            def __repr__(self):
                raise RuntimeError("odd")

        def read(offset):
            yield [(1, "a"), ("x", "b"), (2, 3), (3, "c", 4), {"m": 1}, "row", 5, (4, "d")], 1
            yield [(Odd(), "a")], 2
            yield [(2**70, "a"), {"n": 5}], 3

        with tempfile.TemporaryDirectory() as folder:
            letters = os.path.join(folder, "letters.jsonl")
            query = numbers(slackwater.Session(), read, dead_letter=letters)
            self.assertEqual(read_numbers(query), [1, 4, 5])
            self.assertEqual((query.report.rows_bad, query.report.rows_in), (8, 11))
            with open(letters, encoding="utf-8") as file:
                kept = [json.loads(line) for line in file]
        reasons = [letter["reason"] for letter in kept]
        for reason, said in zip(
            reasons,
            (
                "column 'n': 'x' is not a valid BIGINT",
                "column 's': 3 is not a valid STRING",
                "the row has 3 values for the 2 columns n, s",
                "the row has none of the columns n, s",
                "'str' is not a row",
                "'int' is not a row",
                "column 'n': a value is not a valid BIGINT",
                "column 'n': 1180591620717411303424 is not a valid BIGINT",
            ),
        ):
            self.assertIn(said, reason)
        self.assertEqual(len(kept), 8)
        self.assertIn("numbers[0]:2", kept[0]["place"])
        self.assertEqual(kept[2]["record"], "(3, 'c', 4)")

    def test_a_bad_row_may_end_the_query(self):
        def read(offset):
            yield [("x", "b")], 1

        query = numbers(slackwater.Session(), read, on_error="fail")
        with self.assertRaisesRegex(slackwater.QueryError, "not a valid BIGINT"):
            query.to_pylist()
