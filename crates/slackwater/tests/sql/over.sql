-- Functions with OVER.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE strict (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE tens (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms / 10000, 0), WATERMARK FOR ts AS ts - INTERVAL '10' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

--- the rows before
SELECT ms, auction, SUM(ms) OVER (PARTITION BY auction ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM bids;

--- the time before
SELECT ms, auction, COUNT(*) OVER (PARTITION BY auction ORDER BY ts
  RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW) AS n FROM bids;

--- all before: rows of one time belong together
SELECT ms, ts, COUNT(*) OVER (ORDER BY ts) AS n, COUNT(*) OVER (ORDER BY ts ROWS UNBOUNDED PRECEDING) AS r,
  COUNT(*) OVER (ORDER BY ts RANGE CURRENT ROW) AS here FROM tens;

--- several frames, and names for them
SELECT ms, MAX(price) OVER last AS m, SUM(auction) OVER (PARTITION BY bidder ORDER BY ts) AS s,
  FIRST_VALUE(ms) OVER last AS f, LAST_VALUE(ms) OVER last AS l FROM bids
WINDOW last AS (PARTITION BY bidder ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW);

--- numbers
SELECT ms, ts, ROW_NUMBER() OVER w AS n, RANK() OVER w AS r, DENSE_RANK() OVER w AS d FROM tens WINDOW w AS (ORDER BY ts);

--- numbers by key
SELECT ms, bidder, ROW_NUMBER() OVER (PARTITION BY bidder ORDER BY ts) AS n FROM bids;

--- LAG
SELECT ms, LAG(ms) OVER w AS one, LAG(ms, 2) OVER w AS two, LAG(ms, 1, -1) OVER w AS d, LAG(ms, 0) OVER w AS own,
  ms - LAG(ms) OVER w AS since FROM bids WINDOW w AS (PARTITION BY auction ORDER BY ts);

--- aggregates of all kinds
SELECT ms, AVG(price) OVER w AS a, MIN(price) OVER w AS lo, COUNT(price) OVER w AS c, COUNT(DISTINCT bidder) OVER w AS d,
  SUM(price) FILTER (WHERE auction = 1) OVER w AS f, stddev(price) OVER w AS sd, median(ms) OVER w AS med
FROM bids WINDOW w AS (ORDER BY ts RANGE BETWEEN INTERVAL '15' SECOND PRECEDING AND CURRENT ROW);

--- aggregates of all kinds, of all before
SELECT ms, AVG(price) OVER w AS a, MIN(price) OVER w AS lo, COUNT(price) OVER w AS c, COUNT(DISTINCT bidder) OVER w AS d,
  SUM(price) FILTER (WHERE auction = 1) OVER w AS f, stddev(price) OVER w AS sd, median(ms) OVER w AS med
FROM bids WINDOW w AS (ORDER BY ts);

--- IGNORE NULLS
SELECT ms, LAST_VALUE(price) IGNORE NULLS OVER (ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS p FROM bids;

--- expressions around and inside
SELECT ms, 100 * price / SUM(price) OVER (PARTITION BY auction % 2 ORDER BY ts) AS share FROM bids WHERE price > 5;

--- what fails refuses its row
SELECT ms, SUM(CAST(9223372036854775807 - ms * 100 AS BIGINT)) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s
FROM bids WHERE auction = 1 AND ms < 3000 OR ms = 31000;

--- rows at their own watermark are late
SELECT ms, COUNT(*) OVER (ORDER BY ts) AS n FROM strict;

--- conditions on what it gives
SELECT ms, n FROM (SELECT ms, COUNT(*) OVER (PARTITION BY auction ORDER BY ts) AS n FROM bids) WHERE n > 2;

--- QUALIFY
SELECT ms, price FROM bids QUALIFY price > AVG(price) OVER (ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW);

--- windows after it
SELECT window_start, MAX(n) AS n, COUNT(*) AS c FROM TUMBLE(
  (SELECT ts, COUNT(*) OVER (PARTITION BY auction ORDER BY ts) AS n FROM bids), DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end;

--- of what windows give
CREATE VIEW windows AS SELECT window_time AS at, auction, COUNT(*) AS n
FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, window_time, auction;
SELECT at, auction, n, SUM(n) OVER (PARTITION BY auction ORDER BY at) AS so_far, LAG(at) OVER (PARTITION BY auction ORDER BY at) AS before
FROM windows;

--- of an interval join
SELECT b.ms, p.ms, COUNT(*) OVER (PARTITION BY p.city ORDER BY b.ts) AS n FROM bids AS b JOIN people AS p
ON b.bidder = p.name AND b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND;

--- joined by an interval
SELECT x.ms, x.n, p.ms FROM (SELECT ms, ts, bidder, ROW_NUMBER() OVER (PARTITION BY bidder ORDER BY ts) AS n FROM bids) AS x
JOIN people AS p ON x.bidder = p.name AND x.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND;

--- of a table of several files
CREATE TABLE parts (ms BIGINT, k STRING, v INT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' HOUR)
WITH ('connector' = 'file', 'path' = 'data/parts/*.csv');
SELECT ms, k, v, ROW_NUMBER() OVER (ORDER BY ts) AS n FROM parts;

--- explain
-- explain
EXPLAIN SELECT ms, SUM(price) OVER (PARTITION BY auction ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS s,
  ROW_NUMBER() OVER (PARTITION BY auction ORDER BY ts) AS n FROM bids;

--- no ORDER BY
SELECT SUM(price) OVER (PARTITION BY auction) FROM bids;

--- ORDER BY something else
SELECT SUM(price) OVER (PARTITION BY auction ORDER BY price) FROM bids;

--- ORDER BY two columns
SELECT SUM(price) OVER (PARTITION BY auction ORDER BY ts, price) FROM bids;

--- descending
SELECT SUM(price) OVER (ORDER BY ts DESC) FROM bids;

--- later rows
SELECT SUM(price) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM bids;

--- LEAD
SELECT LEAD(price) OVER (ORDER BY ts) FROM bids;

--- GROUPS
SELECT SUM(price) OVER (ORDER BY ts GROUPS 2 PRECEDING) FROM bids;

--- a RANGE of months
SELECT SUM(price) OVER (ORDER BY ts RANGE INTERVAL '1' MONTH PRECEDING) FROM bids;

--- a RANGE without unit
SELECT SUM(price) OVER (ORDER BY ts RANGE 5 PRECEDING) FROM bids;

--- LAG by a column
SELECT LAG(price, auction) OVER (ORDER BY ts) FROM bids;

--- LAG backwards
SELECT LAG(price, -1) OVER (ORDER BY ts) FROM bids;

--- an order of arrival
SELECT ARRAY_AGG(price) OVER (ORDER BY ts) FROM bids;

--- over a running aggregate
SELECT SUM(n) OVER (ORDER BY m) FROM (SELECT auction, COUNT(*) AS n, MAX(ts) AS m FROM bids GROUP BY auction);

--- a table without event time
CREATE TABLE plain (ms BIGINT, k STRING) WITH ('connector' = 'file', 'path' = 'data/short.csv');
SELECT COUNT(*) OVER (ORDER BY ms) FROM plain;

--- a function that needs OVER
SELECT ROW_NUMBER() FROM bids;

--- a window that is not defined
SELECT SUM(price) OVER w FROM bids;

--- rows of one time are in the order of their files, whoever computes them
CREATE TABLE both (v INT, ts TIMESTAMP(3), k STRING, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/ties/?.csv');
SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS n, LAG(v) OVER (PARTITION BY k ORDER BY ts) AS before FROM both;

--- a row that is late is left out whether or not the value is read
-- table
SELECT 'read' AS what, COUNT(*) AS n FROM (SELECT ms, SUM(ms) OVER (ORDER BY ts) AS s FROM strict) WHERE s IS NOT NULL
UNION ALL SELECT 'not read', COUNT(*) FROM (SELECT ms, SUM(ms) OVER (ORDER BY ts) AS s FROM strict)
UNION ALL SELECT 'one of two', COUNT(*) FROM (SELECT ms, SUM(ms) OVER (ORDER BY ts) AS s,
  COUNT(*) OVER (PARTITION BY auction ORDER BY ts) AS n FROM strict) WHERE n > 0;

--- a value that is never read is not computed
-- explain
EXPLAIN SELECT ms FROM (SELECT ms, SUM(ms) OVER (ORDER BY ts) AS s, COUNT(*) OVER (PARTITION BY auction ORDER BY ts) AS n FROM strict);

--- without an order by event time no row is late
-- last per 0
SELECT COUNT(*) AS n FROM (SELECT ms, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price) AS n FROM strict);
