"""Ends of connections, for the cases of the suite."""

import errno
import os
import select
import socket
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


def arrived(end):
    """Waits until something can be read."""
    select.select([end], [], [], WAIT_S)


def receive_flags(end, count, flags):
    arrived(end)
    return end.recv(count, flags)


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


def poll_of(end):
    poller = select.poll()
    poller.register(end, select.POLLIN)
    return poller.poll(5000)
