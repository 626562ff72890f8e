import pathway as pw
from pace import Pace

pace = Pace()


class Event(pw.Schema):
    ts_ms: int
    k: str
    v: int


class Rows(pw.io.python.ConnectorSubject):
    def run(self):
        for rows in pace.rows():
            for at, key, value in rows:
                self.next(ts_ms=at, k=key, v=value)
            self.commit()


events = pw.io.python.read(Rows(), schema=Event, autocommit_duration_ms=10)
sums = events.windowby(
    events.ts_ms, window=pw.temporal.tumbling(duration=10_000), instance=events.k,
    behavior=pw.temporal.exactly_once_behavior(),
).reduce(
    start=pw.this._pw_window_start, k=pw.this._pw_instance,
    n=pw.reducers.count(), s=pw.reducers.sum(pw.this.v),
)  # fmt: skip
pw.io.subscribe(sums, lambda key, row, time, is_addition: pace.result(row["start"]))
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
pace.report()
