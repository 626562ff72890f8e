"""The PostgreSQL door as Python's drivers meet it: psycopg 3, asyncpg, SQLAlchemy, and ADBC for polars."""

import asyncio
import datetime
import decimal
import os
import threading
import unittest

import adbc_driver_postgresql.dbapi
import asyncpg
import polars
import psycopg
import sqlalchemy

PORT = os.environ["PGPORT"]
HOST = os.environ.get("PGHOST", "127.0.0.1")
URL = f"{HOST}:{PORT}/slackwater"
TYPES = "SELECT * FROM types ORDER BY a_bigint DESC"
TIMESTAMP = datetime.datetime(2024, 2, 29, 12, 34, 56, 789000)


def connect(port=PORT, **options):
    return psycopg.connect(host=HOST, port=port, user="ada", dbname="slackwater", **options)


class Psycopg(unittest.TestCase):
    def check_types(self, row):
        self.assertEqual(row["a_boolean"], True)
        self.assertEqual([row["a_tinyint"], row["a_smallint"], row["an_int"]], [-8, -16, 32])
        self.assertEqual(row["a_bigint"], 2**63 - 1)
        self.assertEqual([row["a_float"], row["a_double"]], [1.5, 1e300])
        self.assertEqual(row["a_decimal"], decimal.Decimal("-1234567890123456789012345678.9012345678"))
        self.assertEqual(str(row["a_price"]), "12.50")
        self.assertEqual(row["a_string"], 'größe, "x"')
        self.assertEqual(row["bytes"], b"\x00\xff")
        self.assertEqual(row["a_date"], datetime.date(2024, 2, 29))
        self.assertEqual(row["a_time"], datetime.time(12, 34, 56, 789000))
        self.assertEqual(row["a_timestamp"], TIMESTAMP)
        self.assertEqual(row["a_zoned"], TIMESTAMP)
        self.assertEqual(row["an_array"], [1, None, 3])
        self.assertEqual(row["strings"], ["a b", '"c"', "NULL", None])
        self.assertEqual(row["a_row"], {"x": 7, 'y "z"': "q\n"})

    def test_values_of_all_types_in_both_formats(self):
        with connect(row_factory=psycopg.rows.dict_row) as connection:
            for binary in (False, True):
                rows = connection.cursor(binary=binary).execute(TYPES).fetchall()
                self.check_types(rows[0])
                nulls = {name for name, value in rows[1].items() if value is None}
                self.assertEqual(nulls, set(rows[1]) - {"a_bigint"})

    def test_parameters(self):
        with connect() as connection:
            query = "SELECT n, name FROM numbers WHERE n = %s"
            self.assertEqual(connection.execute(query, [5]).fetchall(), [(5, "number 5")])
            self.assertEqual(connection.execute(query, ["7"], prepare=True).fetchone(), (7, "number 7"))
            self.assertIsNone(connection.execute(query, [2**40]).fetchone())
            query = "SELECT a_bigint FROM types WHERE a_bigint = %s"
            self.assertEqual(connection.execute(query, [2**63 - 1]).fetchall(), [(2**63 - 1,)])

    def test_cursors_of_the_server(self):
        with connect() as connection, connection.cursor(name="a cursor") as cursor:
            cursor.execute("SELECT * FROM numbers LIMIT 2500")
            self.assertEqual([row[0] for row in cursor.fetchmany(3)], [0, 1, 2])
            self.assertEqual(len(cursor.fetchall()), 2497)

    def test_copy(self):
        with connect() as connection:
            with connection.cursor().copy("COPY (SELECT * FROM numbers LIMIT 3) TO STDOUT") as copy:
                self.assertEqual(list(copy.rows()), [("0", None), ("1", "number 1"), ("2", "number 2")])
            with connection.cursor().copy("COPY types TO STDOUT (FORMAT binary)") as copy:
                copy.set_types(["bool", "int2", "int2", "int4", "int8", "float4", "float8", "numeric",
                                "numeric", "text", "bytea", "date", "time", "timestamp", "timestamp",
                                "interval", "int4[]", "text[]", "json"])
                rows = sorted(copy.rows(), key=lambda row: -row[4])
            self.assertEqual(rows[0][4], 2**63 - 1)
            self.assertEqual(rows[0][16], [1, None, 3])

    def test_errors_have_codes_and_places(self):
        with connect() as connection:
            with self.assertRaises(psycopg.errors.SyntaxError) as caught:
                connection.execute("\n  SELEC 1")
            self.assertEqual(caught.exception.diag.statement_position, "4")
            self.assertEqual(caught.exception.diag.message_hint, "did you mean SELECT?")
            with self.assertRaises(psycopg.errors.InFailedSqlTransaction):
                connection.execute("SELECT * FROM numbers LIMIT 1")
            connection.rollback()
            self.assertEqual(connection.execute("SELECT n FROM numbers LIMIT 1").fetchone()[0], 0)
            with self.assertRaises(psycopg.errors.UndefinedTable):
                connection.execute("SELECT * from nothing")

    def test_notices_and_transactions(self):
        with connect(autocommit=True) as connection:
            notices = []
            connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
            declared = "for_notices (n BIGINT) WITH ('connector' = 'blackhole')"
            with connection.transaction():
                connection.execute(f"CREATE TABLE {declared}")
                raise psycopg.Rollback
            connection.execute(f"CREATE TABLE IF NOT EXISTS {declared}")
            connection.execute("DROP TABLE for_notices")
            self.assertIn("is not undone", notices[0])
            self.assertEqual(notices[1], "there is already a table 'for_notices'")

    def test_a_statement_is_cancelled(self):
        with connect(autocommit=True) as connection:
            timer = threading.Timer(0.3, connection.cancel)
            timer.start()
            with self.assertRaises(psycopg.errors.QueryCanceled):
                connection.execute("SUBSCRIBE ticks")
            timer.join()
            connection.execute("SET statement_timeout = '200ms'")
            with self.assertRaises(psycopg.errors.QueryCanceled):
                connection.execute("SUBSCRIBE ticks")
            connection.execute("SET statement_timeout = 0")
            self.assertEqual(connection.execute("SELECT 1").fetchone(), (1,))

    def test_changes_arrive_as_they_happen(self):
        with connect(autocommit=True) as connection:
            present = connection.execute("SELECT COUNT(*) FROM ticks").fetchone()[0]
            changes = connection.cursor().stream("SUBSCRIBE ticks")
            # The rows that there are, and some more.
            found = [next(changes) for _ in range(present + 5)]
            changes.close()
            self.assertEqual({op for op, *_ in found}, {"+I"})
            self.assertEqual(sorted(n for _, n, _ in found), list(range(present + 5)))
        with connect() as connection:
            connection.execute("DECLARE c CURSOR FOR SUBSCRIBE ticks")
            found = connection.execute("FETCH 1 c").fetchall()
            self.assertEqual(len(found), 1)
            while len(found) < present + 10:
                found += connection.execute("FETCH ALL c").fetchall()
            self.assertEqual(sorted(n for _, n, _ in found), list(range(len(found))))
            connection.execute("CLOSE c")

    def test_pipelines(self):
        with connect(autocommit=True) as connection, connection.pipeline():
            cursors = [connection.execute("SELECT n FROM numbers WHERE n = %s", [n]) for n in range(50)]
            self.assertEqual([cursor.fetchone()[0] for cursor in cursors], list(range(50)))

    def test_passwords_and_tls(self):
        options = {"port": os.environ["TLS_PORT"], "sslrootcert": os.environ["TLS_CERTIFICATE"],
                   "sslmode": "verify-full"}
        with connect(password="secret", **options) as connection:
            self.assertTrue(connection.pgconn.ssl_in_use)
            self.assertEqual(connection.execute("SELECT current_user").fetchone(), ("ada",))
        with self.assertRaises(psycopg.OperationalError):
            connect(password="wrong", **options)


class Asyncpg(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.connection = await asyncpg.connect(f"postgres://ada@{URL}", statement_cache_size=10)

    async def asyncTearDown(self):
        await self.connection.close()

    async def test_values_of_all_types(self):
        first, second = await self.connection.fetch(TYPES)
        self.assertEqual(first["a_decimal"], decimal.Decimal("-1234567890123456789012345678.9012345678"))
        self.assertEqual(first["a_timestamp"], TIMESTAMP)
        self.assertEqual(first["strings"], ["a b", '"c"', "NULL", None])
        self.assertEqual(first["an_interval"].days, 14 * 30 + 5 + 3)
        self.assertIsNone(second["an_array"])

    async def test_parameters_and_cursors(self):
        query = "SELECT n, name FROM numbers WHERE n = $1"
        self.assertEqual(await self.connection.fetchval(query, 5), 5)
        async with self.connection.transaction():
            cursor = await self.connection.cursor("SELECT * FROM numbers LIMIT 2500")
            self.assertEqual([row["n"] for row in await cursor.fetch(3)], [0, 1, 2])
            self.assertEqual(len(await cursor.fetch(5000)), 2497)

    async def test_facts_and_reset(self):
        self.assertEqual(await self.connection.fetchval("SELECT current_database()"), "slackwater")
        self.assertEqual(await self.connection.fetchval("SELECT $1::int", 7), 7)
        count = "SELECT count(*) FROM pg_catalog.pg_class WHERE relname = ANY($1::text[])"
        self.assertEqual(await self.connection.fetchval(count, ["types", "numbers"]), 2)
        await self.connection.reset()

    async def test_a_pool_and_a_timeout(self):
        async with asyncpg.create_pool(f"postgres://ada@{URL}", min_size=2, max_size=4) as pool:
            query = "SELECT n FROM numbers WHERE n = $1"
            rows = await asyncio.gather(*(pool.fetchval(query, n) for n in range(40)))
            self.assertEqual(rows, list(range(40)))
        with self.assertRaises(asyncio.TimeoutError):
            await self.connection.fetch("SUBSCRIBE ticks", timeout=0.2)
        self.assertEqual(await self.connection.fetchval("SELECT 1"), 1)

    async def test_copy(self):
        chunks = []

        async def take(chunk):
            chunks.append(chunk)

        await self.connection.copy_from_query("SELECT * FROM numbers LIMIT 2", output=take, format="csv")
        self.assertEqual(b"".join(chunks), b"0,\n1,number 1\n")


class SqlAlchemy(unittest.TestCase):
    def test_reflection(self):
        for driver in ("psycopg", "asyncpg", "psycopg2"):
            with self.subTest(driver=driver):
                self.reflect(driver)

    def reflect(self, driver):
        if driver == "asyncpg":
            asyncio.run(self.reflect_async())
            return
        engine = sqlalchemy.create_engine(f"postgresql+{driver}://ada@{URL}")
        with engine.connect() as connection:
            self.look(connection)
        engine.dispose()

    async def reflect_async(self):
        from sqlalchemy.ext.asyncio import create_async_engine

        engine = create_async_engine(f"postgresql+asyncpg://ada@{URL}")
        async with engine.connect() as connection:
            await connection.run_sync(self.look)
        await engine.dispose()

    def look(self, connection):
        inspector = sqlalchemy.inspect(connection)
        self.assertIn("numbers_file", inspector.get_table_names())
        self.assertEqual(inspector.get_view_names(), ["Odd name"])
        self.assertEqual(inspector.get_materialized_view_names(), ["numbers", "ticks", "types"])
        columns = {column["name"]: column for column in inspector.get_columns("types")}
        self.assertEqual(str(columns["a_decimal"]["type"]), "NUMERIC(38, 10)")
        self.assertEqual(str(columns["an_array"]["type"].item_type), "INTEGER")
        # A key may be NULL, as that of GROUP BY. Only a table says that a column never is.
        self.assertTrue(columns["a_bigint"]["nullable"])
        declared = {column["name"]: column["nullable"] for column in inspector.get_columns("numbers_file")}
        self.assertEqual(declared, {"n": False, "name": True})
        self.assertTrue(inspector.has_table("numbers"))
        self.assertFalse(inspector.has_table("nothing"))
        key = inspector.get_pk_constraint("types")
        self.assertEqual(key["constrained_columns"], ["a_bigint"])
        self.assertEqual(inspector.get_foreign_keys("numbers"), [])
        inspector.get_indexes("numbers")
        table = sqlalchemy.Table("numbers", sqlalchemy.MetaData(), autoload_with=connection)
        query = sqlalchemy.select(table).where(table.c.n == 4)
        self.assertEqual(tuple(connection.execute(query).one()), (4, "number 4"))


class Adbc(unittest.TestCase):
    def test_polars_reads_all_types(self):
        uri = f"postgresql://ada@{URL}"
        with adbc_driver_postgresql.dbapi.connect(uri) as connection:
            # All types but INTERVAL and NUMERIC, which polars and the driver do not have.
            columns = "a_bigint, a_double, a_string, bytes, a_date, a_time, a_timestamp, a_zoned, an_array"
            frame = polars.read_database(f"SELECT {columns} FROM types ORDER BY a_bigint DESC", connection)
            self.assertEqual(frame["a_bigint"].to_list(), [2**63 - 1, 0])
            self.assertEqual(frame["a_double"].to_list(), [1e300, None])
            self.assertEqual(frame["a_string"].to_list(), ['größe, "x"', None])
            self.assertEqual(frame["a_date"].to_list(), [datetime.date(2024, 2, 29), None])
            self.assertEqual(frame["a_timestamp"][0], TIMESTAMP)
            self.assertEqual(frame["an_array"][0].to_list(), [1, None, 3])
            numbers = polars.read_database("SELECT * FROM numbers LIMIT 2500", connection)
            self.assertEqual(numbers.shape, (2500, 2))
            self.assertEqual(numbers["n"].sum(), 2499 * 1250)
            self.assertEqual(numbers["name"].null_count(), 834)
            self.assertIn("numbers", str(connection.adbc_get_objects(depth="tables").read_all().to_pylist()))


if __name__ == "__main__":
    unittest.main()
