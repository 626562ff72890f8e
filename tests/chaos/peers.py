"""Rounds with misbehaving peers over TCP: they send invalid rows, reset, stall, or read nothing."""

import collections
import signal
import socket
import struct
import threading
import time

import queries
from process import Failed, Run, sleep


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Round:
    """One seed: a listening source, several peers, and a file. Each row is there at most once, and only if it
    was sent."""

    def __init__(self, rng, folder, program, tried, _only):
        self.rng, self.folder, self.program, self.tried = rng, folder, program, tried
        self.notes, self.runs = [], []
        self.sent = collections.Counter()
        self.acts = collections.Counter()

    def run(self):
        port = free_port()
        is_folder = self.rng.random() < 0.5
        path = self.folder / ("out" if is_folder else "out.csv")
        self.text = (
            "CREATE TABLE events (id BIGINT, k STRING) WITH ('connector' = 'tcp', 'mode' = 'listen', "
            f"'address' = '127.0.0.1:{port}', 'format' = 'csv');\n"
            f"CREATE TABLE out (id BIGINT, k STRING) WITH ('connector' = 'file', 'path' = '{path}', "
            "'format' = 'csv');\nINSERT INTO out SELECT id, k FROM events;\n"
        )
        (self.folder / "query.sql").write_text(self.text)
        for number in range(self.rng.randint(1, 3)):
            settings = queries.settings(self.rng)
            command = ["run", "query.sql", "--state", "state", *settings]
            run = Run(self.program, command, self.folder, title=" ".join(command))
            self.runs.append(run)
            self.notes.append(run.title)
            peers = [threading.Thread(target=self.peer, args=(port, number * 10 + nth, self.rng.random()))
                     for nth in range(self.rng.randint(1, 4))]
            for peer in peers:
                peer.start()
            when = sleep(self.rng, 2.5)
            stop = self.rng.choice([signal.SIGTERM, signal.SIGTERM, signal.SIGKILL])
            run.harmed += [stop]
            run.send(stop)
            outcome = run.finish()
            for peer in peers:
                peer.join()
            self.notes.append(f"  {when}: {outcome}\n{run.said()}")
            self.tried[("hostile peers", outcome)] += 1
            if outcome not in ("saved", "killed"):
                raise Failed(f"a query with hostile peers: {outcome}\n{run.said()}")
            self.compare(path)

    def peer(self, port, number, chance):
        """One peer: it has a seed of its own, because peers run concurrently."""
        rng = type(self.rng)(f"{number} {chance}")
        until = time.monotonic() + 4
        while time.monotonic() < until:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=2) as peer:
                    peer.settimeout(2)
                    self.misbehave(rng, peer, number)
                    return
            except ConnectionRefusedError:
                time.sleep(0.02)
            except OSError:
                return

    def misbehave(self, rng, peer, number):
        for _ in range(rng.randint(1, 12)):
            act = rng.choice(["rows", "rows", "garbage", "half", "long", "wait", "reset", "zeros", "quotes"])
            self.acts[act] += 1
            if act == "rows":
                ids = [rng.randrange(1 << 60) for _ in range(rng.choice([1, 10, 500]))]
                self.sent.update((str(each), f"p{number}") for each in ids)
                peer.sendall("".join(f"{each},p{number}\n" for each in ids).encode())
            elif act == "garbage":
                peer.sendall(rng.randbytes(rng.choice([1, 100, 5000])) + b"\n")
            elif act == "half":
                peer.sendall(b"17,")
                return
            elif act == "long":
                peer.sendall(b"x" * rng.choice([200_000, 3_000_000]) + b"\n")
            elif act == "wait":
                time.sleep(rng.random() * 0.5)
            elif act == "zeros":
                peer.sendall(b"\0" * 1000 + b"\n\r\n\n")
            elif act == "quotes":
                peer.sendall(b'"open, and never closed\n\n"\n')
            else:
                # Closed with a reset.
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return

    def compare(self, path):
        files = sorted(path.iterdir()) if path.is_dir() else [path] if path.exists() else []
        found = collections.Counter()
        for file in files:
            if not file.name.startswith("."):
                found.update(tuple(line.split(",")) for line in file.read_text().splitlines() if ",p" in line)
        many = found - self.sent
        if many:
            raise Failed(f"{path}: rows that no peer sent, or duplicates: {list(many)[:3]}")

    def story(self):
        return "\n".join([self.text, str(dict(self.acts)), *self.notes])

    def end(self):
        for run in self.runs:
            run.end()
