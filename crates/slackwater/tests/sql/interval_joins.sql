-- Joins of two streams whose event times are at most so far from each other.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

CREATE TABLE strict (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE fine (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms * 1000000, 9), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

--- inner, BETWEEN
SELECT b.ms, b.bidder, p.ms, p.city FROM bids AS b JOIN people AS p
ON b.bidder = p.name AND b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND;

--- the sides changed, and bounds of the other one
SELECT b.ms, b.bidder, p.ms, p.city FROM people AS p JOIN bids AS b
ON b.bidder = p.name AND p.ts <= b.ts + INTERVAL '5' SECOND AND b.ts - INTERVAL '10' SECOND <= p.ts;

--- both bounds are excluded
SELECT b.ms, b.bidder, p.ms, p.city FROM bids AS b JOIN people AS p
ON b.bidder = p.name AND b.ts > p.ts - INTERVAL '0' SECOND AND b.ts < p.ts + INTERVAL '10.5' SECOND;

--- both bounds are included
SELECT b.ms, b.bidder, p.ms, p.city FROM bids AS b JOIN people AS p
ON b.bidder = p.name AND b.ts >= p.ts + INTERVAL '500' MILLISECOND AND b.ts <= p.ts + INTERVAL '10.5' SECOND;

--- an interval on one side, and several bounds: the narrowest applies
SELECT b.ms, p.ms FROM bids AS b JOIN people AS p ON b.bidder = p.name
AND p.ts BETWEEN b.ts - INTERVAL '1' HOUR AND b.ts - INTERVAL '1' SECOND AND p.ts >= b.ts - INTERVAL '10' SECOND;

--- an interval in which nothing lies
SELECT b.ms, p.ms FROM bids AS b LEFT JOIN people AS p ON b.bidder = p.name
AND p.ts BETWEEN b.ts + INTERVAL '5' SECOND AND b.ts - INTERVAL '5' SECOND;

--- conditions in WHERE
SELECT b.ms, b.bidder, p.ms, p.city FROM bids AS b, people AS p
WHERE b.bidder = p.name AND b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND AND b.price > 8;

--- left
SELECT b.ms, b.bidder, p.ms, p.city FROM bids AS b LEFT JOIN people AS p
ON b.bidder = p.name AND b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND;

--- right
SELECT b.ms, b.bidder, p.ms, p.name, p.city FROM bids AS b RIGHT JOIN people AS p
ON b.bidder = p.name AND b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND;

--- full, with another condition
SELECT b.ms, b.bidder, p.ms, p.name FROM bids AS b FULL JOIN people AS p
ON b.bidder = p.name AND b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND AND b.price > 10;

--- a condition that fails for a pair refuses that pair, and its rows are not padded
SELECT b.ms, p.ms FROM bids AS b LEFT JOIN people AS p
ON b.bidder = p.name AND b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND
AND 10 / (b.auction - 2) < p.ms;

--- without equal keys
SELECT b.ms, p.ms, p.name FROM bids AS b JOIN people AS p
ON b.ts BETWEEN p.ts - INTERVAL '1' SECOND AND p.ts + INTERVAL '1' SECOND;

--- equal times
SELECT a.ms, b.ms, a.bidder FROM bids AS a JOIN fine AS b ON a.ts = b.ts AND a.auction = b.auction;

--- equal times, moved
SELECT a.ms, b.ms FROM bids AS a JOIN bids AS b ON a.ts = b.ts + INTERVAL '1' SECOND;

--- times finer than a microsecond
SELECT a.ms, b.ms FROM fine AS a JOIN bids AS b
ON a.bidder = b.bidder AND a.ts > b.ts AND a.ts < b.ts + INTERVAL '10' SECOND;

--- a join with itself
SELECT a.ms, b.ms, a.bidder FROM bids AS a JOIN bids AS b
ON a.bidder = b.bidder AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL '20' SECOND;

--- rows at their own watermark are late, on either side
SELECT a.ms, b.ms FROM strict AS a JOIN bids AS b ON a.ms = b.ms
AND a.ts BETWEEN b.ts - INTERVAL '1' SECOND AND b.ts + INTERVAL '1' SECOND;

--- one of the same time is late, too, where the watermark has no delay
CREATE TABLE twice (ms BIGINT, auction INT, bidder STRING, price DOUBLE, ts AS TO_TIMESTAMP_LTZ(ms / 10000, 0), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');
SELECT a.ms, b.ms FROM twice AS a JOIN bids AS b ON a.ms = b.ms
AND a.ts BETWEEN b.ts - INTERVAL '1' DAY AND b.ts + INTERVAL '1' DAY;

--- windows after it, by either time
CREATE VIEW pairs AS SELECT b.ts AS bid_at, p.ts AS seen_at, b.price FROM bids AS b JOIN people AS p
ON b.bidder = p.name AND b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND;
CREATE TABLE by_bid (at TIMESTAMP(3), n BIGINT) WITH ('connector' = 'file', 'path' = 'out/by_bid.csv');
CREATE TABLE by_seen (at TIMESTAMP(3), n BIGINT) WITH ('connector' = 'file', 'path' = 'out/by_seen.csv');
INSERT INTO by_bid SELECT window_start, COUNT(*)
FROM TUMBLE(TABLE pairs, DESCRIPTOR(bid_at), INTERVAL '2' SECOND) GROUP BY window_start, window_end;
INSERT INTO by_seen SELECT window_start, COUNT(*)
FROM TUMBLE(TABLE pairs, DESCRIPTOR(seen_at), INTERVAL '2' SECOND) GROUP BY window_start, window_end;

--- windows after an outer one, by the side that is kept
SELECT window_start, COUNT(*) AS n, COUNT(name) AS names FROM TUMBLE((SELECT b.ts, p.name FROM bids AS b LEFT JOIN people AS p
  ON b.bidder = p.name AND b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND),
  DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- the side that is padded has no event time
SELECT window_start, COUNT(*) FROM TUMBLE((SELECT p.ts FROM bids AS b LEFT JOIN people AS p
  ON b.bidder = p.name AND b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND),
  DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- of what windows give
CREATE VIEW tens AS SELECT window_time AS at, auction, COUNT(*) AS n
FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, window_time, auction;
SELECT a.at, a.auction, a.n, b.at, b.n FROM tens AS a LEFT JOIN tens AS b
ON a.auction = b.auction AND a.at > b.at AND a.at <= b.at + INTERVAL '10' SECOND;

--- of an interval join
SELECT x.bms, x.pms, y.ms FROM (SELECT b.ts, b.ms AS bms, p.ms AS pms, b.bidder FROM bids AS b JOIN people AS p
  ON b.bidder = p.name AND b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND) AS x
JOIN bids AS y ON x.bidder = y.bidder AND y.ts > x.ts AND y.ts < x.ts + INTERVAL '30' SECOND;

--- USING
SELECT ms, a.price, b.price FROM bids AS a JOIN strict AS b USING (ms)
WHERE a.ts BETWEEN b.ts - INTERVAL '1' SECOND AND b.ts + INTERVAL '1' SECOND;

--- explain
-- explain
EXPLAIN SELECT b.ms, p.ms FROM bids AS b LEFT JOIN people AS p
ON b.bidder = p.name AND b.price > 10 AND b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND;
