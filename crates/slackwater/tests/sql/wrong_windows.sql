-- Wrong windows.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

CREATE TABLE timeless (ms BIGINT, auction INT, bidder STRING, price DOUBLE, ts AS TO_TIMESTAMP_LTZ(ms, 3))
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

--- a table without a watermark
SELECT window_start, COUNT(*) FROM TUMBLE(TABLE timeless, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- a column that is not the event time
CREATE VIEW other AS SELECT ts + INTERVAL '1' HOUR AS later, ts FROM bids;
SELECT window_start, COUNT(*) FROM TUMBLE(TABLE other, DESCRIPTOR(later), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- a column that is not a time
SELECT window_start, COUNT(*) FROM TUMBLE(TABLE bids, DESCRIPTOR(ms), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- a column that does not exist
SELECT window_start, COUNT(*) FROM TUMBLE(TABLE bids, DESCRIPTOR(tz), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- a table that does not exist
SELECT window_start, COUNT(*) FROM TUMBLE(TABLE bidz, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- a misspelt window function
SELECT window_start, COUNT(*) FROM TUMBEL(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- TUMBLE without a length
SELECT window_start, COUNT(*) FROM TUMBLE(TABLE bids, DESCRIPTOR(ts)) GROUP BY window_start, window_end;

--- TUMBLE with too many arguments
SELECT window_start, COUNT(*) FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- HOP with one length
SELECT window_start, COUNT(*) FROM HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- a length that is a number
SELECT window_start, COUNT(*) FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), 10) GROUP BY window_start, window_end;

--- a length that is a column
SELECT window_start, COUNT(*) FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), ms) GROUP BY window_start, window_end;

--- a negative length
SELECT window_start, COUNT(*) FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '-10' SECOND) GROUP BY window_start, window_end;

--- a length of zero
SELECT window_start, COUNT(*) FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '0' SECOND) GROUP BY window_start, window_end;

--- a length of a month
SELECT window_start, COUNT(*) FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MONTH) GROUP BY window_start, window_end;

--- a length of less than a microsecond
SELECT window_start, COUNT(*) FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' NANOSECOND) GROUP BY window_start, window_end;

--- too many windows per row
SELECT window_start, COUNT(*) FROM HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MILLISECOND, INTERVAL '1' DAY) GROUP BY window_start, window_end;

--- DESCRIPTOR of two columns
SELECT window_start, COUNT(*) FROM TUMBLE(TABLE bids, DESCRIPTOR(ts, ms), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- DESCRIPTOR of an expression
SELECT window_start, COUNT(*) FROM TUMBLE(TABLE bids, DESCRIPTOR(ts + INTERVAL '1' SECOND), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- arguments in the wrong order
SELECT window_start, COUNT(*) FROM TUMBLE(DESCRIPTOR(ts), TABLE bids, INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- a window that is not closed
SELECT window_start, COUNT(*) FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND GROUP BY window_start, window_end;

--- windows over a running aggregate
SELECT window_start, MAX(n) FROM TUMBLE((SELECT MAX(ts) AS ts, COUNT(*) AS n FROM bids GROUP BY auction), DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- two windows by the same event time
SELECT window_start FROM TUMBLE((SELECT ts FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND)), DESCRIPTOR(ts), INTERVAL '10' SECOND);

--- a window over an input that has window_start already
CREATE VIEW five AS SELECT window_start, window_end, window_time, auction FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND);
SELECT COUNT(*) FROM TUMBLE(TABLE five, DESCRIPTOR(window_time), INTERVAL '10' SECOND) GROUP BY auction;

--- window_time of a LEFT JOIN's padded side
SELECT window_start FROM TUMBLE((
  SELECT r.at FROM (SELECT window_start, window_end, bidder FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND)) AS l
  LEFT JOIN (SELECT window_start, window_end, window_time AS at, name FROM TUMBLE(TABLE people, DESCRIPTOR(ts), INTERVAL '5' SECOND)) AS r
  ON l.window_start = r.window_start AND l.window_end = r.window_end AND l.bidder = r.name), DESCRIPTOR(at), INTERVAL '10' SECOND);

--- window_start without a window function
SELECT window_start, COUNT(*) FROM bids GROUP BY window_start;

--- the old form of group windows
SELECT COUNT(*) FROM bids GROUP BY TUMBLE(ts, INTERVAL '10' SECOND);

--- COUNT_WINDOW by its start alone
SELECT window_start, COUNT(*) FROM COUNT_WINDOW(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), 2) GROUP BY window_start;

--- windows by the PROCTIME() of a view
CREATE VIEW clocked AS SELECT bidder, PROCTIME() AS p_time FROM bids;
SELECT bidder, COUNT(*) FROM TUMBLE(TABLE clocked, DESCRIPTOR(p_time), INTERVAL '10' SECOND) GROUP BY window_start, window_end, bidder;

--- an operator in a window
SELECT COUNT(*) FROM TUMBLE(TABLE clip(TABLE bids, 1, 2), DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;
