-- Wrong sessions, and the old form of group windows.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE strict (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

--- without a gap
SELECT COUNT(*) FROM SESSION(TABLE bids, DESCRIPTOR(ts)) GROUP BY window_start, window_end;

--- a gap that is a number
SELECT COUNT(*) FROM SESSION(TABLE bids, DESCRIPTOR(ts), 10) GROUP BY window_start, window_end;

--- PARTITION BY a column that does not exist
SELECT COUNT(*) FROM SESSION(TABLE bids PARTITION BY biddr, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- PARTITION BY an expression
SELECT COUNT(*) FROM SESSION(TABLE bids PARTITION BY auction + 1, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- PARTITION BY after DESCRIPTOR
SELECT COUNT(*) FROM SESSION(TABLE bids, DESCRIPTOR(ts) PARTITION BY auction, INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- PARTITION BY in TUMBLE
SELECT COUNT(*) FROM TUMBLE(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- window_start alone, which does not identify a session
SELECT window_start, COUNT(*) FROM SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start;

--- sessions of updates
SELECT COUNT(*) FROM SESSION((SELECT auction, MAX(ts) AS ts FROM bids GROUP BY auction), DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- early firing of sessions
SET 'emit' = 'every 1 s';
SELECT window_start, window_end, COUNT(*) FROM SESSION(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- allowed lateness of sessions
SET 'allowed_lateness' = '10 s';
SELECT window_start, window_end, COUNT(*) FROM SESSION(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- the old form of SESSION
SELECT bidder, COUNT(*) FROM bids GROUP BY bidder, SESSION(ts, INTERVAL '10' SECOND);

--- the old form of HOP
SELECT COUNT(*) FROM bids GROUP BY HOP(ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND);

--- the old form of a window's start
SELECT TUMBLE_START(ts, INTERVAL '10' SECOND), COUNT(*) FROM bids GROUP BY ts;
