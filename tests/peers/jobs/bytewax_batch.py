import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.connectors.files import CSVSource, FileSink
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
flow = Dataflow("sums")
rows = op.input("in", flow, CSVSource(Path(sys.argv[1])))
keyed = op.map("key", rows, lambda row: (row["k"], (int(row["ts_ms"]), int(row["v"]))))
clock = win.EventClock(
    ts_getter=lambda row: EPOCH + timedelta(milliseconds=row[0]),
    wait_for_system_duration=timedelta(seconds=2),
)
windower = win.TumblingWindower(length=timedelta(seconds=10), align_to=EPOCH)
sums = win.fold_window(
    "sum", keyed, clock, windower,
    lambda: (0, 0), lambda sums, row: (sums[0] + 1, sums[1] + row[1]),
    lambda one, other: (one[0] + other[0], one[1] + other[1]),
)  # fmt: skip


def line(result):
    key, (window, (n, s)) = result
    return key, f"{window * 10_000},{key},{n},{s}"


op.output("out", op.map("line", sums.down, line), FileSink(Path(sys.argv[2])))
run_main(flow)
