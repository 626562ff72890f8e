"""Rows at a fixed rate, and when their results come: what the scripts `*_live.py` share.

A tick has a row for each key, every 10 ms. Event time runs 500 times as fast as the clock, so that a window
of ten seconds is complete every two ticks. Its latency is the time from the first row that is after it to its
first result in the user's code.
"""

import json
import sys
import time

TICK_S = 0.01
TICK_MS = 5000
WINDOW_MS = 10_000

# Windows that are not measured: the engine starts.
WARM_UP = 50


class Pace:
    """RATE and SECONDS of the command line. A rate of 0 is a stream on which nothing comes."""

    def __init__(self):
        self.rate, self.seconds = int(sys.argv[1]), float(sys.argv[2])
        self.keys = [f"k{number}" for number in range(max(1, round(self.rate * TICK_S)))]
        self.begin, self.cpu_begin, self.cpu_s = None, None, None
        self.ticks, self.sent, self.seen = 0, {}, {}

    def due(self):
        """The rows that are due now, none yet, or None at the end: event time in ms, key, value."""
        now = time.monotonic()
        if self.begin is None:
            self.begin, self.cpu_begin = now, time.process_time()
        if now > self.begin + self.seconds:
            if self.cpu_s is None:
                self.cpu_s = time.process_time() - self.cpu_begin
            return None
        if self.rate == 0 or now < self.begin + self.ticks * TICK_S:
            return []
        at = self.ticks * TICK_MS
        rows = [(at, key, self.ticks) for key in self.keys]
        self.sent[at] = time.monotonic()
        self.ticks += 1
        return rows

    def rows(self):
        """The rows of each tick, when they are due."""
        while (rows := self.due()) is not None:
            if rows:
                yield rows
            elif self.rate == 0:
                time.sleep(self.seconds + 0.01)
            else:
                time.sleep(max(0.0, self.begin + self.ticks * TICK_S - time.monotonic()))

    def result(self, window_start_ms):
        """A result of a window has come."""
        self.seen.setdefault(int(window_start_ms), time.monotonic())

    def report(self):
        """Prints what was measured."""
        pairs = [(self.sent.get(start + WINDOW_MS), at) for start, at in sorted(self.seen.items())]
        latencies = sorted((at - sent) * 1000 for sent, at in pairs[WARM_UP:] if sent is not None)
        found = {"windows": len(latencies), "cpu_s": self.cpu_s, "seconds": self.seconds, "ticks": self.ticks}
        if latencies:
            for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99), ("max_ms", 1.0)):
                found[name] = latencies[min(len(latencies) - 1, int(share * len(latencies)))]
        print(json.dumps(found), flush=True)
