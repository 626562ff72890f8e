-- Tables: types, formats and their options, computed columns, names, comments.

--- every type from csv
CREATE TABLE all_types (flag BOOLEAN, tiny TINYINT, small SMALLINT, number INT, big BIGINT, single FLOAT,
  real_number DOUBLE, amount DECIMAL(10, 2), day DATE, clock STRING, at TIMESTAMP(9), note STRING, last VARCHAR(10))
WITH ('connector' = 'file', 'path' = 'data/types.csv');
SELECT flag, tiny, small, number, big, single, real_number, amount, day, at, '[' || note || ']' AS note, last FROM all_types;

--- other names of types
CREATE TABLE all_types (flag BOOL, tiny TINYINT, small SMALLINT, number INTEGER, big BIGINT, single REAL,
  real_number DOUBLE PRECISION, amount NUMERIC(10, 2), day DATE, clock CHAR(8), at TIMESTAMP(9) WITHOUT TIME ZONE, note TEXT, last VARCHAR)
WITH ('connector' = 'file', 'path' = 'data/types.csv');
SELECT arrow_typeof(flag) AS flag, arrow_typeof(single) AS single, arrow_typeof(real_number) AS double_number,
  arrow_typeof(amount) AS amount, arrow_typeof(note) AS note
FROM all_types WHERE tiny = 1;

--- what is read of a time stamp depends on its decimals
CREATE TABLE a (flag STRING, a STRING, b STRING, c STRING, d STRING, e STRING, f STRING, g STRING, h STRING, i STRING, at TIMESTAMP(9), j STRING, k STRING)
WITH ('connector' = 'file', 'path' = 'data/types.csv');
SELECT CAST(at AS TIMESTAMP(0)) AS t0, CAST(at AS TIMESTAMP(3)) AS t3, CAST(at AS TIMESTAMP) AS t6, CAST(at AS TIMESTAMP(9)) AS t9 FROM a WHERE k = 'x';

--- decimals of TIMESTAMP columns
CREATE TABLE orders (at TIMESTAMP(0), ms AS CAST(at AS TIMESTAMP(3)), us AS CAST(at AS TIMESTAMP), ns AS CAST(at AS TIMESTAMP(9)))
WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');
SELECT at, ms, us, ns FROM orders WHERE at < TIMESTAMP '2024-03-01 10:00:05';

--- csv with tabs, header, comments and a word for NULL
CREATE TABLE scores (name STRING, score INT, note STRING)
WITH ('connector' = 'file', 'path' = 'data/scores.tsv', 'csv.delimiter' = '\t', 'csv.header' = 'true',
      'csv.comment' = '#', 'csv.null' = '\N');
SELECT name, score, note IS NULL AS no_note, '[' || note || ']' AS note FROM scores;

--- csv written with another delimiter and header
CREATE TABLE scores (name STRING, score INT, note STRING)
WITH ('connector' = 'file', 'path' = 'data/scores.tsv', 'csv.delimiter' = '\t', 'csv.header' = 'true',
      'csv.comment' = '#', 'csv.null' = '\N');
CREATE TABLE result (name STRING, twice BIGINT, note STRING)
WITH ('connector' = 'file', 'path' = 'out/result.csv', 'csv.delimiter' = ';', 'csv.header' = 'true', 'csv.null' = 'nothing');
INSERT INTO result SELECT name, score * 2, note FROM scores;

--- nested fields of json
CREATE TABLE orders (id BIGINT, at TIMESTAMP(3), customer ROW<name STRING, address ROW<city STRING, zip STRING>>,
  total DECIMAL(8, 2), paid BOOLEAN, city AS customer.address.city)
WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');
SELECT id, orders.customer.name AS name, customer.address.zip AS zip, city, total, paid FROM orders;

--- a ROW with parentheses and STRUCT are the same
CREATE TABLE orders (id INT, customer ROW(name STRING, address STRUCT<city STRING>))
WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');
SELECT id, customer.name AS name, customer['address']['city'] AS city FROM orders WHERE customer.address.city IS NOT NULL;

--- arrays of json
CREATE TABLE orders (id INT, tags ARRAY<STRING>)
WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');
SELECT id, tags FROM orders;

--- regression: arrays of rows
CREATE TABLE given (id INT, parts ARRAY<ROW<name STRING, counts ARRAY<ROW<n INT>>>>)
WITH ('connector' = 'file', 'path' = 'data/parts.jsonl', 'format' = 'json');
SELECT id, parts FROM given;

--- json to json
CREATE TABLE orders (id INT, at TIMESTAMP(3), customer ROW<name STRING, address ROW<city STRING>>, total DOUBLE, tags ARRAY<STRING>)
WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');
CREATE TABLE result (id INT, at TIMESTAMP(3), customer ROW<name STRING, address ROW<city STRING>>, total DOUBLE, tags ARRAY<STRING>)
WITH ('connector' = 'file', 'path' = 'out/result.jsonl', 'format' = 'json');
INSERT INTO result SELECT id, at, customer, total, tags FROM orders;

--- lines as they are
CREATE TABLE lines (line STRING) WITH ('connector' = 'file', 'path' = 'data/lines.txt', 'format' = 'raw');
SELECT line, character_length(line) AS characters FROM lines;

--- a web server log
CREATE TABLE log (ip STRING, time TIMESTAMP(0), method STRING, path STRING, status INT, bytes BIGINT, user_agent STRING)
WITH ('connector' = 'file', 'path' = 'data/access.log', 'format' = 'combined_log');
SELECT * FROM log;

--- computed columns on computed columns, in any order with physical ones
CREATE TABLE bids (ms BIGINT, seconds AS ms / 1000, auction INT, even AS seconds % 2 = 0, bidder STRING, price DOUBLE,
  label AS CASE WHEN even THEN 'even' ELSE 'odd' END || '/' || bidder,
  later AS price * 2)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');
SELECT seconds, even, label, later FROM bids;

--- a computed event time
CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  us AS ms * 1000, ts AS TO_TIMESTAMP_MICROS(us), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');
SELECT window_start, window_end, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end;

--- the event time may be a column of the file
CREATE TABLE orders (at TIMESTAMP(0), id INT, WATERMARK FOR at AS at)
WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTE)
GROUP BY window_start;

--- files of a glob are partitions with watermarks of their own
CREATE TABLE parts (ms BIGINT, k STRING, v INT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/parts/*.csv');
SELECT window_start, k, COUNT(*) AS n, SUM(v) AS total
FROM TUMBLE(TABLE parts, DESCRIPTOR(ts), INTERVAL '5' SECOND) GROUP BY window_start, window_end, k;

--- names in double quotes, with any character, and told apart by case
CREATE TABLE "My Lines" ("the line" STRING, "THE LINE" AS upper("the line"), "it's" AS 1, "select" AS 'x')
WITH ('connector' = 'file', 'path' = 'data/lines.txt', 'format' = 'raw');
SELECT "the line", "THE LINE", "it's" + 1 AS "a ""quoted"" name", "select" FROM "My Lines";

--- keywords in any case, comments, and a semicolon in a string
/* a comment; with a semicolon
   over two lines */
create table lines (line string) -- to the end of the line; really
with ('connector' = 'file', 'path' = 'data/lines.txt', 'format' = 'raw');
select line || ';--' as line /* here */ from lines where line not like '%;%';;

--- TEMPORARY and IF NOT EXISTS are understood
CREATE TEMPORARY TABLE IF NOT EXISTS lines (line STRING) WITH ('connector' = 'file', 'path' = 'data/lines.txt', 'format' = 'raw');
CREATE TEMPORARY VIEW long AS SELECT line FROM lines WHERE char_length(line) > 7;
SELECT * FROM long;

--- datagen
CREATE TABLE visits (ip STRING, url STRING, ts_ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '1000');
SET 'emit' = 'changes';
-- last per 0
SELECT COUNT(*) AS n FROM visits;

--- a sink that accepts everything
CREATE TABLE lines (line STRING) WITH ('connector' = 'file', 'path' = 'data/lines.txt', 'format' = 'raw');
CREATE TABLE nowhere (line STRING) WITH ('connector' = 'blackhole');
INSERT INTO nowhere SELECT line FROM lines;

--- an empty file
CREATE TABLE bids (ms BIGINT, auction INT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/empty.csv');
CREATE TABLE result (window_start TIMESTAMP(3), n BIGINT) WITH ('connector' = 'file', 'path' = 'out/result.csv', 'csv.header' = 'true');
INSERT INTO result SELECT window_start, COUNT(*) FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start;

--- a computed column that falls back on others
CREATE TABLE lines (line STRING, text AS COALESCE(NULLIF(line, 'nothing'), 'nobody'), size AS COALESCE(CHAR_LENGTH(line), 0))
WITH ('connector' = 'file', 'path' = 'data/lines.txt', 'format' = 'raw');
SELECT size, text FROM lines;

--- TIMESTAMP WITH LOCAL TIME ZONE
CREATE TABLE bids (at TIMESTAMP(3) WITH LOCAL TIME ZONE, auction INT) WITH ('connector' = 'file', 'path' = 'data/times.jsonl', 'format' = 'json');
SELECT CAST(at AS TIMESTAMP(0) WITH LOCAL TIME ZONE) AS at, auction FROM bids;

--- a file name with the extension of another format
CREATE TABLE t (bidder STRING) WITH ('connector' = 'file', 'path' = 'out/t.jsonl');
CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE) WITH ('connector' = 'file', 'path' = 'data/bids.csv');
INSERT INTO t SELECT bidder FROM bids WHERE auction = 3;

--- a ROW of named fields
CREATE TABLE t (a ROW<x INT, y ROW<z STRING>>) WITH ('connector' = 'file', 'path' = 'out/t.json', 'format' = 'json');
CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE) WITH ('connector' = 'file', 'path' = 'data/bids.csv');
INSERT INTO t SELECT named_struct('x', auction, 'y', named_struct('z', bidder)) FROM bids WHERE auction = 3;
