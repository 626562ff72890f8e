-- Running aggregates: a change per key, merged within a chunk or one per row.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

--- counts per key
-- last per 1
SELECT auction, COUNT(*) AS n, SUM(price) AS total FROM bids GROUP BY auction;

--- one update per row
SET 'emit' = 'every_row';
SELECT auction, COUNT(*) AS n, SUM(price) AS total FROM bids GROUP BY auction;

--- without a key
-- last per 0
SELECT COUNT(*) AS n, MAX(price) AS highest, COUNT(DISTINCT bidder) AS bidders FROM bids GROUP BY 1 = 1;

--- without GROUP BY, one update per row
SET 'emit' = 'every_row';
SELECT COUNT(*) AS n, MAX(price) AS highest, AVG(auction) AS a FROM bids;

--- every aggregate
-- last per 1
SELECT auction, MIN(price) AS lo, MAX(price) AS hi, AVG(price) AS a, FIRST_VALUE(bidder) AS f, LAST_VALUE(bidder) AS l,
  COUNT(DISTINCT bidder) AS d, COUNT(*) FILTER (WHERE price > 10) AS high, median(price) AS middle, bool_and(price > 1) AS b
FROM bids GROUP BY auction;

--- DISTINCT
-- last per 2
SELECT DISTINCT auction, bidder FROM bids;

--- a projection of a running aggregate
-- last per 1
SELECT upper(bidder) AS who, n * 10 AS tens FROM (SELECT bidder, COUNT(*) AS n FROM bids WHERE bidder IS NOT NULL GROUP BY bidder);

--- a condition on the key is put before the aggregation
-- last per 1
SELECT * FROM (SELECT auction, COUNT(*) AS n FROM bids GROUP BY auction) WHERE auction <> 3;

--- HAVING on the key
-- last per 1
SELECT auction, COUNT(*) AS n FROM bids GROUP BY auction HAVING auction <> 3;

--- keys of several columns, one of them NULL
-- last per 2
SELECT bidder, auction, COUNT(*) AS n FROM bids GROUP BY bidder, auction;

--- words of lines, after a union
-- last per 1
CREATE TABLE lines (line STRING) WITH ('connector' = 'file', 'path' = 'data/lines.txt', 'format' = 'raw');
SELECT word, COUNT(*) AS n FROM (
  SELECT split_part(line, ' ', 1) AS word FROM lines UNION ALL SELECT split_part(line, ' ', 2) FROM lines
  UNION ALL SELECT split_part(line, ' ', 3) FROM lines WHERE split_part(line, ' ', 3) <> ''
) GROUP BY word;

--- each file is a unit of work
CREATE TABLE parts (ms BIGINT, k STRING, v INT)
WITH ('connector' = 'file', 'path' = 'data/parts/*.csv', 'unit_of_work' = 'file');
CREATE TABLE result (k STRING, n BIGINT, total BIGINT) WITH ('connector' = 'file', 'path' = 'out/result.csv');
SET 'emit' = 'every_row';
INSERT INTO result SELECT k, COUNT(*), SUM(v) FROM parts GROUP BY k;

--- a total of no rows
SELECT COUNT(*) AS n, COUNT(price) AS c, SUM(price) AS s, MIN(bidder) AS b, AVG(price) AS a, FIRST_VALUE(price) AS f FROM bids WHERE price > 1000;

--- a group without rows is not emitted
SELECT auction, COUNT(*) AS n FROM bids WHERE price > 1000 GROUP BY auction;
