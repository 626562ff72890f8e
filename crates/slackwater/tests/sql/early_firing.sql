-- Windows that are emitted before they close, and after.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE strict (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

--- early firing: the last row of each window is its value
-- last per 2
SET 'emit' = 'every 1 ms';
SELECT window_start, auction, COUNT(*) AS n, SUM(price) AS total FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, auction;

--- early firing of HOP and CUMULATE
-- last per 2
SET 'emit' = 'every 1 ms';
SELECT window_start, window_end, COUNT(*) AS n FROM HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)
GROUP BY window_start, window_end
UNION ALL
SELECT window_start, window_end, COUNT(*) AS n FROM CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '15' SECOND, INTERVAL '30' SECOND)
GROUP BY window_start, window_end;

--- allowed lateness: late rows change their window
-- last per 1
SET 'allowed_lateness' = '10 s';
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '3' SECOND) GROUP BY window_start, window_end;

--- until it is over
-- last per 1
SET 'allowed_lateness' = '1 s';
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY window_start, window_end;

--- both
-- last per 1
SET 'allowed_lateness' = '1 min';
SET 'emit' = 'every 1 ms';
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY window_start, window_end;

--- late rows without GROUP BY
SET 'allowed_lateness' = '10 s';
SELECT window_start, bidder FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '3' SECOND);

--- an aggregate over windows that change
-- last per 1
SET 'allowed_lateness' = '10 s';
SELECT auction, SUM(n) AS n FROM (
  SELECT window_start, auction, COUNT(*) AS n FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '3' SECOND)
  GROUP BY window_start, window_end, auction) AS w GROUP BY auction;

--- EXPLAIN
-- explain
SET 'emit' = 'every 1 s';
SET 'allowed_lateness' = '10 min';
EXPLAIN SELECT window_start, auction, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, auction;

--- no interval
SET 'emit' = 'every now and then';
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start;

--- an interval of zero
SET 'emit' = 'every 0 s';
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start;

--- a lateness that is not valid
SET 'allowed_lateness' = 'a bit';
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start;

--- windows of windows that change
SET 'allowed_lateness' = '10 s';
SELECT window_start, SUM(n) AS n FROM TUMBLE((
  SELECT window_time AS at, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND)
  GROUP BY window_start, window_end, window_time), DESCRIPTOR(at), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- a join in windows with allowed lateness
SET 'allowed_lateness' = '10 s';
CREATE VIEW l AS SELECT * FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND);
SELECT l.bidder, r.bidder FROM l JOIN l AS r ON l.window_start = r.window_start AND l.window_end = r.window_end AND l.auction = r.auction;

--- nothing that it could emit early
-- last per 1
SET 'emit' = 'every 1 s';
SELECT auction, COUNT(*) AS n FROM bids GROUP BY auction;
