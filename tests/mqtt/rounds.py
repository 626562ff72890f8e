#!/usr/bin/env python3
"""The round client, broker, query, broker, client: how long it takes, and what each part costs.

    make bench-rounds
    make bench-rounds BENCH='--rates 100,1000 --seconds 3 --rounds 3 --json rounds.json'

The client publishes at fixed times, whatever comes back (an open loop). The latency of a message is counted
from the time at which it was due, so a late client or a full queue counts. Between the client's two
connections stands nothing but the broker (`broker`), a plain program in Python (`python`), or the query at
several settings. The middles alternate: each round runs all of them once.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import brokers
import client as mqtt

# What a query is told; `None`: no query, but what the name says.
MIDDLES = {
    "broker": None,
    "python": None,
    "default": {},
    # Less than the 5 ms that the round may take: the broker and the client come on top.
    "target_4ms": {"latency_target": "4 ms"},
    "target_5ms": {"latency_target": "5 ms"},
    "target_20ms": {"latency_target": "20 ms"},
    "poll": {"wait": "poll"},
}
QUERY = """
CREATE TABLE requests (id BIGINT, due BIGINT, x DOUBLE, y DOUBLE) WITH ('connector' = 'mqtt',
  'address' = '127.0.0.1:{port}', 'protocol_version' = '{version}', 'topic' = 'in', 'format' = 'json',
  'qos' = '{qos}');
CREATE TABLE answers (id BIGINT, due BIGINT, distance DOUBLE) WITH ('connector' = 'mqtt',
  'address' = '127.0.0.1:{port}', 'protocol_version' = '{version}', 'topic' = 'out', 'format' = 'json',
  'qos' = '{qos}');
INSERT INTO answers SELECT id, due, SQRT(x * x + y * y) FROM requests;
"""
READY_S = 60
DRAIN_S = 10
# Messages before the first that counts.
WARM_UP_S = 1.0
MESSAGES_MAX = 2_000_000


def echo(port, qos):
    """The plain program: computes what the query computes, and ends when the broker closes."""
    broker = mqtt.Client(port, f"echo {os.getpid()}", qos)
    broker.subscribe("in")
    topic = mqtt.text("out")
    try:
        while True:
            for payload in broker.messages(3600):
                row = json.loads(payload)
                distance = (row["x"] ** 2 + row["y"] ** 2) ** 0.5
                answer = {"id": row["id"], "due": row["due"], "distance": distance}
                broker.publish(topic, json.dumps(answer).encode())
            broker.flush()
    except (mqtt.ProtocolError, ConnectionError):
        pass


def cpu_s(pid):
    """The CPU time of a process so far: of all threads that it has."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            pass  # The thread has just ended.
    return total / 1e9


def host_ticks():
    """Ticks of all cores: in total, and stolen by other guests of the host."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields), fields[7]


def percentile(values, share):
    """The value that this share of the sorted values does not exceed."""
    return values[max(0, -(-len(values) * share // 100) - 1)]


class Round:
    """One middle at one rate, once."""

    def __init__(self, port, rate, seconds, qos, answers):
        self.rate, self.answers = rate, answers
        self.warm_up = int(rate * WARM_UP_S)
        self.count = self.warm_up + int(rate * seconds)
        self.sender = mqtt.Client(port, f"sender {os.getpid()}", qos)
        self.receiver = mqtt.Client(port, f"receiver {os.getpid()}", qos)
        self.receiver.subscribe(answers)
        self.came = [None] * self.count
        self.again = 0

    def await_ready(self):
        """Sends messages until one comes back: the middle has subscribed."""
        topic, end = mqtt.text("in"), time.monotonic() + READY_S
        while time.monotonic() < end:
            self.sender.publish(topic, b'{"id":-1,"due":0,"x":0.5,"y":0.5}')
            self.sender.flush()
            self.sender.messages(0)
            if self.receiver.messages(0.2):
                # The answers to other such messages.
                while self.receiver.messages(0.3):
                    self.receiver.flush()
                return
        raise TimeoutError(f"no answer within {READY_S} s")

    def run(self, processes):
        """The latencies, sorted, in ms; how many never came; and the CPU time of each process by name."""
        start_ns = time.monotonic_ns() + 50_000_000
        due_ns = [start_ns + number * 1_000_000_000 // self.rate for number in range(self.count)]
        reading = threading.Thread(target=self.read, args=(due_ns[-1],), daemon=True)
        reading.start()
        topic, sent, before, began = mqtt.text("in"), 0, None, 0
        while sent < self.count:
            now = time.monotonic_ns()
            if before is None and sent >= self.warm_up:
                before, began = {name: cpu_s(pid) for name, pid in processes.items()}, now
            while sent < self.count and due_ns[sent] <= now:
                row = b'{"id":%d,"due":%d,"x":%d.25,"y":%d.5}'
                self.sender.publish(topic, row % (sent, due_ns[sent], sent % 97, sent % 89))
                sent += 1
            self.sender.flush()
            # Acknowledgements are read and dropped while the next message is not due.
            wait_s = (due_ns[min(sent, self.count - 1)] - time.monotonic_ns()) / 1e9
            if self.sender.qos:
                self.sender.messages(wait_s)
            elif wait_s > 0:
                time.sleep(wait_s)
        reading.join(DRAIN_S + 5)
        used = {name: cpu_s(pid) - before[name] for name, pid in processes.items()}
        lasted_s = (time.monotonic_ns() - began) / 1e9
        pairs = list(zip(due_ns, self.came))[self.warm_up:]
        latencies = sorted((came - due) / 1e6 for due, came in pairs if came is not None)
        return latencies, len(pairs) - len(latencies), {name: cpu / lasted_s for name, cpu in used.items()}

    def read(self, last_ns):
        """Notes when each answer comes, until all have, or `DRAIN_S` after the last was due."""
        missing = self.count
        while missing and time.monotonic_ns() < last_ns + DRAIN_S * 1_000_000_000:
            payloads = self.receiver.messages(0.1)
            now = time.monotonic_ns()
            for payload in payloads:
                number = json.loads(payload)["id"]
                if number < 0:
                    continue
                if self.came[number] is None:
                    self.came[number], missing = now, missing - 1
                else:
                    self.again += 1
            self.receiver.flush()

    def close(self):
        self.sender.close()
        self.receiver.close()


def start(middle, broker, folder, options):
    """The process between the client's connections; `None` if there is none."""
    if middle == "broker":
        return None
    if middle == "python":
        command = [sys.executable, __file__, "--echo", str(broker.port), "--qos", str(options.qos)]
    else:
        query = folder / "query.sql"
        query.write_text(QUERY.format(port=broker.port, qos=options.qos, version=options.protocol_version))
        command = [options.program, "run", query, "--quiet"]
        for key, value in MIDDLES[middle].items():
            command += ["--set", f"{key}={value}"]
    log = (folder / f"{middle}.log").open("w")
    return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)


def stop(process):
    """Ends a process that this program has started."""
    if process is None:
        return
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def measure(middle, rate, folder, options):
    """One line of the result."""
    answers = "in" if middle == "broker" else "out"
    broker = brokers.KINDS[options.broker](folder)
    process = None
    try:
        process = start(middle, broker, folder, options)
        game = Round(broker.port, rate, options.seconds, options.qos, answers)
        try:
            game.await_ready()
        except TimeoutError as error:
            log = (folder / f"{middle}.log").read_text().strip() if process else ""
            raise SystemExit(f"error: {middle}: {error}\n{log}")
        processes = {"broker": broker.pid, "client": os.getpid()}
        if process:
            processes["middle"] = process.pid
        ticks = host_ticks()
        latencies, lost, cpu = game.run(processes)
        passed = [after - before for before, after in zip(ticks, host_ticks())]
        game.close()
        if not latencies:
            raise SystemExit(f"error: {middle}: no answer came back at {rate} messages/s")
        return {
            "middle": middle, "rate": rate, "messages": len(latencies), "lost": lost, "again": game.again,
            "p50_ms": percentile(latencies, 50), "p99_ms": percentile(latencies, 99),
            "max_ms": latencies[-1], "cpu_percent": {name: 100 * share for name, share in cpu.items()},
            "steal_percent": 100 * passed[1] / max(passed[0], 1), "load": os.getloadavg()[0],
        }
    finally:
        stop(process)
        broker.stop()


def spread(values):
    """The median, with the lowest and the highest."""
    return f"{statistics.median(values):6.2f} ({min(values):.2f}-{max(values):.2f})"


def summary(results, middle, rate):
    """The line of a middle at a rate, over all rounds."""
    own = [result for result in results if (result["middle"], result["rate"]) == (middle, rate)]
    cpu = {name: [result["cpu_percent"].get(name, 0.0) for result in own]
           for name in ("middle", "broker", "client")}
    steal = statistics.median(result["steal_percent"] for result in own)
    load = statistics.median(result["load"] for result in own)
    columns = [f"{rate:6,} {middle:12}", spread([result["p50_ms"] for result in own]).rjust(24),
               spread([result["p99_ms"] for result in own]).rjust(26)]
    columns += [spread(cpu["middle"]).rjust(22)]
    columns += [f"{statistics.median(cpu[name]):7.1f}" for name in ("broker", "client")]
    columns += [f"{sum(result['lost'] for result in own):5}", f"{steal:6.1f} {load:5.1f}"]
    return " ".join(columns)


def parsed(arguments):
    """The options; ends with a message if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0], allow_abbrev=False)
    parser.add_argument("--program", default="target/release/slackwater", help="the slackwater program")
    parser.add_argument("--broker", default="mosquitto", choices=sorted(brokers.KINDS))
    parser.add_argument("--protocol-version", choices=("5", "3.1.1"),
                        help="the MQTT of the query [5; with rabbitmq, of Debian 12, 3.1.1]")
    parser.add_argument("--rates", default="100,1000,5000", help="messages a second, separated by commas")
    parser.add_argument("--middles", default=",".join(MIDDLES), help=f"of {', '.join(MIDDLES)}")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement [5]")
    parser.add_argument("--rounds", type=int, default=3, help="of all measurements [3]")
    parser.add_argument("--qos", type=int, default=1, choices=(0, 1))
    parser.add_argument("--realtime", action="store_true",
                        help="all parts come before other programs of the host (SCHED_RR; needs root)")
    parser.add_argument("--json", help="a file for all figures")
    parser.add_argument("--check", action="store_true", help="fail if an answer is missing")
    parser.add_argument("--echo", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.echo:
        return options
    rates = options.rates.split(",")
    if not all(rate.isdecimal() and 1 <= int(rate) <= 100_000 for rate in rates):
        parser.error(f"--rates: '{options.rates}' is not a list of whole numbers from 1 to 100000")
    options.rates = [int(rate) for rate in rates]
    options.middles = options.middles.split(",")
    options.protocol_version = options.protocol_version or brokers.KINDS[options.broker].VERSION
    for middle in options.middles:
        if middle not in MIDDLES:
            parser.error(f"--middles: '{middle}' is unknown: use {', '.join(MIDDLES)}")
    if not 0.1 <= options.seconds <= 600 or not 1 <= options.rounds <= 100:
        parser.error("--seconds is from 0.1 to 600, --rounds from 1 to 100")
    if max(options.rates) * options.seconds > MESSAGES_MAX:
        parser.error(f"--seconds: more than {MESSAGES_MAX:,} messages in a measurement: use a shorter time")
    if set(options.middles) - {"broker", "python"}:
        found = shutil.which(options.program)
        if not found:
            parser.error(f"--program: '{options.program}' is not a program: use cargo build --release")
        options.program = os.path.abspath(found)
    return options


def main(arguments):
    options = parsed(arguments)
    if options.echo:
        return echo(options.echo, options.qos)
    missing = brokers.KINDS[options.broker].missing()
    if missing:
        print(f"skipped: {missing}")
        return 0
    if options.realtime:
        try:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        except PermissionError:
            raise SystemExit("error: --realtime: the kernel refuses it: run as root, or without it") from None
    results = []
    with tempfile.TemporaryDirectory(prefix="slackwater-rounds-") as folder:
        for number in range(options.rounds):
            for rate in options.rates:
                for middle in options.middles:
                    result = measure(middle, rate, Path(folder), options)
                    results.append(result)
                    print(f"round {number + 1}: {rate}/s {middle}: p50 {result['p50_ms']:.2f} ms, "
                          f"p99 {result['p99_ms']:.2f} ms", file=sys.stderr)
                    if options.json:
                        Path(options.json).write_text(json.dumps(results, indent=1))
    print(f"{options.broker}, MQTT {options.protocol_version}, qos {options.qos}, {os.cpu_count()} core(s), "
          f"Linux {platform.release()}; "
          f"{'real-time, ' if options.realtime else ''}"
          f"{options.rounds} round(s) of {options.seconds:g} s, medians (lowest to highest)")
    print(f"{'rate/s middle':19} {'p50 ms':>24} {'p99 ms':>26} {'CPU % middle':>22} {'broker':>7} "
          f"{'client':>7} {'lost':>5} {'steal%':>6} {'load':>5}")
    for rate in options.rates:
        for middle in options.middles:
            print(summary(results, middle, rate))
    lost = sum(result["lost"] for result in results)
    if options.check and lost:
        print(f"error: {lost} answers are missing", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
