"""Operators of SQL in Python."""

import datetime
import unittest

import slackwater
from engine import needs_engine

TABLE = "k BIGINT, ms BIGINT, v DOUBLE"


def session_with(rows):
    session = slackwater.Session()
    session.register("given", rows, schema=TABLE)
    return session


def define_jumps():
    @slackwater.operator(
        {"v": "DOUBLE"}, {"old": "DOUBLE", "new": "DOUBLE"},
        state={"last": "DOUBLE", "seen": "ARRAY<DOUBLE>"}, arguments={"least": "DOUBLE"}, name="py_jumps",
    )
    class Jumps:
        def __init__(self, least=0.0):
            self.least = least

        def on_new_key(self, state):
            state.seen = []

        def on_row(self, state, row, out):
            state.seen.append(row.v)
            if row.v == 13:
                raise ValueError("thirteen")
            if row.v == 14:
                state.last = "fourteen"
            if state.last is None or abs(row.v - state.last) > self.least:
                out.emit(state.last, sum(state.seen))
                state.last = row.v

    return Jumps


@needs_engine
class Operators(unittest.TestCase):
    def test_a_class_keeps_a_state_for_each_key(self):
        jumps = define_jumps()
        self.assertTrue(callable(jumps), "it stays a class of Python")
        session = session_with([(1, 0, 1.0), (2, 1, 5.0), (1, 2, 1.5), (1, 3, 4.0), (2, 4, 5.0)])
        read = session.sql(
            "SELECT k, old, new FROM py_jumps(TABLE given PARTITION BY k, least => 1)"
        ).to_pylist()
        found = sorted((row["k"], row["old"] or 0, row["new"]) for row in read)
        self.assertEqual(found, [(1, 0, 1.0), (1, 1.0, 6.5), (2, 0, 5.0)])

    def test_a_row_that_raises_or_makes_a_wrong_value_is_rejected_and_changes_nothing(self):
        define_jumps()
        session = session_with([(1, 0, 1.0), (1, 1, 13.0), (1, 2, 14.0), (1, 3, 2.0)])
        query = session.sql("SELECT new FROM py_jumps(TABLE given PARTITION BY k)")
        self.assertEqual([row["new"] for row in query.to_pylist()], [1.0, 3.0])
        self.assertEqual(query.report.rows_bad, 2)

    def test_rows_that_change_are_taken_and_emitted(self):
        @slackwater.operator(
            {"n": "BIGINT"}, {"c": "BIGINT", "total": "BIGINT"}, state={"c": "BIGINT", "total": "BIGINT"},
            name="py_totals", forgets=True, updates=True, emits_updates=True,
        )
        class Totals:
            def on_new_key(self, state):
                state.c = state.total = 0

            def on_row(self, state, row, out):
                if state.c:
                    out.retract(state.c, state.total)
                sign = -1 if out.change == "delete" else 1
                state.c, state.total = state.c + sign, state.total + sign * row.n
                if state.c:
                    out.emit(state.c, state.total)
                else:
                    out.forget()

        session = slackwater.Session(emit="final")
        rows = [(1, 0, 1.0), (2, 1, 5.0), (1, 2, 1.5), (3, 3, 4.0), (2, 4, 5.0)]
        session.register("changing", rows, schema=TABLE)
        read = session.sql(
            "SELECT half, c, total FROM py_totals(TABLE (SELECT k % 2 AS half, COUNT(*) AS n "
            "FROM changing GROUP BY k) PARTITION BY half)"
        ).to_pylist()
        found = sorted((row["half"], row["c"], row["total"]) for row in read)
        self.assertEqual(found, [(0, 1, 2), (1, 2, 3)])

    def test_timers_of_event_time(self):
        @slackwater.operator(
            {"v": "DOUBLE"}, {"n": "BIGINT", "at": "TIMESTAMP(6)"}, state={"n": "BIGINT"},
            arguments={"silence": "INTERVAL"}, name="py_silences", order=True, forgets=True,
        )
        class Silences:
            def __init__(self, silence):
                self.silence = silence

            def on_row(self, state, row, out):
                state.n = (state.n or 0) + 1
                out.clear_timers()
                out.timer(out.time + self.silence)

            def on_time(self, state, at, out):
                out.emit(state.n, at)
                out.forget()

        epoch = datetime.datetime(1970, 1, 1)
        rows = [(1, epoch + datetime.timedelta(milliseconds=ms), 1.0) for ms in (0, 500, 3000)]
        session = slackwater.Session()
        session.register(
            "timed_rows", rows, schema="k BIGINT, ts TIMESTAMP(6), v DOUBLE", event_time="ts", watermark=0
        )
        read = session.sql(
            "SELECT n, at FROM py_silences(TABLE timed_rows PARTITION BY k ORDER BY ts,"
            " silence => INTERVAL '1' SECOND)"
        ).to_pylist()
        wanted = [
            (2, epoch + datetime.timedelta(milliseconds=1500)), (1, epoch + datetime.timedelta(seconds=4)),
        ]
        self.assertEqual([(row["n"], row["at"]) for row in read], wanted)

    def test_functions_without_a_state(self):
        @slackwater.operator({"v": "DOUBLE"}, {}, arguments={"least": "DOUBLE"}, name="py_least")
        def at_least(v, least):
            return v >= least

        @slackwater.operator({"v": "DOUBLE"}, {"copy": "BIGINT"}, name="py_copies")
        def copies(v):
            if v == 3:
                return [("three",)]
            return range(int(v))

        session = session_with([(1, 0, 1.0), (1, 1, 2.0), (1, 2, 3.0)])
        read = session.sql("SELECT v FROM py_least(TABLE given, 2)").to_pylist()
        self.assertEqual([row["v"] for row in read], [2.0, 3.0])
        query = session.sql("SELECT v, copy FROM py_copies(TABLE given)")
        found = [(row["v"], row["copy"]) for row in query.to_pylist()]
        self.assertEqual(found, [(1.0, 0), (2.0, 0), (2.0, 1)])
        self.assertEqual(query.report.rows_bad, 1)

    def test_what_is_wrong_is_said(self):
        def define(handler=None, **options):
            handler = handler or (lambda v: True)
            slackwater.operator({"v": "DOUBLE"}, {}, name="py_wrong", **options)(handler)

        with self.assertRaisesRegex(slackwater.SqlError, "has no on_row"):
            define(state={"n": "BIGINT"})
        with self.assertRaisesRegex(slackwater.SqlError, "has no state"):
            define(order=True)
        with self.assertRaisesRegex(slackwater.SqlError, "argument 'd' can't be DATE"):
            define(arguments={"d": "DATE"})

        async def waits(v):
            return True

        class Yields:
            def on_row(self, state, row, out):
                yield row.v

        with self.assertRaisesRegex(slackwater.SqlError, "py_wrong is async"):
            define(waits)
        with self.assertRaisesRegex(slackwater.SqlError, "on_row yields"):
            define(Yields, state={"n": "BIGINT"})
        with self.assertRaises(slackwater.SqlError):
            slackwater.operator({"v": "DOUBLE"}, {}, name="tumble")(lambda v: True)

        class Endless:
            def on_row(self, state, row, out):
                out.timer(out.time)

            def on_time(self, state, at, out):
                out.timer(at)

        define(Endless, state={"n": "BIGINT"})
        session = slackwater.Session()
        session.register(
            "one_row", [(datetime.datetime(1970, 1, 1), 1.0)], schema="ts TIMESTAMP(6), v DOUBLE",
            event_time="ts", watermark=0,
        )
        with self.assertRaisesRegex(slackwater.QueryError, "its timers never end"):
            session.sql("SELECT * FROM py_wrong(TABLE one_row ORDER BY ts)").to_pylist()

        class NeedsMore:
            def __init__(self, most):
                pass

            def on_row(self, state, row, out):
                pass

        define(NeedsMore, state={"n": "BIGINT"}, arguments={"most": "BIGINT"})
        session = session_with([(1, 0, 1.0)])
        with self.assertRaisesRegex(slackwater.SqlError, "most"):
            session.sql("SELECT * FROM py_wrong(TABLE given)").to_pylist()
