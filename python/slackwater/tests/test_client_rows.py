"""A server's client, with a real server: rows that are pushed, changes, and streams that end."""

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
from unittest import mock

import slackwater
from clients import Server, Shared, begin, end, without_pyarrow
from engine import needs, wait_until

TESTS = os.path.dirname(os.path.abspath(__file__))

setUpModule, tearDownModule = begin, end


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


class Rows(Server):
    def test_rows_are_pushed_and_read(self):
        table, view = self.counted()
        self.assertEqual(table.column_names, ["k", "n"])
        self.assertEqual(table.push([{"k": "a", "n": 1}, {"k": "ä\n\"'\\", "n": None}]), 2)
        self.assertEqual(table.push([("a", 5)]), 1)
        self.assertEqual(table.push({"k": ["b", "b"], "n": [1, 2]}), 2)
        self.assertEqual(table.push('{"k": "b", "n": 4}\n'), 1)
        self.assertEqual(table.push([]), 0)
        rows = self.session.sql(f"SELECT * FROM {view}").to_pylist()
        read = {row["k"]: (row["n"], row["s"]) for row in rows}
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
        with open(os.path.join(Shared.served.folder, "three.csv"), "w", encoding="utf-8") as file:
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


class Ends(Server):
    def streams(self):
        """The streams of changes that the server sends, by its open connections from this process."""
        with open("/proc/net/tcp", encoding="ascii") as file:
            # Established, from here to the server's port.
            return sum(line.split()[2:4] == [f"0100007F:{Shared.served.port:04X}", "01"] for line in file)

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
                query = slackwater.connect("{Shared.served.url}").changes("{view}")
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
