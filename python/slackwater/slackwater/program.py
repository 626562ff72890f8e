"""The installed program, on whatever node this runs: found, and asked for a key."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess

from .problem import Problem

# The program answers at once; a node that is starved of memory may take long.
KEY_PATIENCE_S = 30


def find(binary: str, node: str) -> str:
    """The path of the program on this node, which messages call `node`."""
    found = shutil.which(binary)
    if found is None:
        where = "in PATH" if os.sep not in binary else "that can be executed"
        raise Problem(
            f"{node}: there is no program '{binary}' {where}",
            "install slackwater there, the same build as on the other nodes, or name its path: --binary PATH",
        )
    return os.path.abspath(found)


def generate_key(program: str) -> str:
    """A new key for the hosts of one query."""
    try:
        made = subprocess.run(
            [program, "key"], capture_output=True, text=True, timeout=KEY_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Problem(f"{program} key: {error}", "check that this is the program slackwater") from error
    if made.returncode != 0 or not made.stdout.strip():
        said = made.stderr.strip() or f"it ended with {made.returncode}"
        raise Problem(f"{program} key: {said}", "check that this is the program slackwater")
    return made.stdout


def write_secret(folder: str, key: str) -> str:
    """Writes a key so that no other user can read it; returns the file's path."""
    path = os.path.join(folder, "cluster.key")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key)
    return path


def free_port(address: str) -> int:
    """A port of this node that nobody listens at."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        return int(listener.getsockname()[1])


def at(address: str, port: int) -> str:
    """An address with its port."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
