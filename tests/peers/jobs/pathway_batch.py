import sys

import pathway as pw


class Event(pw.Schema):
    ts_ms: int
    k: str
    v: int


events = pw.io.csv.read(sys.argv[1], schema=Event, mode="static")
sums = events.windowby(
    events.ts_ms, window=pw.temporal.tumbling(duration=10_000), instance=events.k
).reduce(
    start=pw.this._pw_window_start, k=pw.this._pw_instance,
    n=pw.reducers.count(), s=pw.reducers.sum(pw.this.v),
)  # fmt: skip
pw.io.csv.write(sums, sys.argv[2])
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
