-- COUNT_WINDOW: so many rows of a key, in order of event time.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE strict (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

--- rows with their window
SELECT window_number, window_start, window_end, window_time, bidder
FROM COUNT_WINDOW(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), 3);

--- aggregated
SELECT window_start, window_end, window_number, auction, COUNT(*) AS n, MAX(price) AS highest, FIRST_VALUE(bidder) AS first_bidder
FROM TABLE(COUNT_WINDOW(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), 2)) GROUP BY window_start, window_end, window_number, auction;

--- of all rows, the last window is not full
SELECT window_number, SUM(price) AS total FROM COUNT_WINDOW(TABLE bids, DESCRIPTOR(ts), 4)
GROUP BY window_start, window_end, window_number;

--- sliding: slide first
SELECT window_number, bidder FROM COUNT_WINDOW(TABLE bids, DESCRIPTOR(ts), 2, 3);

--- with gaps
SELECT window_number, bidder FROM COUNT_WINDOW(TABLE bids, DESCRIPTOR(ts), 3, 1);

--- a condition after the window
SELECT window_number, bidder FROM COUNT_WINDOW(TABLE bids, DESCRIPTOR(ts), 3) WHERE bidder = 'bob';

--- rows after the watermark are late
SELECT window_number, window_start, COUNT(*) AS n FROM COUNT_WINDOW(TABLE strict, DESCRIPTOR(ts), 3)
GROUP BY window_start, window_end, window_number;

--- windows of count windows
SELECT window_start, COUNT(*) AS full_windows FROM TUMBLE((
  SELECT window_time AS at, window_number FROM COUNT_WINDOW(TABLE bids, DESCRIPTOR(ts), 2)
  GROUP BY window_start, window_end, window_time, window_number), DESCRIPTOR(at), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- EXPLAIN
-- explain
EXPLAIN SELECT window_number, auction, COUNT(*) AS n FROM COUNT_WINDOW(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), 100)
GROUP BY window_start, window_end, window_number, auction;

--- without window_number
SELECT COUNT(*) AS n FROM COUNT_WINDOW(TABLE bids, DESCRIPTOR(ts), 4) GROUP BY window_start, window_end;

--- no rows
SELECT window_number FROM COUNT_WINDOW(TABLE bids, DESCRIPTOR(ts), 0);

--- too many rows
SELECT window_number FROM COUNT_WINDOW(TABLE bids, DESCRIPTOR(ts), 10000000);

--- an interval
SELECT window_number FROM COUNT_WINDOW(TABLE bids, DESCRIPTOR(ts), INTERVAL '3' SECOND);

--- without a number
SELECT window_number FROM COUNT_WINDOW(TABLE bids, DESCRIPTOR(ts));
