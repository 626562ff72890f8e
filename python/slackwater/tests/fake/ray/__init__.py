"""Stands for Ray in tests: actors are objects of this process, whose methods run in threads."""

import threading

from . import autoscaler, exceptions, util  # noqa: F401

# A node's id is far longer than what agents are named after.
NODES = [f"{number:012x}".ljust(56, "0") for number in (1, 2, 3)]
STARTED = []


class Reference:
    def __init__(self, function, arguments):
        self.result, self.error, self.is_done = None, None, threading.Event()
        threading.Thread(target=self._run, args=(function, arguments), daemon=True).start()

    def _run(self, function, arguments):
        arguments = [get(one) if isinstance(one, Reference) else one for one in arguments]
        try:
            self.result = function(*arguments)
        except Exception as error:  # pylint: disable=broad-except
            self.error = exceptions.RayTaskError(error)
        self.is_done.set()


class Method:
    def __init__(self, function):
        self.function = function

    def remote(self, *arguments):
        return Reference(self.function, arguments)


class Actor:
    def __init__(self, made):
        self.made = made

    def __getattr__(self, name):
        return Method(getattr(self.made, name))


class Class:
    def __init__(self, kind, more=None):
        self.kind, self.more = kind, more or {}

    def options(self, **more):
        return Class(self.kind, more)

    def remote(self, *arguments):
        STARTED.append(self.more)
        return Actor(self.kind(*arguments))


def init(address, **_):
    if address == "nowhere":
        raise ConnectionError("Could not find any running Ray instance.\nmore")


def nodes():
    return [{"NodeID": node, "NodeManagerAddress": "127.0.0.1", "Alive": True, "Resources": {"CPU": 2.0}}
            for node in NODES]


def put(value):
    return Reference(lambda: value, ())


def wait(references, timeout):
    assert timeout == 0
    done = [one for one in references if one.is_done.is_set()]
    return done, [one for one in references if one not in done]


def get(reference):
    reference.is_done.wait(60)
    if reference.error:
        raise reference.error
    return reference.result


def remote(kind):
    return Class(kind)
