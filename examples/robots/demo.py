#!/usr/bin/env python3
"""Robots that speak MQTT, and queries that keep them apart and tell them where they are.

    make demo-robots
    make demo-robots ROBOTS='--robots 50 --seconds 20 --seed 7 --no-page'

Starts a broker, the queries and a simulator on free ports of the loopback address; nothing else is needed,
and nothing stays behind. docs/robots.md explains what it prints.
"""

import argparse
import math
import os
import shutil
import signal
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "mqtt"))
import brokers  # noqa: E402
import rounds  # noqa: E402
import crossing  # noqa: E402
import hall  # noqa: E402
from live import Page  # noqa: E402
from simulator import Query, Simulator  # noqa: E402

ALGORITHMS = ["serial", "flat_tree", "binary_tree", "ring"]
# How soon 99 of 100 commands are there, in milliseconds: half of a step.
TARGET_MS = 50
# How much smaller the error of SLAM is than that of the odometer.
RATIO = 5


def root_mean_square(values):
    return (sum(value * value for value in values) / max(len(values), 1)) ** 0.5


def verdict(is_met):
    return "met" if is_met else "missed"


def times(latencies_ms):
    """The percentiles of a list of times."""
    if not latencies_ms:
        return "no answer came"
    ordered = sorted(latencies_ms)
    return f"p50 {rounds.percentile(ordered, 50):.1f} ms, p99 {rounds.percentile(ordered, 99):.1f} ms"


def missed(latencies_ms):
    """The part of the answers that took longer than the target."""
    return sum(time > TARGET_MS for time in latencies_ms) / max(len(latencies_ms), 1)


class Demo:
    """The parts of the demonstration; each notes what was missed in `failures`."""

    def __init__(self, options, folder, broker, page):
        self.options, self.folder, self.broker, self.page = options, folder, broker, page
        self.failures = []

    def query(self, name, settings):
        text = Path(self.options.queries, f"{name}.sql").read_text()
        return Query(self.options.program, name, text, self.broker.port, self.folder, settings)

    def straight(self):
        """How it would be without avoidance; takes no broker."""
        options = self.options
        found = crossing.without_avoidance(options.robots, options.seconds, options.seed)
        print(f"without avoidance: {found.collisions:,} collisions, {found.arrivals} arrivals", flush=True)

    def run(self):
        """Both queries at once, for `seconds`."""
        options = self.options
        robots = crossing.Crossing(options.robots, options.seed)
        lasers = [hall.Laser(number, options.seed) for number in range(options.lasers)]
        queries = {"avoid": self.query("avoid", options.set)}
        if lasers:
            queries["slam"] = self.query("slam", options.set)
        simulator = Simulator(self.broker, robots, lasers, self.page)
        try:
            for query in queries.values():
                query.start()
            simulator.run(options.seconds, queries, options.kill)
        finally:
            simulator.close()
            for query in queries.values():
                query.stop()
        self.tell_crossing(robots, simulator)
        if lasers:
            self.tell_slam(simulator)

    def tell_crossing(self, robots, simulator):
        answers, touch_m, cores = simulator.commands, 2 * crossing.RADIUS_M, simulator.cores
        lost, share = answers.asked - len(answers.times_ms), missed(answers.times_ms)
        close_m = crossing.CLOSE_M
        apart = f"{robots.closest_m:.2f} m" if robots.closest_m < close_m else f"over {close_m:.2f} m"
        print(f"with avoidance:    {robots.collisions:,} collisions, {robots.arrivals} arrivals; "
              f"the closest two were {apart} apart (they touch at {touch_m:.2f})")
        print(f"commands:          {len(answers.times_ms):,}, {times(answers.times_ms)}; "
              f"target p99 {TARGET_MS} ms: {verdict(share <= 0.01)} ({share:.2%} took longer)\n"
              f"                   {answers.late} came after the next step, {lost} never; "
              f"{robots.stops} times a robot stopped because no command came")
        print(f"                   cores: the query {cores['avoid']:.2f}, the broker {cores['broker']:.2f}, "
              f"the simulator {cores['simulator']:.2f}", flush=True)
        if robots.collisions:
            self.failures.append(f"{robots.collisions} collisions")
        if robots.arrivals == 0 and self.options.seconds >= 60:
            self.failures.append("no robot has arrived")
        if lost and not self.options.kill:
            self.failures.append(f"{lost} commands never came")
        if simulator.strange:
            self.failures.append(f"{simulator.strange} commands for no robot, or that are not finite")

    def tell_slam(self, simulator):
        answers, lasers = simulator.poses, self.options.lasers
        error, other = root_mean_square(simulator.errors_m), root_mean_square(simulator.odometry_m)
        ratio = other / max(error, 1e-9)
        lost = answers.asked - len(answers.times_ms)
        print(f"SLAM:              {len(answers.times_ms):,} scans of {lasers} robots, "
              f"{times(answers.times_ms)}; {lost} without an answer; {simulator.cores['slam']:.2f} cores")
        print(f"                   error against the true path {error:.3f} m, the odometry's {other:.3f} m "
              f"(root mean squares):\n                   {ratio:.1f} times less; goal {RATIO}: "
              f"{verdict(ratio >= RATIO)}", flush=True)
        if ratio < RATIO:
            self.failures.append(f"SLAM's error is only {ratio:.1f} times less than the odometry's")

    def broadcasts(self):
        """SLAM among processes, by each way in which scans are broadcast; the ways alternate."""
        options = self.options
        found = {algorithm: [] for algorithm in ALGORITHMS}
        for _ in range(options.rounds):
            for algorithm in ALGORITHMS:
                # With the queries' own target workers sleep for longer than a broadcast takes.
                settings = ["latency_target=1 ms", *options.set, f"broadcast={algorithm}",
                            f"processes={options.processes}",
                            f"parallelism={options.processes}", f"workers={options.processes}"]
                query = self.query("slam", settings)
                lasers = [hall.Laser(number, options.seed) for number in range(options.lasers)]
                simulator = Simulator(self.broker, None, lasers, self.page)
                try:
                    query.start()
                    simulator.run(options.broadcast_seconds, {"slam": query}, False)
                finally:
                    simulator.close()
                    query.stop()
                found[algorithm].append(sorted(simulator.poses.times_ms))
        print(f"broadcasts:        scans to {options.processes} processes, {options.rounds} round(s) of "
              f"{options.broadcast_seconds:g} s, medians (lowest to highest)")
        for algorithm, rounds_of in found.items():
            columns = []
            for share in (50, 99):
                values = [rounds.percentile(values, share) for values in rounds_of if values]
                middle = statistics.median(values) if values else math.nan
                columns.append(f"p{share} {middle:.1f} ms ({min(values):.1f}-{max(values):.1f})"
                               if values else "no answer came")
            print(f"                   {algorithm:12} {', '.join(columns)}", flush=True)


def parsed(arguments):
    """The options; ends with a message if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0], allow_abbrev=False)
    add = parser.add_argument
    add("--program", default="target/release/examples/robots", help="the example's program")
    add("--robots", type=int, default=100, help="that cross the circle, 2 to 100 [100]")
    add("--lasers", type=int, default=3, help=f"robots with lasers, 0 to {hall.LASERS_MAX} [3]")
    add("--seconds", type=float, default=60.0, help="1 to 600 [60]")
    add("--seed", type=int, default=1, help="of where robots start, and of all errors [1]")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the queries")
    add("--processes", type=int, default=4, help="of the part about broadcasts, 2 to 16 [4]")
    add("--broadcast-seconds", type=float, default=8.0, help="of each measurement; 0: none [8]")
    add("--rounds", type=int, default=2, help="of all broadcasts, 1 to 20 [2]")
    add("--kill", action="store_true", help="kill the query of the commands in the middle, once")
    add("--no-page", action="store_true", help="without the live plot")
    add("--realtime", action="store_true",
        help="all parts come before other programs of the host (SCHED_RR; needs root)")
    add("--check", action="store_true", help="fail if robots collide, or a command or pose is wrong")
    options = parser.parse_args(arguments)
    limits = [("robots", 2, 100), ("lasers", 0, hall.LASERS_MAX), ("seconds", 1, 600), ("processes", 2, 16),
              ("broadcast_seconds", 0, 600), ("rounds", 1, 20)]
    for name, least, most in limits:
        value = getattr(options, name)
        if not least <= value <= most:
            parser.error(f"--{name.replace('_', '-')} is from {least} to {most}, and is {value:g}")
    found = shutil.which(options.program)
    if not found:
        parser.error(f"--program: '{options.program}' is not a program: "
                     "use cargo build --release --example robots")
    options.program = os.path.abspath(found)
    options.queries = Path(__file__).resolve().parents[2] / "crates/slackwater/examples/robots"
    return options


def main(arguments):
    options = parsed(arguments)
    missing = brokers.Mosquitto.missing()
    if missing:
        print(f"skipped: {missing}")
        return 0
    # So that the broker and the queries end as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.realtime:
        try:
            # The broker and the queries inherit it.
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        except PermissionError:
            raise SystemExit("error: --realtime: the kernel refuses it: run as root, or without it") from None
    print(f"{options.robots} robots cross a circle for {options.seconds:g} s, {options.lasers} drive "
          f"through a hall; seed {options.seed}, {os.cpu_count()} core(s), "
          f"load {os.getloadavg()[0]:.1f}{', real-time' if options.realtime else ''}")
    with tempfile.TemporaryDirectory(prefix="slackwater-robots-") as folder:
        broker = brokers.Mosquitto(Path(folder))
        page = None if options.no_page else Page()
        try:
            if page:
                print(f"page at {page.address}", flush=True)
            demo = Demo(options, Path(folder), broker, page)
            demo.query("avoid", options.set).explain()
            demo.straight()
            demo.run()
            if not options.lasers:
                print("SLAM, broadcasts:  left out, because there are no lasers")
            elif options.broadcast_seconds:
                demo.broadcasts()
        finally:
            if page:
                page.close()
            broker.stop()
    for failure in demo.failures:
        print(f"error: {failure}", file=sys.stderr)
    return int(bool(options.check and demo.failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
