-- Functions in Python. Each case starts processes: of the functions declared here, those that it calls.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');
CREATE TABLE types (flag BOOLEAN, tiny TINYINT, small SMALLINT, number INT, big BIGINT, single FLOAT,
  real_number DOUBLE, amount DECIMAL(10, 2), day DATE, clock STRING, at TIMESTAMP(9), note STRING, last STRING)
WITH ('connector' = 'file', 'path' = 'data/types.csv');
CREATE TABLE orders (id BIGINT, customer ROW<name STRING, address ROW<city STRING, zip STRING>>, tags ARRAY<STRING>)
WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');

CREATE FUNCTION distance(x DOUBLE, y DOUBLE) RETURNS DOUBLE LANGUAGE python AS $$
import math

def distance(x, y):
    return math.hypot(x, y)
$$;
CREATE FUNCTION shout(STRING) RETURNS STRING LANGUAGE PYTHON AS 'def shout(text): return text.upper() + "!;"';
CREATE OR REPLACE TEMPORARY FUNCTION IF NOT EXISTS price_of(price DOUBLE, bidder STRING) RETURNS STRING
LANGUAGE python WITH ('nulls' = 'true', 'handler' = 'shown', 'workers' = '1', 'timeout' = '30 s', 'memory' = '512 MB') AS $$
def shown(price, bidder):
    return f"{price!r} of {bidder!r}"
$$;
CREATE FUNCTION doubled(n INT) RETURNS INT LANGUAGE python AS $$ def doubled(n): return 2 * n $$;
CREATE FUNCTION inverse(n INT) RETURNS DOUBLE LANGUAGE python AS $$
def inverse(n):
    return 10 / (n - 2)
$$;

--- regression: a text on one line
SELECT auction, doubled(auction) AS twice FROM bids;

--- numbers and rows with NULL
SELECT ms, distance(price, 10.5) AS d FROM bids;

--- in WHERE, as a key, within an aggregate
SELECT shout(bidder) AS s, SUM(distance(price, 0)) AS d FROM bids WHERE distance(price, 0) > 5 GROUP BY shout(bidder);
-- last per 1

--- in a window
SELECT window_end, MAX(distance(price, auction)) AS d
FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- with NULLs
SELECT ms, price_of(price, bidder) AS p FROM bids;

--- a row that raises is rejected
SELECT ms, inverse(auction) AS i FROM bids;

--- a function that calls another one, and casts of arguments
SELECT shout(CAST(distance(auction, auction) AS STRING)) AS s FROM bids WHERE ms < 3000;

--- constants and no arguments
CREATE FUNCTION seven() RETURNS INT LANGUAGE python AS 'def seven(): return 7';
SELECT seven() + distance(3, 4) AS n, ms FROM bids WHERE ms < 3000;

--- every type, to Python
CREATE FUNCTION shown(BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(10, 2), DATE, TIME, TIMESTAMP(9), STRING, BYTES)
RETURNS STRING LANGUAGE python AS 'def shown(*values): return " ".join(map(repr, values))' WITH ('nulls' = 'true');
SELECT shown(flag, tiny, small, number, big, single, real_number, amount, day, CAST(clock AS TIME), at, note, CAST(last AS BYTES)) AS shown FROM types;

--- every type, from Python
CREATE FUNCTION f_bool(n INT) RETURNS BOOLEAN LANGUAGE python AS 'def f_bool(n): return n > 1';
CREATE FUNCTION f_int(n INT) RETURNS SMALLINT LANGUAGE python AS 'def f_int(n): return n << 10';
CREATE FUNCTION f_float(n INT) RETURNS FLOAT LANGUAGE python AS 'def f_float(n): return n';
CREATE FUNCTION f_decimal(n INT) RETURNS DECIMAL(12, 3) LANGUAGE python AS 'from decimal import Decimal
def f_decimal(n): return Decimal("1.0005") * n';
CREATE FUNCTION f_date(n INT) RETURNS DATE LANGUAGE python AS 'import datetime
def f_date(n): return datetime.datetime(2024, 2, 29, 12)';
CREATE FUNCTION f_time(n INT) RETURNS TIME LANGUAGE python AS 'import datetime
def f_time(n): return datetime.time(1, 2, 3, n)';
CREATE FUNCTION f_at(n INT) RETURNS TIMESTAMP(3) LANGUAGE python AS 'import datetime
def f_at(n): return datetime.datetime(1969, 12, 31, 23, 59, 59, 1000 * n, tzinfo=datetime.timezone.utc)';
CREATE FUNCTION f_none(n INT) RETURNS STRING LANGUAGE python AS 'def f_none(n): return None';
SELECT f_bool(auction) AS b, f_int(auction) AS i, f_float(auction) AS f, f_decimal(auction) AS d, f_date(auction) AS day,
  f_time(auction) AS t, f_at(auction) AS a, f_none(auction) AS n FROM bids WHERE ms < 4000;

--- arrays and rows
CREATE FUNCTION of_row(customer ROW<name STRING, address ROW<city STRING, zip STRING>>, tags ARRAY<STRING>)
RETURNS ROW<title STRING, tags ARRAY<STRING>> LANGUAGE python AS $$
def of_row(customer, tags):
    return {"title": repr(customer), "tags": sorted(tags) + [None]}
$$;
CREATE VIEW v AS SELECT id, of_row(customer, tags) AS r FROM orders;
SELECT id, r.title AS title, ARRAY_TO_STRING(r.tags, ',', '-') AS tags FROM v;

--- a function from a file, called by several instances in two processes
SET 'processes' = '2';
SET 'workers' = '2';
CREATE FUNCTION score(STRING) RETURNS BIGINT LANGUAGE python USING 'data/score.py';
SELECT bidder, score(bidder) AS s FROM bids;

--- a result of another type rejects its row
CREATE FUNCTION half(n INT) RETURNS INT LANGUAGE python AS 'def half(n): return n // 2 if n % 2 == 0 else n / 2';
SELECT ms, half(auction) AS h FROM bids;

--- a row that kills its worker is rejected, and no other one
CREATE FUNCTION fatal(n INT) RETURNS INT LANGUAGE python AS $$
import os
def fatal(n):
    if n == 3:
        os._exit(7)
    return n
$$;
SELECT ms, fatal(auction) AS n FROM bids;

--- text with a syntax error
CREATE FUNCTION broken(n INT) RETURNS INT LANGUAGE python AS $$
def broken(n):
    return n +
$$;
SELECT broken(auction) AS n FROM bids;

--- a module that is not there
CREATE FUNCTION broken(n INT) RETURNS INT LANGUAGE python AS $$
import math
import surely_not_there
$$;
SELECT broken(auction) AS n FROM bids;

--- a text that does not define the function
CREATE FUNCTION broken(n INT) RETURNS INT LANGUAGE python AS 'def brocken(n): return n';
SELECT broken(auction) AS n FROM bids;

--- a file with an error
CREATE FUNCTION broken(n INT) RETURNS INT LANGUAGE python USING 'data/broken.py';
SELECT broken(auction) AS n FROM bids;

--- an interpreter that is not there
SET 'python' = '/nowhere/python3';
CREATE FUNCTION broken(n INT) RETURNS INT LANGUAGE python AS 'def broken(n): return n';
SELECT broken(auction) AS n FROM bids;

--- explained
-- explain
SET 'parallelism' = '1';
CREATE FUNCTION broken(n INT) RETURNS INT LANGUAGE python AS 'def' WITH ('workers' = '2');
EXPLAIN SELECT broken(auction) AS b, distance(price, 1) AS d FROM bids WHERE broken(auction) > 1;

--- one that is not called is not started
CREATE FUNCTION broken(n INT) RETURNS INT LANGUAGE python AS 'def';
DROP FUNCTION IF EXISTS nothing;
SELECT ms FROM bids WHERE ms < 2000;

--- a syntax error on the line of the quotes
CREATE FUNCTION broken(n INT) RETURNS INT LANGUAGE python AS $$  def broken(n) return n $$;
SELECT broken(auction) AS n FROM bids;

--- a program that is not Python
SET 'python' = '/bin/cat';
CREATE FUNCTION broken(n INT) RETURNS INT LANGUAGE python AS 'def broken(n): return n';
SELECT broken(auction) AS n FROM bids;
