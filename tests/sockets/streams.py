"""Cases: bytes, their order and their end."""

import array
import fcntl
import hashlib
import os
import random
import select
import signal
import socket
import struct
import tempfile
import termios
import threading
import time

from ends import WAIT_S, arrived, error, pair, receive, receive_flags, until_error


def half_close():
    one, other = pair()
    one.sendall(b"question")
    one.shutdown(socket.SHUT_WR)
    yield receive(other, 100), other.recv(1)
    other.sendall(b"answer")
    yield one.recv(100), error(one.send, b"x")
    other.close()
    yield one.recv(1)


def half_close_first():
    one, other = pair(move=False)
    one.sendall(b"all")
    one.shutdown(socket.SHUT_WR)
    yield receive(other, 10)
    for _ in range(5):
        other.sendall(b"part")
    other.close()
    yield receive(one, 100), one.recv(1)


def shut_both():
    one, other = pair()
    one.shutdown(socket.SHUT_RDWR)
    yield one.recv(1), error(one.send, b"x"), other.recv(1)
    one, other = pair()
    one.shutdown(socket.SHUT_RD)
    yield one.recv(1)
    other.close()


def receive_timeout():
    one, other = pair()
    for ms in (1, 30):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, ms * 1000))
        start = time.monotonic()
        result = error(one.recv, 1)
        yield result, time.monotonic() - start >= ms / 1000
    other.sendall(b"x")
    yield one.recv(1)


def send_timeout():
    one, other = pair()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 30000))
    sent, piece, result = 0, b"x" * 65536, 0
    while not isinstance(result, str):
        result = error(one.send, piece)
        sent += result if isinstance(result, int) else 0
    yield result, len(receive(other, sent)) == sent


def peek():
    one, other = pair()
    one.sendall(b"abcdef")
    yield receive_flags(other, 3, socket.MSG_PEEK), receive_flags(other, 100, socket.MSG_PEEK)
    yield receive(other, 6), error(other.recv, 1, socket.MSG_DONTWAIT | socket.MSG_PEEK)


def wait_for_all():
    one, other = pair()
    def slowly():
        for _ in range(10):
            one.sendall(b"0123456789")
            time.sleep(0.002)
    thread = threading.Thread(target=slowly)
    thread.start()
    yield other.recv(50, socket.MSG_WAITALL | socket.MSG_PEEK)
    yield other.recv(100, socket.MSG_WAITALL)
    thread.join()
    one.sendall(b"short")
    one.close()
    yield other.recv(100, socket.MSG_WAITALL)


def discarded():
    one, other = pair()
    one.sendall(b"abcdef")
    arrived(other)
    yield len(other.recv(3, socket.MSG_TRUNC)), other.recv(10)


def urgent():
    for move in (False, True):
        one, other = pair(move)
        one.sendall(b"before")
        one.send(b"!", socket.MSG_OOB)
        one.sendall(b"after")
        poller = select.poll()
        poller.register(other, select.POLLPRI)
        yield [event for _, event in poller.poll(WAIT_S * 1000)] == [select.POLLPRI]
        yield other.recv(1, socket.MSG_OOB), other.recv(100), receive(other, 5)
        one.sendall(b"and on")
        yield receive(other, 6)


def urgent_inline():
    one, other = pair()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    one.sendall(b"before")
    one.send(b"!", socket.MSG_OOB)
    one.sendall(b"after")
    yield receive(other, 6), receive(other, 6)


def vectors():
    one, other = pair()
    yield os.writev(one.fileno(), [b"ab", b"", b"cde"])
    arrived(other)
    places = [bytearray(2), bytearray(2), bytearray(5)]
    yield os.readv(other.fileno(), places), places
    yield one.sendmsg([b"x", b"yz"])
    arrived(other)
    yield other.recvmsg(10), other.getsockname() == one.getpeername()
    one.send(b"named")
    yield other.recvfrom(10)


def files():
    one, other = pair()
    with tempfile.TemporaryFile() as file:
        data = random.Random(1).randbytes(1_000_000)
        file.write(data)
        file.flush()
        def send():
            done = 10
            while done < len(data):
                sent = os.sendfile(one.fileno(), file.fileno(), done, len(data))
                if sent == 0:
                    break
                done += sent
            yield_to.append((done, os.sendfile(one.fileno(), file.fileno(), done, 10)))
            one.close()
        yield_to = []
        thread = threading.Thread(target=send)
        thread.start()
        yield receive(other, 2_000_000) == data[10:]
        thread.join()
        yield yield_to


def unread():
    one, other = pair()
    one.sendall(b"nobody reads this")
    arrived(other)
    other.sendall(b"last words")
    other.close()
    yield one.recv(100), error(one.recv, 100), error(one.recv, 100)


def sends_after_close():
    """The first is taken, since only its answer says that nobody is there."""
    for how in ("send", "sendfile"):
        one, other = pair()
        other.close()
        select.select([one], [], [], WAIT_S)
        with tempfile.TemporaryFile() as file:
            file.write(b"x" * 5000)
            file.flush()
            for _ in range(3):
                if how == "send":
                    yield error(one.send, b"x" * 100)
                else:
                    yield error(os.sendfile, one.fileno(), file.fileno(), 0, 100)
                time.sleep(0.05)
        yield error(one.recv, 10)


def pipe_signal():
    one, other = pair()
    other.close()
    seen = []
    before = signal.signal(signal.SIGPIPE, lambda *_: seen.append("SIGPIPE"))
    yield until_error(one), bool(seen)
    signal.signal(signal.SIGPIPE, before)


def interrupted():
    one, other = pair()
    seen = []
    def handler(*_):
        seen.append("signal")
        if len(seen) == 2:
            raise InterruptedError
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.02)
    try:
        one.recv(1)
    except InterruptedError:
        yield "interrupted", seen
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    other.send(b"x")
    yield one.recv(1)


def threads():
    one, other = pair()
    writers = [threading.Thread(target=one.sendall, args=[bytes([65 + index]) * 100_000])
               for index in range(4)]
    for writer in writers:
        writer.start()
    got = receive(other, 400_000)
    for writer in writers:
        writer.join()
    yield sorted((chr(byte), got.count(byte)) for byte in set(got))
    got, lock = [], threading.Lock()
    def read():
        while data := other.recv(777):
            with lock:
                got.append(data)
    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    data = random.Random(2).randbytes(300_000)
    one.sendall(data)
    one.close()
    for reader in readers:
        reader.join()
    yield sum(map(len, got)), sorted(b"".join(got)) == sorted(data)


def counts():
    one, other = pair()
    other.send(b"12345")
    arrived(one)
    count = array.array("i", [0])
    fcntl.ioctl(one, termios.FIONREAD, count)
    yield count[0], one.recv(2)
    fcntl.ioctl(one, termios.FIONREAD, count)
    yield count[0]
    yield one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    yield one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def ipv6():
    if not socket.has_dualstack_ipv6():
        return
    listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    for host in ("127.0.0.1", "::1"):
        try:
            end = socket.create_connection((host, listener.getsockname()[1]))
        except OSError:
            continue
        other, _ = listener.accept()
        for _ in range(3):
            end.sendall(b"x")
            other.sendall(receive(other, 1))
            yield receive(end, 1)


def server_speaks():
    listener = socket.create_server(("127.0.0.1", 0))
    end = socket.create_connection(listener.getsockname())
    other, _ = listener.accept()
    sent = random.Random(3).randbytes(200_000)
    def speak():
        for start in range(0, len(sent), 1000):
            other.sendall(sent[start:start + 1000])
        other.close()
    thread = threading.Thread(target=speak)
    thread.start()
    yield receive(end, 1_000_000) == sent
    thread.join()


def random_operations():
    """Both ends send and receive at random, in pieces of random sizes, blocking or not; hashes must agree."""
    for seed in range(int(os.environ.get("SEEDS", "12"))):
        one, other = pair(move=seed % 2 == 0)
        results = []
        def run(end, seed):
            chance = random.Random(seed)
            most = chance.choice([10, 1000, 100_000])
            out = chance.randbytes(chance.choice([100, 50_000, 1_500_000 if most > 10 else 20_000]))
            sent, done, got = 0, False, hashlib.sha256()
            received = 0
            while not done or sent < len(out):
                sends = sent < len(out)
                _, writable, _ = select.select([end], [end] if sends else [], [], WAIT_S)
                if sends and writable and chance.random() < 0.7:
                    end.setblocking(False)
                    result = error(end.send, out[sent:sent + chance.randint(1, most)])
                    sent += result if isinstance(result, int) else 0
                    if sent == len(out):
                        end.shutdown(socket.SHUT_WR)
                if chance.random() < 0.1 and not done:
                    error(end.recv, chance.randint(1, most), socket.MSG_PEEK | socket.MSG_DONTWAIT)
                if not done:
                    end.setblocking(False)
                    try:
                        data = end.recv(chance.randint(1, most))
                        done = not data
                        got.update(data)
                        received += len(data)
                    except BlockingIOError:
                        pass
            results.append((hashlib.sha256(out).hexdigest(), got.hexdigest(), received))
        runs = [threading.Thread(target=run, args=arguments)
                for arguments in ((one, seed * 2), (other, seed * 2 + 1))]
        for thread in runs:
            thread.start()
        for thread in runs:
            thread.join(WAIT_S * 3)
        ok = len(results) == 2 and results[0][0] == results[1][1] and results[0][1] == results[1][0]
        yield seed, "equal" if ok else results
