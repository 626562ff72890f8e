"""Columns cross to other libraries, and come from them, without being copied."""

import unittest

import slackwater
from engine import needs, needs_engine


def batches():
    """Batches of a query, with numbers and strings of which most are not inlined."""
    session = slackwater.Session()
    rows = [(n, f"a string that is not inlined {n}", n / 2) for n in range(5000)]
    session.register("t", rows, schema="n BIGINT, s STRING, x DOUBLE")
    return session.sql("SELECT n, s, x FROM t").rows()


def addresses(array):
    """The addresses of the buffers of an array of pyarrow, without those that an exporter makes."""
    return [buffer.address for buffer in array.buffers() if buffer is not None]


@needs_engine
class Buffers(unittest.TestCase):
    @needs("pyarrow")
    def test_pyarrow_reads_the_engine_s_buffers(self):
        import pyarrow

        rows = batches()
        read = pyarrow.table(rows)
        again = pyarrow.table(rows)
        for name in ("n", "s", "x"):
            for one, other in zip(read[name].chunks, again[name].chunks):
                self.assertEqual(addresses(one), addresses(other))
        own = rows.batches[0]
        numbers = own["n"].__array_interface__["data"][0]
        self.assertEqual(addresses(read["n"].chunk(0))[-1], numbers)
        self.assertEqual(addresses(pyarrow.record_batch(own)["x"])[-1], address(own["x"]))
        self.assertEqual(addresses(pyarrow.array(own["x"]))[-1], address(own["x"]))

    @needs("numpy")
    def test_numpy_reads_the_engine_s_buffers(self):
        import numpy

        column = batches().batches[0]["n"]
        read = numpy.asarray(column)
        self.assertEqual(read.ctypes.data, address(column))
        self.assertFalse(read.flags.writeable)
        self.assertEqual(read[7], 7)
        del column
        self.assertEqual(int(read.sum()), sum(range(len(read))))

    @needs("polars")
    def test_polars_reads_the_engine_s_buffers(self):
        import polars

        own = batches().batches[0]
        frame = polars.DataFrame(own)
        self.assertEqual(frame["n"].to_numpy(allow_copy=False).ctypes.data, address(own["n"]))
        self.assertEqual(frame["s"][9], "a string that is not inlined 9")

    @needs("pandas", "pyarrow")
    def test_pandas_reads_the_engine_s_buffers(self):
        import pandas
        import pyarrow

        own = batches().batches[0]
        frame = pyarrow.record_batch(own).to_pandas(types_mapper=pandas.ArrowDtype)
        column = frame["n"].array._pa_array.chunk(0)
        self.assertEqual(addresses(column)[-1], address(own["n"]))

    @needs("duckdb", "pyarrow")
    def test_duckdb_reads_the_stream(self):
        import duckdb

        rows = batches()  # noqa: F841
        read = duckdb.sql("SELECT COUNT(*), SUM(n), MAX(s) FROM rows").fetchall()
        self.assertEqual(read, [(5000, sum(range(5000)), "a string that is not inlined 999")])

    @needs("pyarrow")
    def test_columns_come_in_without_copies(self):
        import numpy
        import pyarrow

        numbers = numpy.arange(1000, dtype="int64")
        given = pyarrow.table({"n": pyarrow.array(numbers)})
        session = slackwater.Session()
        session.register("t", given)
        read = next(iter(session.sql("SELECT n FROM t")))
        self.assertEqual(address(read["n"]), numbers.ctypes.data)
        del given, numbers
        self.assertEqual(read["n"][-1], 999)

    @needs("pyarrow")
    def test_columns_of_each_kind_come_back(self):
        import pyarrow

        given = pyarrow.table(
            {
                "bool": pyarrow.array([True, None, False, True]),
                "text": pyarrow.array(["a", None, "", "longer than twelve bytes"]),
                "large": pyarrow.array(["a", None, "", "x" * 40], pyarrow.large_string()),
                "view": pyarrow.array(["a", None, "", "x" * 40], pyarrow.string_view()),
                "bytes": pyarrow.array([b"a", None, b"", b"x" * 40]),
                "list": pyarrow.array([[1, 2], None, [], [None]]),
                "row": pyarrow.array([{"a": 1}, None, {"a": None}, {"a": 4}]),
                "kind": pyarrow.array(["x", "y", None, "x"]).dictionary_encode(),
                "time": pyarrow.array([1, None, 3, 4], pyarrow.timestamp("us")),
                "number": pyarrow.array([1, None, 3, 4], pyarrow.uint16()),
            }
        )
        session = slackwater.Session()
        # With an offset, and a table of several chunks.
        session.register("t", pyarrow.concat_tables([given, given.slice(1, 2)]))
        columns = ", ".join(f"`{name}`" for name in given.column_names)
        expected = given.to_pylist() + given.slice(1, 2).to_pylist()
        self.assertEqual(session.sql(f"SELECT {columns} FROM t").to_pylist(), expected)
        read = session.sql(f"SELECT {columns} FROM t").to_arrow()
        read.validate(full=True)
        self.assertEqual(read.to_pylist(), expected)

    @needs("pyarrow")
    def test_a_stream_that_breaks_off_says_why(self):
        import pyarrow
        import pyarrow.compute

        def broken():
            yield pyarrow.record_batch({"n": [1]})
            raise ValueError("the disk is on fire")

        schema = pyarrow.schema([("n", pyarrow.int64())])
        reader = pyarrow.RecordBatchReader.from_batches(schema, broken())
        with self.assertRaisesRegex(slackwater.SqlError, "the disk is on fire"):
            slackwater.Session().register("t", reader)
        with self.assertRaisesRegex(slackwater.SqlError, "run_end"):
            runs = pyarrow.compute.run_end_encode(pyarrow.array([1, 1]))
            slackwater.Session().register("t", pyarrow.table({"run_end": runs}))


def address(array) -> int:
    return array.__array_interface__["data"][0]
