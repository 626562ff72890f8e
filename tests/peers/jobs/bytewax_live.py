from datetime import datetime, timedelta, timezone

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main
from pace import TICK_S, Pace

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
pace = Pace()


class Rows(StatelessSourcePartition):
    """Bytewax asks its sources for rows: here every tick."""

    def next_batch(self):
        rows = pace.due()
        if rows is None:
            raise StopIteration
        self.awake = datetime.now(timezone.utc) + timedelta(seconds=TICK_S if not rows else 0)
        return rows

    def next_awake(self):
        return getattr(self, "awake", None)


class Source(DynamicSource):
    def build(self, step_id, worker_index, worker_count):
        return Rows()


class Results(StatelessSinkPartition):
    def write_batch(self, items):
        for _, (window, _) in items:
            pace.result(window * 10_000)


class Sink(DynamicSink):
    def build(self, step_id, worker_index, worker_count):
        return Results()


flow = Dataflow("sums")
rows = op.input("in", flow, Source())
keyed = op.map("key", rows, lambda row: (row[1], (row[0], row[2])))
clock = win.EventClock(
    ts_getter=lambda row: EPOCH + timedelta(milliseconds=row[0]),
    wait_for_system_duration=timedelta(0),
)
windower = win.TumblingWindower(length=timedelta(seconds=10), align_to=EPOCH)
sums = win.fold_window(
    "sum", keyed, clock, windower,
    lambda: (0, 0), lambda sums, row: (sums[0] + 1, sums[1] + row[1]),
    lambda one, other: (one[0] + other[0], one[1] + other[1]),
)  # fmt: skip
op.output("out", sums.down, Sink())
run_main(flow)
pace.report()
