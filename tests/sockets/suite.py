"""What programs do with TCP sockets, and what comes of it.

Prints a line for each case. It is run over plain TCP and under the library of `slackwater sockets`, and the
outputs must be equal: no line says anything about time. `suite.py CASE …` runs only those.
"""

import array
import errno
import fcntl
import hashlib
import os
import random
import select
import signal
import socket
import struct
import sys
import tempfile
import termios
import threading
import time

WAIT_S = 20


def pair(move=True):
    """Both ends of a connection; `move` exchanges bytes, after which both directions may be moved."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    one.settimeout(WAIT_S)
    one.setblocking(True)
    if move:
        for _ in range(3):
            one.sendall(b"to")
            assert receive(other, 2) == b"to"
            other.sendall(b"fro")
            assert receive(one, 3) == b"fro"
    return one, other


def receive(end, bytes_wanted):
    """Exactly so many bytes, fewer at the end of the stream."""
    got = b""
    while len(got) < bytes_wanted:
        more = end.recv(bytes_wanted - len(got))
        if not more:
            break
        got += more
    return got


def error(action, *arguments):
    """The name of the error of a call, or its result."""
    try:
        return action(*arguments)
    except OSError as failed:
        return errno.errorcode.get(failed.errno, str(failed))


def until_error(end):
    """Writes until it fails."""
    end.setblocking(True)
    for _ in range(2000):
        result = error(end.send, b"x" * 100)
        if isinstance(result, str):
            return "ended" if result in ("EPIPE", "ECONNRESET") else result
        time.sleep(0.001)
    return "no error"


def child(action):
    """Runs an action in a child; its number."""
    number = os.fork()
    if number == 0:
        try:
            action()
            os._exit(0)
        except BaseException as failed:  # pylint: disable=broad-except
            print("child:", repr(failed), flush=True)
            os._exit(1)
    return number


def code(number):
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


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


def arrived(end):
    """Waits until something can be read."""
    select.select([end], [], [], WAIT_S)


def receive_flags(end, count, flags):
    arrived(end)
    return end.recv(count, flags)


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


def duplicates():
    one, other = pair()
    copy = os.dup(one.fileno())
    one.close()
    os.write(copy, b"of the copy")
    yield receive(other, 11)
    spare = os.open("/dev/null", os.O_RDONLY)
    os.dup2(copy, spare)
    os.close(copy)
    os.write(spare, b"of the second")
    yield receive(other, 13)
    high = fcntl.fcntl(spare, fcntl.F_DUPFD, 200)
    os.close(spare)
    other.sendall(b"back")
    yield os.read(high, 10), high >= 200
    os.close(high)
    yield other.recv(1)


def fork_server():
    listener = socket.create_server(("127.0.0.1", 0))
    def serve():
        for _ in range(3):
            end, _ = listener.accept()
            def echo(end=end):
                listener.close()
                while data := end.recv(1000):
                    end.sendall(data.upper())
            number = child(echo)
            end.close()
            code(number)
    server = child(serve)
    for _ in range(3):
        end = socket.create_connection(listener.getsockname())
        for word in (b"one", b"two", b"three"):
            end.sendall(word)
            yield receive(end, len(word))
        end.shutdown(socket.SHUT_WR)
        yield end.recv(1)
    yield code(server)


def shared_after_fork():
    one, other = pair()
    def speak():
        one.sendall(b"from the child")
        assert receive(one, 5) == b"child"
    number = child(speak)
    yield receive(other, 14)
    other.sendall(b"child")
    yield code(number)
    one.sendall(b"from the parent")
    yield receive(other, 15)
    other.sendall(b"parent")
    yield receive(one, 6)
    number = child(other.close)
    code(number)
    other.sendall(b"still open")
    yield receive(one, 10)


def executed():
    one, other = pair()
    one.sendall(b"before")
    script = ("import os,sys; fd=int(sys.argv[1]); print(os.read(fd, 6), flush=True);"
              "os.write(fd, b'hello'); print(os.read(fd, 100), flush=True)")
    def become():
        os.set_inheritable(other.fileno(), True)
        os.execv(sys.executable, [sys.executable, "-c", script, str(other.fileno())])
    sys.stdout.flush()
    number = child(become)
    yield receive(one, 5)
    one.sendall(b"after")
    yield code(number)


def passed():
    one, other = pair()
    here, there = socket.socketpair(socket.AF_UNIX)
    one.sendall(b"for whoever has it")
    socket.send_fds(here, [b"x"], [other.fileno()])
    other.close()
    _, fds, _, _ = socket.recv_fds(there, 1, 1)
    other = socket.socket(fileno=fds[0])
    yield receive(other, 18)
    other.sendall(b"thanks")
    yield receive(one, 6)


def nonblocking_poll():
    for name in ("select", "poll", "epoll"):
        one, other = pair()
        one.setblocking(False)
        other.setblocking(False)
        yield name, error(one.recv, 1), ready(name, one, "r", 0), ready(name, one, "w", 0)
        other.send(b"x")
        yield ready(name, one, "r", 5), one.recv(5), ready(name, one, "r", 0)
        # Until it is full, and empty again.
        sent = 0
        while not isinstance(result := error(one.send, b"y" * 50000), str):
            sent += result
        yield result, ready(name, one, "w", 0)
        thread = threading.Timer(0.02, lambda: (other.setblocking(True), receive(other, sent)))
        thread.start()
        yield ready(name, one, "w", 5), ready(name, one, "r", 0)
        thread.join()
        other.close()
        yield ready(name, one, "r", 5), one.recv(1)


def ready(name, end, what, seconds):
    """Whether `end` is ready within a time."""
    if name == "select":
        sets = select.select([end] if what == "r" else [], [end] if what == "w" else [], [], seconds)
        return bool(sets[0] or sets[1])
    if name == "poll":
        poller = select.poll()
        poller.register(end, select.POLLIN if what == "r" else select.POLLOUT)
        return bool(poller.poll(seconds * 1000))
    with select.epoll() as poller:
        poller.register(end, select.EPOLLIN if what == "r" else select.EPOLLOUT)
        return bool(poller.poll(seconds))


def edge_triggered():
    one, other = pair()
    one.setblocking(False)
    with select.epoll() as poller:
        poller.register(one, select.EPOLLIN | select.EPOLLET)
        for word in (b"first", b"second"):
            other.sendall(word)
            yield [event for _, event in poller.poll(5)], poller.poll(0)
            yield one.recv(2)
            yield poller.poll(0)
        yield one.recv(100)
        poller.modify(one, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        yield [event for _, event in poller.poll(5)], poller.poll(0)
        poller.modify(one, select.EPOLLIN | select.EPOLLONESHOT)
        other.sendall(b"x")
        yield [event for _, event in poller.poll(5)], poller.poll(0)
        poller.modify(one, select.EPOLLIN | select.EPOLLONESHOT)
        yield [event for _, event in poller.poll(5)], poller.poll(0)
        poller.modify(one, select.EPOLLIN | select.EPOLLRDHUP)
        yield one.recv(10)
        other.close()
        yield [event for _, event in poller.poll(5)], one.recv(1)
        poller.unregister(one)
        yield poller.poll(0)


def two_of_an_epoll():
    pairs = [pair() for _ in range(5)]
    with select.epoll() as poller:
        for one, _ in pairs:
            poller.register(one, select.EPOLLIN)
        for turn in range(20):
            one, other = pairs[turn % 5]
            other.send(b"%d" % turn)
            events = poller.poll(5)
            yield events == [(one.fileno(), select.EPOLLIN)], one.recv(10)


def epoll_of_a_poll():
    one, other = pair()
    with select.epoll() as poller:
        poller.register(one, select.EPOLLIN)
        yield select.select([poller], [], [], 0)[0] == []
        threading.Timer(0.02, other.send, [b"x"]).start()
        yield select.select([poller], [], [], 5)[0] == [poller], one.recv(1)


def unread():
    one, other = pair()
    one.sendall(b"nobody reads this")
    arrived(other)
    other.sendall(b"last words")
    other.close()
    yield one.recv(100), error(one.recv, 100), error(one.recv, 100)


def pipe_signal():
    one, other = pair()
    other.close()
    seen = []
    before = signal.signal(signal.SIGPIPE, lambda *_: seen.append("SIGPIPE"))
    yield until_error(one), bool(seen)
    signal.signal(signal.SIGPIPE, before)


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    end = socket.socket()
    yield error(end.connect, address)
    end = socket.socket()
    end.setblocking(False)
    yield error(end.connect, address)
    select.select([], [end], [], 5)
    yield end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED


def nonblocking_connect():
    listener = socket.create_server(("127.0.0.1", 0))
    end = socket.socket()
    end.setblocking(False)
    end.connect_ex(listener.getsockname())
    with select.epoll() as poller:
        poller.register(end, select.EPOLLOUT)
        yield [event for _, event in poller.poll(5)]
        other, _ = listener.accept()
        poller.modify(end, select.EPOLLIN)
        for word in (b"one", b"two", b"three"):
            other.sendall(word)
            yield [event for _, event in poller.poll(5)], end.recv(100)
            end.sendall(word)
            yield receive(other, len(word))


def killed():
    for silent in (False, True):
        listener = socket.create_server(("127.0.0.1", 0))
        def hang(listener=listener):
            end, _ = listener.accept()
            for _ in range(3):
                end.sendall(receive(end, 2))
            time.sleep(WAIT_S)
        number = child(hang)
        end = socket.create_connection(listener.getsockname())
        listener.close()
        for _ in range(3):
            end.sendall(b"hi")
            assert receive(end, 2) == b"hi"
        threading.Timer(0.05, os.kill, [number, signal.SIGKILL]).start()
        if silent:
            yield [event & select.POLLIN for _, event in poll_of(end)]
        yield end.recv(1), code(number), until_error(end)


def poll_of(end):
    poller = select.poll()
    poller.register(end, select.POLLIN)
    return poller.poll(5000)


def killed_while_full():
    listener = socket.create_server(("127.0.0.1", 0))
    def hang():
        end, _ = listener.accept()
        receive(end, 2)
        end.sendall(b"go")
        time.sleep(WAIT_S)
    number = child(hang)
    end = socket.create_connection(listener.getsockname())
    end.sendall(b"hi")
    receive(end, 2)
    threading.Timer(0.05, os.kill, [number, signal.SIGKILL]).start()
    result = 0
    while not isinstance(result, str):
        result = error(end.send, b"z" * 100000)
    yield result in ("EPIPE", "ECONNRESET"), code(number)


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


def many():
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    ends = []
    for number in range(200):
        end = socket.create_connection(listener.getsockname())
        end.sendall(b"%03d" % number)
        ends.append((end, listener.accept()[0]))
    total = 0
    for turn in range(5):
        for number, (end, other) in enumerate(ends):
            total += int(receive(other, 3))
            other.sendall(b"%03d" % number)
            assert receive(end, 3) == b"%03d" % number
            end.sendall(b"%03d" % number)
    yield total


def threads():
    one, other = pair()
    writers = [threading.Thread(target=one.sendall, args=[bytes([65 + index]) * 100_000]) for index in range(4)]
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


CASES = [
    half_close, half_close_first, shut_both, receive_timeout, send_timeout, peek, wait_for_all, discarded,
    urgent, urgent_inline, vectors, files, duplicates, fork_server, shared_after_fork, executed, passed,
    nonblocking_poll, edge_triggered, two_of_an_epoll, epoll_of_a_poll, unread, pipe_signal, closed_port,
    nonblocking_connect, killed, killed_while_full, interrupted, many, threads, counts, ipv6, server_speaks,
    random_operations,
]


def main():
    wanted = sys.argv[1:]
    for case in CASES:
        if wanted and case.__name__ not in wanted:
            continue
        signal.alarm(WAIT_S * 3)
        try:
            outcome = list(case())
        except Exception as failed:  # pylint: disable=broad-except
            outcome = [f"{type(failed).__name__}: {failed}"]
        signal.alarm(0)
        print(case.__name__, *outcome, flush=True)


if __name__ == "__main__":
    main()
