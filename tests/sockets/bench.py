"""Plain TCP beside shared memory, for programs as they are: latency, throughput, CPU time.

Every figure is the median of rounds that alternate between the two. `bench.py --library FILE` takes the
library of `slackwater sockets`; programs that are missing are skipped with a note. Each load has an end.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 60


def environment(library, wait):
    """The environment of a program: without the library it uses plain TCP."""
    variables = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    if wait != "tcp":
        variables |= {"LD_PRELOAD": library, "SLACKWATER_SOCKETS_WAIT": wait}
    return variables


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def json_of(process):
    output, _ = process.communicate(timeout=LIMIT_S)
    if process.returncode != 0:
        raise RuntimeError(f"{process.args}: exit code {process.returncode}")
    return json.loads(output)


def echo(program, wait, library, *words):
    """The figures of the client and of the server of echo.c."""
    port, variables = str(free_port()), environment(library, wait)
    server = subprocess.Popen([program, "serve", port], env=variables, stdout=subprocess.PIPE)
    try:
        command = [program, words[0], port, *map(str, words[1:])]
        client = json_of(subprocess.Popen(command, env=variables, stdout=subprocess.PIPE))
        return client, json_of(server)
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def latency(options, wait, size):
    client, _ = echo(options.echo, wait, options.library, "pingpong", size, options.messages)
    return {"p50_us": client["p50_us"], "p99_us": client["p99_us"]}


def rate(options, wait, size):
    client, server = echo(options.echo, wait, options.library, "send", size, 10_000, options.seconds)
    each = 1e6 / client["messages"]
    return {"send_cpu_us": client["cpu_s"] * each, "receive_cpu_us": server["cpu_s"] * each,
            "cpu_us": (client["cpu_s"] + server["cpu_s"]) * each}


def stream(options, wait, size):
    client, server = echo(options.echo, wait, options.library, "stream", size, options.seconds)
    return {"gbit_s": client["sent"] * 8e-9 / client["seconds"],
            "cpu_s_gbyte": (client["cpu_s"] + server["cpu_s"]) / client["sent"] * 1e9}


def iperf(options, wait, _):
    port, variables = str(free_port()), environment(options.library, wait)
    server = subprocess.Popen(["iperf3", "-s", "-1", "-p", port, "-B", "127.0.0.1"], env=variables,
                              stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        command = ["iperf3", "-c", "127.0.0.1", "-p", port, "-t", str(options.seconds), "-J"]
        found = json_of(subprocess.Popen(command, env=variables, stdout=subprocess.PIPE))
        return {"gbit_s": found["end"]["sum_received"]["bits_per_second"] / 1e9}
    finally:
        server.kill()
        server.wait()


def redis(options, wait, clients):
    port, variables = str(free_port()), environment(options.library, wait)
    with tempfile.TemporaryDirectory() as folder:
        command = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        server = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL)
        try:
            for _ in range(100):
                try:
                    socket.create_connection(("127.0.0.1", int(port))).close()
                    break
                except OSError:
                    time.sleep(0.05)
            command = ["redis-benchmark", "-p", port, "-n", str(options.messages), "-c", str(clients)]
            command += ["-t", "set", "--csv"]
            output = subprocess.run(command, env=variables, check=True, timeout=LIMIT_S, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
            fields = output.strip().splitlines()[-1].replace('"', "").split(",")
            return {"requests_s": float(fields[1]), "mean_us": float(fields[2]) * 1000}
        finally:
            server.terminate()
            server.wait()


SERVE = """import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "13")
        self.end_headers()
        self.wfile.write(b"Hello, world!")
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()"""

GET = """import http.client, json, sys, time
times = []
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    start = time.perf_counter()
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"Hello, world!"
    times.append((time.perf_counter() - start) * 1e6)
times.sort()
print(json.dumps({"p50_us": times[len(times) // 2], "p99_us": times[len(times) * 99 // 100]}))"""


def http(options, wait, _):
    variables = environment(options.library, wait)
    server = subprocess.Popen([sys.executable, "-c", SERVE], env=variables, stdout=subprocess.PIPE, text=True)
    try:
        port = server.stdout.readline().strip()
        command = [sys.executable, "-c", GET, port, str(max(options.messages // 10, 100))]
        return json_of(subprocess.Popen(command, env=variables, stdout=subprocess.PIPE))
    finally:
        server.terminate()
        server.wait()


REDIS = ["redis-server", "redis-benchmark"]
# What is measured, with which argument, the programs that it needs, and the ways to wait beside plain TCP.
EXPERIMENTS = [
    ("latency of 64 bytes", latency, 64, [], ["spin", "interrupt"]),
    ("latency of 4 KiB", latency, 4096, [], ["spin", "interrupt"]),
    ("CPU time of a message, 64 bytes, 10,000/s", rate, 64, [], ["sleep", "interrupt"]),
    ("CPU time of a message, 1 KiB, 10,000/s", rate, 1024, [], ["sleep", "interrupt"]),
    ("stream, writes of 128 KiB", stream, 131072, [], ["interrupt"]),
    ("iperf3", iperf, 0, ["iperf3"], ["interrupt"]),
    ("redis-benchmark, SET, 1 client", redis, 1, REDIS, ["spin", "interrupt"]),
    ("redis-benchmark, SET, 50 clients", redis, 50, REDIS, ["spin", "interrupt"]),
    ("Python's http.server and http.client", http, 0, [], ["spin", "interrupt"]),
]


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def measured(options, experiment):
    """The rounds of an experiment, the ways alternating."""
    title, run, argument, _, ways = experiment
    found = {way: [] for way in ["tcp", *ways]}
    for _ in range(options.rounds):
        for way, rounds in found.items():
            rounds.append(run(options, way, argument))
    result = {}
    for way, rounds in found.items():
        result[way] = {name: spread([figures[name] for figures in rounds]) for name in rounds[0]}
    return {"title": title, "ways": result}


def show(result):
    print(result["title"])
    tcp = result["ways"]["tcp"]
    for way, figures in result["ways"].items():
        for name, figure in figures.items():
            ratio = figure["median"] / tcp[name]["median"] if tcp[name]["median"] else 0
            spread_of = f"{figure['least']:.2f} to {figure['most']:.2f}"
            print(f"  {way:10} {name:15} {figure['median']:12.2f}   {spread_of}   {ratio:.2f} x TCP")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True, help="libslackwater_sockets.so")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2, help="of a round with a fixed rate, or of a stream")
    parser.add_argument("--messages", type=int, default=20_000, help="of a round of latency")
    parser.add_argument("--only", help="experiments whose title contains this")
    parser.add_argument("--json", metavar="FILE", help="write the figures there, too")
    options = parser.parse_args()
    options.library = os.path.abspath(options.library)
    if not os.path.isfile(options.library):
        sys.exit(f"--library: there is no file {options.library}\n"
                 "  = cargo build --release -p slackwater-sockets")
    compiler = shutil.which("cc")
    if not compiler:
        sys.exit("cc is missing: apt-get install gcc libc6-dev")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        options.echo = os.path.join(folder, "echo")
        subprocess.run([compiler, "-O2", "-o", options.echo, os.path.join(HERE, "echo.c")], check=True)
        for experiment in EXPERIMENTS:
            missing = [program for program in experiment[3] if not shutil.which(program)]
            if options.only and options.only not in experiment[0]:
                continue
            if missing:
                print(f"note: {experiment[0]}: {', '.join(missing)} is missing (make test-sockets): skipped")
                continue
            results.append(measured(options, experiment))
            show(results[-1])
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            host = {"cores": os.cpu_count(), "load": os.getloadavg()}
            json.dump(host | {"experiments": results}, file, indent=1)


if __name__ == "__main__":
    main()
