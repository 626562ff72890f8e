"""What the tests of a server's client share: a server for each file of tests, and a table for each test."""

import sys
import unittest
import warnings
from unittest import mock

import slackwater
from served import Served, needs_program, program


class Shared:
    """The server of a file of tests."""

    served: Served


def begin():
    """Starts the server; a `setUpModule`."""
    # Notices of the server, such as that a view keeps every key.
    warnings.simplefilter("ignore", UserWarning)
    if program():
        Shared.served = Served()


def end():
    """Stops the server; a `tearDownModule`."""
    if program():
        Shared.served.stop()


def without_pyarrow():
    return mock.patch.dict(sys.modules, {"pyarrow": None, "pyarrow.ipc": None})


@needs_program
class Server(unittest.TestCase):
    """Each test has a table and a view of its own."""

    def setUp(self):
        self.session = slackwater.connect(Shared.served.url)
        self.addCleanup(self.session.close)
        self.name = self.id().rsplit(".", 1)[1]

    def counted(self, session=None, **options):
        """A table, and a view that counts its rows by key."""
        session = session or self.session
        table = session.table(f"t_{self.name}", {"k": "STRING", "n": "BIGINT"}, **options)
        view = f"v_{self.name}"
        session.sql(
            f"CREATE MATERIALIZED VIEW {view} AS "
            f"SELECT k, COUNT(*) AS n, SUM(n) AS s FROM t_{self.name} GROUP BY k"
        )
        self.addCleanup(lambda: Shared.served.process.poll() is None and session.sql(
            f"DROP TABLE t_{self.name} CASCADE"))  # fmt: skip
        return table, view
