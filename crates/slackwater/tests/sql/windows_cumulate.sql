-- CUMULATE: windows that begin together and end one step after the other.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE strict (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

--- CUMULATE has the step first
SELECT window_start, window_end, COUNT(*) AS n
FROM TABLE(CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND)) GROUP BY window_start, window_end;

--- by key, and by window_end only
SELECT window_end, auction, COUNT(*) AS n
FROM CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND) GROUP BY window_end, auction;

--- a step as long as the window is TUMBLE
SELECT window_start, window_end, window_time, COUNT(*) AS n
FROM CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '10' SECOND) GROUP BY window_start, window_end, window_time;

--- rows with their windows
SELECT window_start, window_end, window_time, bidder
FROM CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND) WHERE auction = 2;

--- late for the first windows and not for the last
SELECT window_start, window_end, COUNT(*) AS n
FROM CUMULATE(TABLE strict, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND) GROUP BY window_start, window_end;

--- joined over the same window
SELECT a.window_start, a.window_end, a.n, b.highest FROM (
  SELECT window_start, window_end, auction, COUNT(*) AS n
  FROM CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND) GROUP BY window_start, window_end, auction) AS a
JOIN (
  SELECT window_start, window_end, auction, MAX(price) AS highest
  FROM CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND) GROUP BY window_start, window_end, auction) AS b
ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.auction = b.auction;

--- an aggregate of aggregates
SELECT window_start, window_end, MAX(n) AS most FROM (
  SELECT window_start, window_end, auction, COUNT(*) AS n
  FROM CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND) GROUP BY window_start, window_end, auction) AS c
GROUP BY window_start, window_end;

--- EXPLAIN
-- explain
EXPLAIN SELECT window_start, window_end, COUNT(*) AS n
FROM CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND) GROUP BY window_start, window_end;

--- window_start alone does not identify a window
SELECT window_start, COUNT(*) AS n
FROM CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND) GROUP BY window_start;

--- a size that is not a multiple of the step
SELECT window_end, COUNT(*) AS n
FROM CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '15' SECOND) GROUP BY window_end;

--- without a size
SELECT window_end, COUNT(*) AS n FROM CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '4' SECOND) GROUP BY window_end;

--- PARTITION BY
SELECT window_end, COUNT(*) AS n
FROM CUMULATE(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '20' SECOND) GROUP BY window_end;
