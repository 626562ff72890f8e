"""The PostgreSQL door as dbt meets it, with a small project in the folder dbt."""

import json
import os
import subprocess
import tempfile
import unittest

import psycopg

import serving

PORT = os.environ["TLS_PORT"]
PROJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dbt")


class Dbt(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.connection = psycopg.connect(host="127.0.0.1", port=PORT, user="ada", password="secret",
                                          dbname="slackwater", sslmode="require", autocommit=True)
        self.addCleanup(self.connection.close)

    def dbt(self, *arguments):
        environment = os.environ | {
            "PGPORT": PORT, "PGPASSWORD": "secret", "PGSSLMODE": "require",
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
            "DBT_TARGET_PATH": self.folder, "DBT_LOG_PATH": self.folder, "DBT_PROFILES_DIR": PROJECT,
        }
        command = [os.environ["DBT"], "--no-use-colors", *arguments, "--project-dir", PROJECT]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def sum(self):
        return self.connection.execute("SELECT SUM(numbers) FROM tens").fetchone()[0]

    def process(self):
        jobs = self.connection.execute("SHOW JOBS").fetchall()
        return next(job[3] for job in jobs if job[0] == "tens")

    def test_a_project(self):
        self.assertIn("All checks passed!", self.dbt("debug"))
        self.assertIn("PASS=3 WARN=0 ERROR=0", self.dbt("run"))
        serving.wait_for("all rows are there", lambda: self.sum() == 6_666)
        self.assertIn("PASS=2 WARN=0 ERROR=0", self.dbt("test"))
        # What exists goes on.
        before = self.process()
        self.assertIn("tens\" exists and stays", self.dbt("run"))
        self.assertEqual(self.process(), before)
        self.assertIn("PASS=3 WARN=0 ERROR=0", self.dbt("run", "--full-refresh"))
        self.assertNotEqual(self.process(), before)
        serving.wait_for("all rows are there again", lambda: self.sum() == 6_666)
        self.dbt("docs", "generate")
        with open(os.path.join(self.folder, "catalog.json")) as file:
            catalog = json.load(file)
        columns = catalog["nodes"]["model.slackwater.tens"]["columns"]
        self.assertEqual([column["type"] for column in columns.values()], ["bigint", "bigint", "text"])
        self.assertIsNone(catalog["errors"])


if __name__ == "__main__":
    unittest.main()
