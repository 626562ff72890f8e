"""Functions of SQL in Python."""

import json
import os
import tempfile
import threading
import unittest

import slackwater
from engine import needs, needs_engine


def session_with(rows, schema, **options):
    session = slackwater.Session(**options)
    session.register("t", rows, schema=schema)
    return session


@needs_engine
class Scalars(unittest.TestCase):
    @needs("numpy")
    def test_a_function_of_numpy(self):
        import numpy

        @slackwater.udf(["DOUBLE", "DOUBLE"], "DOUBLE")
        def distance(x, y):
            return numpy.hypot(x, y)

        rows = [(3.0, 4.0), (None, 1.0), (5.0, 12.0)]
        session = session_with(rows, "x DOUBLE, y DOUBLE")
        read = session.sql("SELECT distance(x, y) AS d FROM t").to_pylist()
        self.assertEqual([row["d"] for row in read], [5.0, None, 13.0])
        self.assertEqual(distance(3.0, 4.0), 5.0, "it stays a function of Python")

    @needs("pyarrow")
    def test_a_function_of_pyarrow(self):
        import pyarrow
        import pyarrow.compute

        @slackwater.udf("STRING", "STRING", name="shout")
        def upper(text):
            return pyarrow.compute.utf8_upper(pyarrow.array(text).cast(pyarrow.string()))

        session = session_with([("abc",), (None,)], "s STRING")
        read = session.sql("SELECT SHOUT(s) AS s FROM t WHERE shout('x') = 'X'").to_pylist()
        self.assertEqual(read, [{"s": "ABC"}, {"s": None}])

    @needs("polars")
    def test_a_function_of_polars(self):
        import polars

        @slackwater.udf("BIGINT", "BIGINT")
        def twice_polars(number):
            return polars.Series(number) * 2

        session = session_with([(1,), (2,)], "n BIGINT")
        read = session.sql("SELECT twice_polars(n) AS n FROM t").to_pylist()
        self.assertEqual(read, [{"n": 2}, {"n": 4}])

    def test_a_function_of_rows(self):
        @slackwater.udf(["STRING", "INT"], "STRING", scalar=True)
        def repeated(text, times):
            return text * times

        @slackwater.udf("INT", "STRING", scalar=True, nulls=True)
        def shown(number):
            return repr(number)

        session = session_with([("ab", 2), ("c", None)], "s STRING, n INT")
        read = session.sql("SELECT repeated(s, n) AS r, shown(n) AS n FROM t").to_pylist()
        self.assertEqual(read, [{"r": "abab", "n": "2"}, {"r": None, "n": "None"}])

    def test_a_row_that_fails_is_rejected_with_its_traceback(self):
        for scalar in (True, False):

            def inverse(number):
                return 1 / number if scalar else [1 / one for one in number.to_pylist()]

            slackwater.udf("BIGINT", "DOUBLE", scalar=scalar)(inverse)
            with tempfile.TemporaryDirectory() as folder:
                letters = os.path.join(folder, "letters.jsonl")
                session = slackwater.Session()
                source = os.path.join(folder, "in.csv")
                with open(source, "w", encoding="utf-8") as file:
                    file.write("".join(f"{n % 100}\n" for n in range(1, 1001)))
                session.sql(
                    f"CREATE TABLE t (n BIGINT) WITH ('connector' = 'file', 'path' = '{source}', "
                    f"'csv.header' = 'false', 'dead_letter' = '{letters}')"
                )
                query = session.sql("SELECT n, inverse(n) AS x FROM t")
                read = query.to_pylist()
                self.assertEqual((len(read), query.report.rows_bad), (990, 10))
                with open(letters, encoding="utf-8") as file:
                    letter = json.loads(file.readline())
                self.assertIn("ZeroDivisionError: division by zero", letter["reason"])
                self.assertIn("in inverse", letter["reason"])

    def test_what_is_wrong_with_a_function(self):
        session = session_with([(1,)], "n BIGINT")
        slackwater.udf("BIGINT", "BIGINT", name="wrong_length")(lambda number: [])
        slackwater.udf("BIGINT", "BIGINT", name="wrong_type")(lambda number: ["x"])
        for name in ("wrong_length", "wrong_type"):
            query = session.sql(f"SELECT {name}(n) AS n FROM t")
            self.assertEqual((query.to_pylist(), query.report.rows_bad), ([], 1))
        with self.assertRaisesRegex(slackwater.SqlError, "does not accept"):
            session.sql("SELECT wrong_type('x') AS n FROM t")
        with self.assertRaisesRegex(slackwater.SqlError, "already exists"):
            slackwater.udf("BIGINT", "BIGINT", name="abs")(lambda number: number)
        with self.assertRaisesRegex(slackwater.SqlError, "NUMBER"):
            slackwater.udf("NUMBER", "BIGINT", name="f")(lambda number: number)

    def test_a_function_is_replaced(self):
        session = session_with([(1,)], "n BIGINT")
        for added in (10, 20):
            slackwater.udf("BIGINT", "BIGINT", name="plus", scalar=True)(lambda n, a=added: n + a)
            read = session.sql("SELECT plus(n) AS n FROM t").to_pylist()
            self.assertEqual(read, [{"n": 1 + added}])

    def test_functions_run_in_parallel_instances(self):
        slackwater.udf("BIGINT", "BIGINT", name="modulo", scalar=True)(lambda n: n % 7)
        session = session_with([(n,) for n in range(7000)], "n BIGINT", parallelism=3)
        query = session.sql("SELECT modulo(n) AS k, COUNT(*) AS n FROM t GROUP BY modulo(n)")
        self.assertEqual(sorted(row["n"] for row in query.to_pylist()), [1000] * 7)


class total:
    """The sum, for tests: pickled by its name."""

    def __init__(self):
        self.sum = 0

    def accumulate(self, number):
        self.sum += number

    def merge(self, other):
        self.sum += other.sum

    def finish(self):
        return self.sum


class total_of_changes(total):
    def retract(self, number):
        self.sum -= number


class locked(total):
    """Its objects can't be pickled."""

    made = []

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()
        self.made.append(self)


@needs_engine
class Aggregates(unittest.TestCase):
    def test_an_aggregate(self):
        slackwater.udaf("BIGINT", "BIGINT")(total)
        slackwater.udaf("BIGINT", "BIGINT")(total_of_changes)
        rows = [(f"k{n % 3}", n if n % 5 else None) for n in range(3000)]
        expected = {}
        for key, number in rows:
            expected[key] = expected.get(key, 0) + (number or 0)
        for parallelism in (1, 2):
            session = session_with(rows, "k STRING, n BIGINT", parallelism=parallelism)
            for name in ("total", "total_of_changes"):
                query = session.sql(f"SELECT k, {name}(n) AS s FROM t GROUP BY k")
                self.assertEqual({row["k"]: row["s"] for row in query.to_pylist()}, expected)
                # The counts of the first grouping change, so that rows are taken back.
                query = session.sql(
                    f"SELECT {name}(s) AS s FROM (SELECT k, COUNT(*) AS s FROM t GROUP BY k)"
                )
                self.assertEqual(query.to_pylist(), [{"s": 3000}])

    def test_its_state_is_in_checkpoints(self):
        slackwater.udaf("BIGINT", "BIGINT")(total)
        with tempfile.TemporaryDirectory() as folder:
            source, output = (os.path.join(folder, name) for name in ("in.csv", "out.csv"))
            with open(source, "w", encoding="utf-8") as file:
                file.write("".join(f"{n}\n" for n in range(20_000)))
            session = slackwater.Session(
                state=os.path.join(folder, "state"), checkpoint_interval="20 ms", chunk_rows=100
            )
            session.sql(
                f"CREATE TABLE t (n BIGINT) WITH ('connector' = 'file', 'path' = '{source}', "
                "'csv.header' = 'false', 'replay_rate' = '40000/s');"
                f"CREATE TABLE o (k BIGINT, s BIGINT) WITH ('connector' = 'file', 'path' = '{output}', "
                "'changelog' = 'op')"
            )
            query = session.sql("INSERT INTO o SELECT MOD(n, 2), total(n) FROM t GROUP BY MOD(n, 2)")
            run = query.start()
            run.wait(0.3)
            run.stop()
            first = run.wait()
            self.assertLess(first.rows_in, 20_000)
            second = query.run()
            self.assertIsNotNone(second.restored_from)
            with open(output, encoding="utf-8") as file:
                lines = [line.strip().split(",") for line in file]
            last = {line[1]: int(line[2]) for line in lines if line[0].startswith("+")}
            self.assertEqual(last, {"0": sum(range(0, 20_000, 2)), "1": sum(range(1, 20_000, 2))})

    def test_a_state_that_cant_be_pickled_ends_the_query_without_a_restart(self):
        slackwater.udaf("BIGINT", "BIGINT")(locked)
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "in.csv")
            with open(source, "w", encoding="utf-8") as file:
                file.write("".join(f"{n}\n" for n in range(20_000)))
            session = slackwater.Session(
                state=os.path.join(folder, "state"), checkpoint_interval="20 ms", parallelism=1
            )
            session.sql(
                f"CREATE TABLE t (n BIGINT) WITH ('connector' = 'file', 'path' = '{source}', "
                "'csv.header' = 'false', 'replay_rate' = '40000/s');"
                f"CREATE TABLE o (s BIGINT) WITH ('connector' = 'file', 'path' = '{folder}/out.csv', "
                "'changelog' = 'op')"
            )
            message = "its state can't be pickled: attribute 'lock' of locked: TypeError"
            with self.assertRaisesRegex(slackwater.QueryError, message):
                session.sql("INSERT INTO o SELECT locked(n) FROM t").run()
        # One for the value before the first row, and one for the rows of the only attempt.
        self.assertEqual(len(locked.made), 2)

    def test_what_is_wrong_with_an_aggregate(self):
        with self.assertRaisesRegex(slackwater.SqlError, "no method merge"):

            @slackwater.udaf("BIGINT", "BIGINT")
            class half:
                def accumulate(self, number): ...
                def finish(self): ...

        class broken(total):
            def accumulate(self, number):
                raise ValueError("no such number")

        slackwater.udaf("BIGINT", "BIGINT")(broken)
        session = session_with([(1,)], "n BIGINT")
        with self.assertRaisesRegex(slackwater.QueryError, "no such number"):
            session.sql("SELECT broken(n) AS n FROM t").to_pylist()
