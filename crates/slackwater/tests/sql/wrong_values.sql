-- Values that fail while a query runs: the row is rejected, or with 'on_error' = 'fail' the query ends.

CREATE TABLE records (id INT, n BIGINT, at TIMESTAMP(0)) WITH ('connector' = 'file', 'path' = 'data/broken.csv');
CREATE TABLE strict (id INT, n BIGINT, at TIMESTAMP(0)) WITH ('connector' = 'file', 'path' = 'data/broken.csv', 'on_error' = 'fail');

--- records that can't be parsed are skipped and counted
SELECT id, n, at FROM records;

--- only columns that are read are parsed
SELECT id FROM records;

--- an event time that is NULL is bad
CREATE TABLE timed (id INT, n STRING, at TIMESTAMP(0), WATERMARK FOR at AS at)
WITH ('connector' = 'file', 'path' = 'data/broken.csv');
SELECT id FROM timed;

--- a record that can't be parsed ends the query
SELECT n FROM strict;

--- a record with too few fields ends the query
CREATE TABLE strings (id INT, n STRING, at STRING) WITH ('connector' = 'file', 'path' = 'data/broken.csv', 'on_error' = 'fail');
SELECT id, at FROM strings;

--- a time that can't be parsed ends the query
CREATE TABLE times (id INT, at TIMESTAMP(0), customer TIMESTAMP(0)) WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json', 'on_error' = 'fail');
SELECT at, customer FROM times;

--- division by zero
SELECT id, 100 / n AS hundredths FROM records WHERE id IN (1, 7);

--- division by zero ends the query
CREATE TABLE good (ms BIGINT, auction INT, bidder STRING, price DOUBLE)
WITH ('connector' = 'file', 'path' = 'data/bids.csv', 'on_error' = 'fail');
SELECT 100 / (ms - 2000) AS a FROM good;

--- overflow of a sum, difference, product and negation
CREATE TABLE types (flag BOOLEAN, tiny TINYINT, small SMALLINT, number INT, big BIGINT, single FLOAT,
  real_number DOUBLE, amount DECIMAL(10, 2), day DATE, clock STRING, at TIMESTAMP(9), note STRING, last STRING)
WITH ('connector' = 'file', 'path' = 'data/types.csv');
SELECT last, big + 1 AS a FROM types UNION ALL SELECT last, big - 1 FROM types UNION ALL SELECT last, big * 2 FROM types UNION ALL SELECT last, -big FROM types;

--- overflow ends the query
CREATE TABLE good (ms BIGINT, auction INT, bidder STRING, price DOUBLE)
WITH ('connector' = 'file', 'path' = 'data/bids.csv', 'on_error' = 'fail');
SELECT ms * 9000000000000000 AS a FROM good WHERE ms > 30000;

--- a number that does not fit a smaller type
SELECT id, CAST(n * 2 + 10 AS TINYINT) AS n FROM records;

--- a string that is not a number
CREATE TABLE strings (id INT, n STRING, at STRING) WITH ('connector' = 'file', 'path' = 'data/broken.csv');
SELECT id, CAST(n AS BIGINT) AS n FROM strings WHERE id <> 3;

--- a string that is not a number ends the query
CREATE TABLE strings (ms BIGINT, auction INT, bidder STRING, price DOUBLE) WITH ('connector' = 'file', 'path' = 'data/bids.csv', 'on_error' = 'fail');
SELECT CAST(bidder AS BIGINT) AS n FROM strings WHERE auction = 2 AND ms > 30000;

--- a condition that fails keeps no row
SELECT id FROM records WHERE 100 / n > 1;

--- SUM overflows in a window
CREATE TABLE large (ms BIGINT, auction INT, bidder STRING, price DOUBLE, huge AS 4000000000000000000 + ms,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');
SELECT window_start, SUM(huge) AS total FROM TUMBLE(TABLE large, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- a value that does not fit the column of the table that is written
CREATE TABLE result (n TINYINT) WITH ('connector' = 'file', 'path' = 'out/result.csv');
INSERT INTO result SELECT n * 10 FROM records WHERE id IN (1, 7) UNION ALL SELECT n * 20 FROM records WHERE id = 1;

--- a number with decimals for an INT
CREATE TABLE orders (id INT, total INT) WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');
SELECT id, total FROM orders;
