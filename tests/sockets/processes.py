"""Cases: descriptors, processes, readiness."""

import errno
import fcntl
import os
import random
import select
import signal
import socket
import sys
import threading
import time

from ends import WAIT_S, child, code, error, pair, poll_of, ready, receive, until_error


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


def order_of_arrival():
    chosen, pairs = random.Random(5), [pair() for _ in range(6)]
    places = {one.fileno(): place for place, (one, _) in enumerate(pairs)}
    with select.epoll() as poller:
        for one, _ in pairs:
            poller.register(one, select.EPOLLIN)
        for turn in range(11):
            order = chosen.sample(range(6), 4)
            for place in order:
                pairs[place][1].send(b"x")
            said = [[places[fd] for fd, _ in poller.poll(5, most)] for most in (2, 2, 1, 10)]
            # The first events of new registrations come in another order from the kernel.
            yield order, said if turn > 0 else len(said)
            for place in order:
                yield pairs[place][0].recv(10)
            # The kernel forgets the order of those that are no longer ready when it is asked again.
            yield poller.poll(0)


def epoll_of_a_poll():
    one, other = pair()
    with select.epoll() as poller:
        poller.register(one, select.EPOLLIN)
        yield select.select([poller], [], [], 0)[0] == []
        threading.Timer(0.02, other.send, [b"x"]).start()
        yield select.select([poller], [], [], 5)[0] == [poller], one.recv(1)


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
