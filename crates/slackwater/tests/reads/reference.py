"""Answers queries with DuckDB, for tests/reads.rs: python reference.py FOLDER

FOLDER has the tables (orders.csv, customers.csv) and queries.sql, one query on each line.
"""

import pathlib
import sys

import duckdb

folder = pathlib.Path(sys.argv[1])
database = duckdb.connect()
for table in ("orders", "customers"):
    path = folder / f"{table}.csv"
    database.execute(
        f"CREATE TABLE {table} AS SELECT * FROM read_csv('{path}', delim='|', header=true, nullstr='NULL')"
    )
for query in (folder / "queries.sql").read_text().splitlines():
    for row in database.execute(query).fetchall():
        print("|".join("NULL" if value is None else str(value) for value in row))
    print("--")
