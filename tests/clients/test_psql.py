"""The PostgreSQL door as psql meets it, and with it everything that is built on libpq."""

import os
import signal
import subprocess
import time
import unittest

PORT = os.environ["PGPORT"]


def psql(*arguments, port=PORT, check=True, text=None, **environment):
    command = ["psql", "-X", "-h", "127.0.0.1", "-p", port, "-U", "ada", "slackwater", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60,
                          env=os.environ | environment)
    if check and (done.returncode or done.stderr):
        raise AssertionError(f"{arguments}: {done.stderr}")
    return done


def rows(command):
    return psql("-At", "-c", command).stdout.splitlines()


class Psql(unittest.TestCase):
    def test_lists(self):
        for command in ("\\d", "\\d+", "\\dt", "\\dv", "\\dm", "\\dm+", "\\di", "\\dn", "\\du", "\\l", "\\dp",
                        "\\dx", "\\df", "\\dT", "\\db", "\\dD", "\\det", "\\conninfo", "\\encoding"):
            psql("-c", command)
        self.assertIn("public|numbers_file|table|slackwater", rows("\\dt"))
        views = [f"public|{name}|materialized view|slackwater" for name in ("numbers", "ticks", "types")]
        self.assertEqual(rows("\\dm"), views)
        self.assertEqual(rows("\\dv"), ["public|Odd name|view|slackwater"])

    def test_descriptions(self):
        self.assertEqual(rows("\\d numbers"), ["n|bigint|||", "name|text|||"])
        types = psql("-c", "\\d types").stdout
        self.assertIn("a_decimal   | numeric(38,10) ", types)
        self.assertIn('"types_pkey" PRIMARY KEY, btree (a_bigint)', types)
        self.assertIn("View definition:", psql("-c", '\\d+ "Odd name"').stdout)
        self.assertIn("Did not find", psql("-c", "\\d nothing", check=False).stderr)

    def test_columns_of_tables_and_views(self):
        self.assertEqual(rows("\\d ticks"), ["n|bigint|||", "name|text|||"])
        self.assertEqual(rows("\\d numbers_file"), ["n|bigint||not null|", "name|text|||"])

    def test_answers(self):
        self.assertEqual(rows("SELECT * FROM numbers LIMIT 3"), ["0|", "1|number 1", "2|number 2"])
        expanded = psql("-x", "-c", "SELECT a_bigint, a_zoned FROM types").stdout
        self.assertIn("2024-02-29 12:34:56.789", expanded)
        self.assertEqual(len(rows("SELECT * FROM numbers LIMIT 2500")), 2500)
        fetched = psql("-At", "-v", "FETCH_COUNT=100", "-c", "SELECT * FROM numbers LIMIT 2500").stdout
        self.assertEqual(len(fetched.splitlines()), 2500)
        described = psql("-At", text="SELECT n, name FROM numbers LIMIT 1 \\gdesc\n").stdout
        self.assertEqual(described.splitlines(), ["n|bigint", "name|text"])

    def test_names_may_have_the_schema_before_them(self):
        query = """SELECT "public"."numbers"."name" FROM "slackwater"."public"."numbers"
                   WHERE public.numbers.n = 4"""
        self.assertEqual(rows(query), ["number 4"])
        self.assertEqual(len(rows("COPY public.numbers TO STDOUT")), 10_000)

    def test_copies(self):
        copied = psql("-c", "\\copy (SELECT * FROM numbers LIMIT 2) TO STDOUT (FORMAT csv, HEADER)").stdout
        self.assertEqual(copied, "n,name\n0,\n1,number 1\n")
        copied = psql("-c", "COPY numbers TO STDOUT").stdout.splitlines()
        self.assertEqual(sorted(copied)[:2], ["0\t\\N", "1\tnumber 1"])
        self.assertEqual(len(copied), 10_000)

    def test_notices(self):
        text = "CREATE TABLE IF NOT EXISTS numbers_file (n BIGINT) WITH ('connector' = 'blackhole')"
        done = psql("-c", text, check=False)
        self.assertEqual(done.stdout, "CREATE TABLE\n")
        self.assertEqual(done.stderr, "NOTICE:  there is already a table 'numbers_file'\n")

    def test_errors_show_the_place(self):
        failed = psql("-v", "VERBOSITY=verbose", "-c", "SHOW TimeZone;\nSELEC 1", check=False).stderr
        self.assertIn("ERROR:  42601", failed)
        self.assertIn("LINE 2: SELEC 1\n        ^", failed)
        failed = psql("-v", "VERBOSITY=verbose", "-c", "SELECT nn FROM numbers", check=False).stderr
        self.assertIn("ERROR:  42703: there is no column", failed)
        self.assertIn("LINE 1: SELECT nn FROM numbers\n               ^", failed)

    def test_control_c_cancels(self):
        command = ["psql", "-X", "-h", "127.0.0.1", "-p", PORT, "-U", "ada", "slackwater"]
        process = subprocess.Popen([*command, "-c", "SUBSCRIBE ticks"], stderr=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, text=True)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        self.assertIn("cancel", process.communicate(timeout=60)[1])

    def test_passwords_and_tls(self):
        port, certificate = os.environ["TLS_PORT"], os.environ["TLS_CERTIFICATE"]
        verified = {"PGSSLMODE": "verify-full", "PGSSLROOTCERT": certificate}
        shown = psql("-c", "\\conninfo", port=port, PGPASSWORD="secret", **verified).stdout
        self.assertIn("TLSv1.3", shown)
        for mode in ("disable", "prefer", "require"):
            psql("-c", "SELECT 1", port=port, PGPASSWORD="secret", PGSSLMODE=mode)
        wrong = psql("-c", "SELECT 1", port=port, check=False, PGPASSWORD="wrong", **verified)
        self.assertIn("password authentication failed", wrong.stderr)


if __name__ == "__main__":
    unittest.main()
