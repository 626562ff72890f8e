"""What the tests of the engine share: they are skipped where its module was not built."""

from __future__ import annotations

import importlib.util
import os
import time
import unittest

try:
    IS_BUILT = importlib.util.find_spec("slackwater._slackwater") is not None
except ImportError:
    IS_BUILT = False

needs_engine = unittest.skipUnless(IS_BUILT, "the engine's module is not built: make python")


def needs(*modules: str):
    """Skips a test where one of these packages is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return unittest.skipIf(bool(missing), f"not installed: {', '.join(missing)}")


def declare_visits(session, **options: object) -> None:
    """Declares a table of generated visits."""
    given = {"connector": "datagen", "generator": "uservisits", **options}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    columns = "ip STRING, page_id BIGINT, ad_revenue DOUBLE, country STRING"
    session.sql(f"CREATE TABLE visits ({columns}) WITH ({listed})")


def numbers(session, read, partitions: int = 1, **options: object):
    """Declares a table of numbers that a generator fills; a query that reads it."""
    session.source("numbers", {"n": "BIGINT", "s": "STRING"}, partitions=partitions, **options)(read)
    return session.sql("SELECT n, s FROM numbers")


def rows_read(run) -> int:
    """The rows that a query has read so far."""
    sources = (run.progress() or {}).get("sources")
    return sources[0]["rows"] if sources else 0


def threads() -> int:
    """The threads of this process, those of the engine included."""
    return len(os.listdir("/proc/self/task"))


def wait_until(holds, seconds: float = 10.0) -> bool:
    """Whether something holds within so many seconds."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
