"""Clients that want to do harm, against `slackwater serve` with one job: `make test-hostile`.

hostile.py PROGRAM [--seed N]. Each attack is bounded in number. While they last, honest clients read the
job's view every 100 ms: over a connection of PostgreSQL's protocol that stays, over new ones, and over HTTP.
Every read has to get its answer, the server and the job have to stay alive, and the server's memory has to
stay below what its documented limits add up to. What takes time is printed, never asserted.
"""

import argparse
import json
import os
import random
import resource
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import serving
from wire import Pg, Refused, http, message, query, startup

KIB, MIB = 1 << 10, 1 << 20
CONNECTIONS = 10_000
PASSWORDS = 1_000
GARBAGE = 2_000

# docs/internals/postgres.md, "Hostile clients": connections that were let in, and others; bytes of a message,
# and of what is not read.
PG_CLIENTS, PG_OTHERS = 256, 256
PG_MESSAGE, PG_FIRST_MESSAGE, PG_UNREAD = MIB, 10_000, 64_000
PG_STREAMS = 48
# docs/http.md, "Who may ask, and how much": connections, and bytes of a request and of an answer.
HTTP_CLIENTS, HTTP_STREAMS = 64, 32
HTTP_HEAD, HTTP_BODY, HTTP_ANSWER = 16 * KIB, 4 * MIB, 5 * 64 * KIB
# The same again: what grows by doubling, is copied once on its way, or was freed and not given back.
SPARE = 2


def memory_bound():
    """What the attacks may take of the server's memory, in bytes."""
    pg = PG_CLIENTS * (PG_MESSAGE + PG_UNREAD) + PG_OTHERS * PG_FIRST_MESSAGE
    return SPARE * (pg + HTTP_CLIENTS * (HTTP_HEAD + HTTP_BODY + HTTP_ANSWER))


STATEMENTS = [
    """CREATE TABLE visits (ts_ms BIGINT, ip STRING) WITH
       ('connector' = 'datagen', 'generator' = 'uservisits', 'rate' = '500/s', 'addresses' = '2000')""",
    """CREATE MATERIALIZED VIEW busy AS
       SELECT ip, COUNT(*) AS visits, MAX(CONCAT(REPEAT(ip, 20), CAST(ts_ms AS STRING))) AS wide
       FROM visits GROUP BY ip""",
    "CREATE TABLE x (n BIGINT) WITH ('connector' = 'http')",
]


class Honest:
    """A client that reads the view again and again. What it reads never gets less."""

    def __init__(self, name, ask):
        self.name, self.ask = name, ask
        self.answers, self.longest_s, self.failed = 0, 0.0, None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        last = 0
        try:
            while not self.stopped.wait(0.1):
                began = time.monotonic()
                visits = self.ask()
                assert visits >= last, f"{visits} after {last}"
                last = visits
                self.answers += 1
                self.longest_s = max(self.longest_s, time.monotonic() - began)
        except Exception as error:
            self.failed = f"{type(error).__name__}: {error}"

    def is_answered(self):
        """Waits until it has got some more answers."""
        wanted = self.answers + 3
        serving.wait_for(f"{self.name} is answered", lambda: self.failed or self.answers >= wanted)
        assert not self.failed, f"{self.name}: {self.failed}"

    def end(self):
        self.stopped.set()
        self.thread.join()
        assert not self.failed, f"{self.name}: {self.failed}"
        print(f"  {self.name}: {self.answers} answers, the slowest after {self.longest_s:.2f} s")


class Attacks:
    """The server, and what is done to it."""

    def __init__(self, server, seed):
        self.server, self.random = server, random.Random(seed)
        self.pg, self.http = server.pg_port, server.http_port
        self.kept = Pg(self.pg).begun()
        self.turned_away = 0
        self.honest = [
            Honest("PostgreSQL, one connection", lambda: self.visits(self.kept)),
            Honest("PostgreSQL, new connections", self.visits_of_new),
            Honest("HTTP, new connections", self.visits_by_http),
        ]

    @staticmethod
    def visits(client):
        return int(client.rows("SELECT SUM(visits) FROM busy")[0][0])

    def visits_of_new(self):
        client = Pg(self.pg).begun()
        try:
            return self.visits(client)
        finally:
            client.close()

    def visits_by_http(self):
        """HTTP's places are few: a client that is turned away comes again, as `retry-after` says."""
        end = time.monotonic() + serving.PATIENCE_S
        while True:
            try:
                status, body = http(self.http, "POST /v1/sql", b"SELECT SUM(visits) AS n FROM busy")
                if status == 200:
                    return json.loads(body.splitlines()[1])["row"]["n"]
                assert status == 503, f"{status}: {body[:200]}"
            except ConnectionError:
                pass
            assert time.monotonic() < end, "it was always turned away"
            self.turned_away += 1
            time.sleep(0.05)

    def are_answered(self):
        for honest in self.honest:
            honest.is_answered()

    def connections(self):
        """Connections that say nothing, or the beginning of something, and stay."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
        count = min(CONNECTIONS, limit[1] - 500)
        begins = {self.pg: startup("eve"), self.http: b"POST /v1/sql HTTP/1.1\r\nhost: 127.0.0.1\r\n"}
        kept = []
        for at in range(count):
            port = (self.pg, self.http)[at % 2]
            raw = socket.create_connection(("127.0.0.1", port), timeout=60)
            send(raw, begins[port][:self.random.randrange(len(begins[port]))])
            kept.append(raw)
            if at % 1_000 == 0:
                self.are_answered()
        self.are_answered()
        close(kept)
        return f"{count} connections"

    def half_requests(self):
        """Messages and bodies as long as allowed, all but their last byte."""
        pg = [Pg(self.pg).begun() for _ in range(200)]
        long = query("x" * (PG_MESSAGE - 100))[:-1]
        for client in pg:
            send(client.socket, long)
        head = f"POST /v1/tables/x HTTP/1.1\r\nhost: 127.0.0.1:{self.http}\r\n"
        head += f"content-length: {HTTP_BODY}\r\n\r\n"
        bodies = []
        for _ in range(2 * HTTP_CLIENTS):
            raw = socket.create_connection(("127.0.0.1", self.http), timeout=60)
            send(raw, head.encode() + b"1\n" * (HTTP_BODY // 2 - 1))
            bodies.append(raw)
        self.are_answered()
        close(bodies)
        close(client.socket for client in pg)
        return f"{len(pg)} messages of {len(long)} bytes, {len(bodies)} bodies of {HTTP_BODY - 2} bytes"

    def slow_readers(self):
        """SUBSCRIBE and /changes, of which almost nothing is read."""
        readers = [Pg(self.pg, receive_bytes=4 * KIB).begun() for _ in range(PG_STREAMS + 16)]
        for reader in readers:
            reader.socket.sendall(query("SUBSCRIBE busy"))
        refused = 0
        for reader in readers:
            kind, body = reader.receive()
            refused += kind == b"E"
        assert refused == 16, f"{refused} of {len(readers)} were refused"
        followers = []
        for _ in range(HTTP_STREAMS + 8):
            raw = socket.socket()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
            raw.settimeout(60)
            raw.connect(("127.0.0.1", self.http))
            head = f"GET /v1/views/busy/changes HTTP/1.1\r\nhost: 127.0.0.1:{self.http}\r\n\r\n"
            send(raw, head.encode())
            followers.append(raw)
        following = sum(raw.recv(12) == b"HTTP/1.1 200" for raw in followers)
        assert 0 < following <= HTTP_STREAMS, f"{following} follow"
        end = time.monotonic() + 20
        while time.monotonic() < end:
            self.are_answered()
        close(followers)
        close(reader.socket for reader in readers)
        return (f"{len(readers)} SUBSCRIBE, {refused} of them refused;"
                f" {following} of {len(followers)} /changes")

    def giants(self):
        """Bodies of 64 MB, and statements of 10 MB."""
        statuses, codes = set(), set()
        body = b"1\n" * (32 << 20)
        for path in ("sql", "tables/x") * 4:
            try:
                statuses.add(http(self.http, f"POST /v1/{path}", body)[0])
            except ConnectionError:
                # It does not read on, so its answer may be lost.
                statuses.add("closed")
        assert statuses <= {413, 503, "closed"}, statuses
        client = Pg(self.pg).begun()
        long = query("SELECT '" + "x" * (10 << 20) + "'")
        for _ in range(50):
            client.socket.sendall(long)
            codes |= {body for kind, body in client.until(b"Z") if kind == b"E"}
        client.socket.sendall(message(b"P", long[5:] + b"\0\0") + message(b"S", b""))
        codes |= {body for kind, body in client.until(b"Z") if kind == b"E"}
        assert codes == {"54000"}, codes
        client.close()
        self.are_answered()
        return f"8 bodies of 64 MiB: {sorted(statuses, key=str)}; 51 statements of 10 MiB: {codes}"

    def passwords(self):
        """Wrong passwords, by many clients at once: each waits 0.5 s for its answer."""
        codes, lock = {}, threading.Lock()

        def guess(count):
            for _ in range(count):
                try:
                    Pg(self.pg).begun("wrong")
                    code = "let in"
                except Refused as refused:
                    code = str(refused)
                except ConnectionError:
                    code = "closed"
                with lock:
                    codes[code] = codes.get(code, 0) + 1

        threads = [threading.Thread(target=guess, args=(PASSWORDS // 50,)) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert "let in" not in codes and codes["28P01"] > 0, codes
        self.are_answered()
        return f"{sum(codes.values())} passwords: {codes}"

    def garbage(self):
        """Random bytes: at the beginning, after a password, and as the bodies of messages."""
        kept = []
        for at in range(GARBAGE):
            raw = socket.create_connection(("127.0.0.1", (self.pg, self.http)[at % 2]), timeout=60)
            send(raw, self.random.randbytes(self.random.randrange(1, 4_000)))
            kept.append(raw)
        begun = [Pg(self.pg).begun() for _ in range(100)]
        for at, client in enumerate(begun):
            for _ in range(20):
                body = self.random.randbytes(self.random.randrange(200))
                kind = self.random.choice(b"QPBEDSCHFdcfX")
                send(client.socket, message(bytes([kind]), body) if at % 2 else body)
        self.are_answered()
        close(kept)
        close(client.socket for client in begun)
        return f"{len(kept)} connections, and {len(begun)} that were let in"

    def all(self):
        for attack in (self.connections, self.half_requests, self.slow_readers, self.giants, self.passwords,
                       self.garbage):
            began = time.monotonic()
            done = attack()
            memory = self.server.memory_max() / MIB
            took = time.monotonic() - began
            print(f"{attack.__name__}: {done}; {took:.1f} s;"
                  f" the server's most memory so far: {memory:.0f} MiB", flush=True)


def send(raw, data):
    """Sends what the server takes: it may close the connection."""
    try:
        raw.sendall(data)
    except OSError:
        pass


def close(sockets):
    for raw in sockets:
        raw.close()


def job(client):
    """The process of the job, and how often it was started."""
    name, _, status, process, starts, *_ = client.rows("SHOW JOBS")[0]
    assert (name, status) == ("busy", "running"), f"{name} is {status}"
    return int(process), int(starts)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("program")
    arguments.add_argument("--seed", type=int, default=1)
    arguments = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "passwords"), "w") as file:
            file.write("ada:secret\n")
        program = os.path.abspath(arguments.program)
        server = serving.Server(program, folder, "--passwords", "passwords", http=True)
        try:
            attack(server, arguments.seed)
        except BaseException:
            print(*server.log[-20:], sep="\n")
            raise
        finally:
            is_alive = server.process.poll() is None
            ended_well = is_alive and server.stop()
        assert ended_well, "the server has not ended well"


def attack(server, seed):
    client = Pg(server.pg_port).begun()
    for statement in STATEMENTS:
        client.rows(statement)
    serving.wait_for("the view has rows", lambda: client.rows("SELECT ip FROM busy LIMIT 1"))
    began, before = job(client), server.memory_max()
    attacks = Attacks(server, seed)
    attacks.are_answered()
    attacks.all()
    print("honest clients:")
    for honest in attacks.honest:
        honest.end()
    print(f"  HTTP has turned one away {attacks.turned_away} times")
    assert job(client) == began, "the job was started again"
    taken, bound = server.memory_max() - before, memory_bound()
    jobs = serving.memory_max(began[0])
    after = serving.memory_max(server.process.pid, "VmRSS")
    print(f"the server: {before / MIB:.0f} MiB before, {server.memory_max() / MIB:.0f} MiB at most,"
          f" {after / MIB:.0f} MiB after; it has taken"
          f" {taken / MIB:.0f} MiB of {bound / MIB:.0f} MiB that it may;"
          f" the job: {jobs / MIB:.0f} MiB at most")
    assert taken < bound, f"the server has taken {taken} bytes"


if __name__ == "__main__":
    main()
