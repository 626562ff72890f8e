"""A program that is kept by a keeper (`keeper.py`), as whoever has started it sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Callable, List

from . import program

# An orphan that has lost its query may find it again within this time.
ORPHAN_PATIENCE_S = 10.0

KEEPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keeper.py")


@dataclass(frozen=True)
class Ended:
    """How a program ended, and what it said last."""

    code: int
    said: str


class Kept:
    """A program with a folder of its own, which has its secret."""

    def __init__(self, command: Callable[[str, str], List[str]], key: str, has_mark: bool) -> None:
        """`command` makes the command of the path of the secret and that of the mark."""
        folder = tempfile.mkdtemp(prefix="slackwater-")
        secret, mark = program.write_secret(folder, key), os.path.join(folder, "joined")
        order = {
            "command": command(secret, mark),
            "folder": folder,
            "mark": mark if has_mark else None,
            "secret": secret,
            "orphan_patience_s": ORPHAN_PATIENCE_S,
        }
        self._keeper = subprocess.Popen(
            [sys.executable, "-S", KEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(json.dumps(order).encode() + b"\n")
        self._keeper.stdin.flush()
        # The process that was started leaves at once; the keeper is its child.
        self._keeper.wait()

    def stop(self) -> None:
        """Tells the program to stop: it leaves its query. The second time it is killed."""
        assert self._keeper.stdin is not None
        try:
            self._keeper.stdin.write(b"stop\n")
            self._keeper.stdin.flush()
        except (OSError, ValueError):
            # It has ended.
            pass

    def wait(self) -> Ended:
        """Waits for the program's end."""
        assert self._keeper.stdout is not None
        line = self._keeper.stdout.readline()
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                pipe.close()
        if not line:
            return Ended(-9, "its keeper was killed")
        said = json.loads(line)
        return Ended(said["code"], said["said"])
