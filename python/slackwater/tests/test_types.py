"""The types that the package declares, if mypy is installed."""

import os
import subprocess
import sys
import tempfile
import unittest

import slackwater
from engine import needs

PACKAGE = os.path.dirname(slackwater.__file__)

# What users import. The launcher for Ray runs with types of its own.
MODULES = ("__init__", "base", "convert", "errors", "functions", "report", "session")

USE = """
import slackwater

def both(session: slackwater.BaseSession) -> list[dict[str, object]]:
    query = session.sql("SELECT 1 AS n")
    assert query is not None
    names = [batch.column_names for batch in query]
    table = session.table("t", {"n": "BIGINT"})
    pushed: int = table.push([(1,)])
    return query.to_pylist()

both(slackwater.Session())
remote = slackwater.connect("http://127.0.0.1:7480", token="x")
both(remote)
job: slackwater.Job | None = remote.execute("INSERT INTO t SELECT n FROM u")
"""


class Types(unittest.TestCase):
    @needs("mypy")
    def test_the_package_and_a_use_of_it_are_typed(self):
        paths = [os.path.join(PACKAGE, f"{name}.py") for name in MODULES] + [os.path.join(PACKAGE, "client")]
        with tempfile.TemporaryDirectory() as folder:
            use = os.path.join(folder, "use.py")
            # The second one has two errors more.
            for wrong, code in (("", 0), ("both(3)\nremote.push()\n", 1)):
                with open(use, "w", encoding="utf-8") as file:
                    file.write(USE + wrong)
                done = subprocess.run(
                    [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports",
                     "--follow-imports=silent", "--cache-dir", os.path.join(folder, "cache"), *paths, use],
                    capture_output=True, text=True, timeout=300, cwd=os.path.dirname(PACKAGE), check=False,
                )  # fmt: skip
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                self.assertEqual(done.stdout.count("error:"), 2 * code, done.stdout)
