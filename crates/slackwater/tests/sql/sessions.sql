-- SESSION: rows of a key that are less than a gap apart.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE strict (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

--- by key
SELECT window_start, window_end, bidder, COUNT(*) AS n, SUM(price) AS total
FROM TABLE(SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '6' SECOND))
GROUP BY window_start, window_end, bidder;

--- of all rows
SELECT window_start, window_end, COUNT(*) AS n
FROM SESSION(TABLE bids, DESCRIPTOR(ts), INTERVAL '6' SECOND) GROUP BY window_start, window_end;

--- a distance of the gap is another session
SELECT window_start, window_end, COUNT(*) AS n
FROM SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '8' SECOND) GROUP BY window_start, window_end, auction;

--- either edge is enough
SELECT window_end, auction, MIN(price) AS least FROM SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '7' SECOND)
GROUP BY window_end, auction;

--- by two keys, in another order, with names of its own
SELECT b AS who, s, COUNT(*) AS n, FIRST_VALUE(price) AS first_price FROM (
  SELECT window_start AS s, window_end AS e, bidder AS b, auction AS a, price
  FROM SESSION(TABLE bids PARTITION BY bidder, auction, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS w
GROUP BY a, e, s, b;

--- HAVING, FILTER and DISTINCT
SELECT window_start, auction, COUNT(*) AS n, COUNT(*) FILTER (WHERE price > 10) AS dear, COUNT(DISTINCT bidder) AS bidders
FROM SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '9' SECOND)
GROUP BY window_start, window_end, auction HAVING COUNT(*) > 1;

--- rows with the edges of their session, not aggregated
SELECT window_start, window_end, window_time, ts, bidder
FROM SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '6' SECOND);

--- SELECT * has the window's columns last
SELECT * FROM SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '9' SECOND) WHERE auction = 2;

--- a condition after the window does not change sessions
SELECT window_start, window_end, bidder, price
FROM SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '9' SECOND) WHERE bidder = 'carol';

--- a condition before it does
SELECT window_start, window_end, bidder, price
FROM SESSION((SELECT * FROM bids WHERE bidder = 'carol') PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '9' SECOND);

--- grouped by more than the partition
SELECT window_start, window_end, auction, bidder, COUNT(*) AS n
FROM SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '9' SECOND) GROUP BY window_start, window_end, auction, bidder;

--- grouped by less than the partition: sessions with the same edges
SELECT window_start, window_end, COUNT(*) AS n
FROM SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '9' SECOND) GROUP BY window_start, window_end;

--- the length of a session
SELECT window_start, bidder, CAST(window_end AS BIGINT) - CAST(window_start AS BIGINT) - 6000 AS ms, COUNT(*) AS n
FROM SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '6' SECOND) GROUP BY window_start, window_end, bidder;

--- an aggregate that looks at the edges
SELECT bidder, window_end, MAX(CAST(window_end AS BIGINT) - ms) AS ms
FROM SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '6' SECOND) GROUP BY window_start, window_end, bidder;

--- windows of sessions
SELECT window_start, window_end, SUM(n) AS n, COUNT(*) AS sessions FROM TUMBLE((
  SELECT window_time AS at, bidder, COUNT(*) AS n
  FROM SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '6' SECOND) GROUP BY window_start, window_end, window_time, bidder),
  DESCRIPTOR(at), INTERVAL '20' SECOND) GROUP BY window_start, window_end;

--- an aggregate of aggregates
SELECT window_start, window_end, COUNT(*) AS bidders, SUM(n) AS n FROM (
  SELECT window_start, window_end, bidder, COUNT(*) AS n
  FROM SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '6' SECOND) GROUP BY window_start, window_end, bidder) AS s
GROUP BY window_start, window_end;

--- named arguments, as in Flink
SELECT window_start, window_end, bidder, COUNT(*) AS n
FROM TABLE(SESSION(DATA => TABLE bids PARTITION BY bidder, TIMECOL => DESCRIPTOR(ts), GAP => INTERVAL '6' SECONDS))
GROUP BY window_start, window_end, bidder;

--- a row is late when the session that it alone would make is closed
SELECT window_start, window_end, auction, COUNT(*) AS n
FROM SESSION(TABLE strict PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '2' SECOND) GROUP BY window_start, window_end, auction;

--- a row after the watermark joins the sessions that are open
SELECT window_start, window_end, COUNT(*) AS n
FROM SESSION(TABLE strict, DESCRIPTOR(ts), INTERVAL '3' SECOND) GROUP BY window_start, window_end;

--- several files
CREATE TABLE parts (ms BIGINT, k STRING, n INT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/parts/*');
SELECT window_start, window_end, k, COUNT(*) AS n
FROM SESSION(TABLE parts PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND) GROUP BY window_start, window_end, k;

--- EXPLAIN
-- explain
EXPLAIN SELECT window_start, window_end, bidder, COUNT(*) AS n
FROM SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '6' SECOND) GROUP BY window_start, window_end, bidder;

--- EXPLAIN of rows
-- explain
EXPLAIN SELECT window_start, bidder FROM SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '6' SECOND);
