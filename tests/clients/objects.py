"""What the tests read: materialized views over files, made by SQL.

`numbers` has 10,000 rows, and every third has no name. `types` has a row with a value of each type, and one
with NULLs. `ticks` gets a new row every 20 ms while the tests run.
"""

import json
import os
import subprocess
import urllib.request

import serving

NUMBERS = 10_000
TYPES = {
    "a_boolean": True, "a_tinyint": -8, "a_smallint": -16, "an_int": 32, "a_bigint": 2**63 - 1,
    "a_float": 1.5, "a_double": 1e300, "a_decimal": "-1234567890123456789012345678.9012345678",
    "a_price": 12.5, "a_string": 'größe, "x"', "bytes": "00ff", "a_date": "2024-02-29",
    "a_time": "12:34:56.789", "a_timestamp": "2024-02-29 12:34:56.789",
    "a_zoned": "2024-02-29 12:34:56.789", "an_array": [1, None, 3],
    "strings": ["a b", '"c"', "NULL", None], "a_row": {"x": 7, 'y "z"': "q\n"},
}

# JSON has no BYTES and no TIME, and reads a DECIMAL as a double first: the query converts them.
STATEMENTS = '''
CREATE TABLE numbers_file (n BIGINT NOT NULL, name STRING)
  WITH ('connector' = 'file', 'path' = 'FOLDER/numbers.csv');
CREATE MATERIALIZED VIEW numbers AS SELECT n, name FROM numbers_file;
CREATE VIEW "Odd name" AS SELECT * FROM numbers;
CREATE TABLE ticks_file (n BIGINT, name STRING)
  WITH ('connector' = 'file', 'path' = 'FOLDER/numbers.csv', 'replay_rate' = '50/s');
CREATE MATERIALIZED VIEW ticks AS SELECT n, name FROM ticks_file;
CREATE SINK a_sink FROM numbers WITH ('connector' = 'blackhole');
CREATE TABLE types_file (a_boolean BOOLEAN, a_tinyint TINYINT, a_smallint SMALLINT, an_int INT,
    a_bigint BIGINT NOT NULL, a_float FLOAT, a_double DOUBLE, a_decimal STRING, a_price DECIMAL(8, 2),
    a_string STRING, bytes STRING, a_date DATE, a_time STRING, a_timestamp TIMESTAMP(3),
    a_zoned TIMESTAMP_LTZ(6), an_array ARRAY<INT>, strings ARRAY<STRING>,
    a_row ROW<x INT, "y ""z""" STRING>)
  WITH ('connector' = 'file', 'path' = 'FOLDER/types.json', 'format' = 'json');
CREATE MATERIALIZED VIEW types (a_boolean, a_tinyint, a_smallint, an_int, a_bigint, a_float, a_double,
    a_decimal, a_price, a_string, bytes, a_date, a_time, a_timestamp, a_zoned, an_interval, an_array,
    strings, a_row, PRIMARY KEY (a_bigint) NOT ENFORCED) AS
  SELECT a_boolean, a_tinyint, a_smallint, an_int, a_bigint, a_float, a_double,
    CAST(a_decimal AS DECIMAL(38, 10)), a_price, a_string, decode(bytes, 'hex'), a_date,
    CAST(a_time AS TIME), a_timestamp, a_zoned,
    CASE WHEN an_int = 32 THEN INTERVAL '1 year 2 months 3 days 4 hours 5 minutes 6.5 seconds' END,
    an_array, strings, a_row FROM types_file;
'''


def make(program, server, folder):
    """Makes the objects with the shell of a server, and waits until their rows are there."""
    with open(os.path.join(folder, "numbers.csv"), "w") as file:
        file.writelines(f"{n},{f'number {n}' if n % 3 else ''}\n" for n in range(NUMBERS))
    with open(os.path.join(folder, "types.json"), "w") as file:
        file.write(json.dumps(TYPES) + '\n{"a_bigint": 0}\n')
    http = f"127.0.0.1:{server.http_port}"
    subprocess.run([program, "sql", "--connect", http], input=STATEMENTS.replace("FOLDER", folder),
                   check=True, text=True, stdout=subprocess.DEVNULL)

    def done():
        with urllib.request.urlopen(f"http://{http}/v1/jobs", timeout=serving.PATIENCE_S) as answer:
            jobs = json.load(answer)
        return {job["name"] for job in jobs if job["status"] == "finished"} >= {"numbers", "types", "a_sink"}

    serving.wait_for("the views have finished", done)
