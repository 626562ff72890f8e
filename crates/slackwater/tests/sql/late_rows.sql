-- Late rows go to a table of their own.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE strict (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE late (bidder STRING, ts TIMESTAMP(3), price DOUBLE)
WITH ('connector' = 'file', 'path' = 'out/late.csv');

CREATE TABLE counts (start TIMESTAMP(3), n BIGINT) WITH ('connector' = 'file', 'path' = 'out/counts.csv');

--- SET
SET 'late_rows' = 'late';
INSERT INTO counts SELECT window_start, COUNT(*) FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '5' SECOND)
GROUP BY window_start, window_end;

--- the option of the source's table
CREATE TABLE own (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv', 'late_rows' = 'late');
INSERT INTO counts SELECT window_start, COUNT(*) FROM TUMBLE(TABLE own, DESCRIPTOR(ts), INTERVAL '5' SECOND)
GROUP BY window_start, window_end;

--- a row that is late for some of its windows is not late
SET 'late_rows' = 'late';
INSERT INTO counts SELECT window_start, COUNT(*) FROM HOP(TABLE strict, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '4' SECOND)
GROUP BY window_start, window_end;

--- of sessions
SET 'late_rows' = 'late';
INSERT INTO counts SELECT window_start, COUNT(*) FROM SESSION(TABLE strict, DESCRIPTOR(ts), INTERVAL '3' SECOND)
GROUP BY window_start, window_end;

--- of count windows
SET 'late_rows' = 'late';
INSERT INTO counts SELECT window_start, COUNT(*) FROM COUNT_WINDOW(TABLE strict, DESCRIPTOR(ts), 2)
GROUP BY window_start, window_end, window_number;

--- with allowed lateness only what is later
SET 'late_rows' = 'late';
SET 'allowed_lateness' = '1 s';
INSERT INTO counts SELECT window_start, COUNT(*) FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '1' SECOND)
GROUP BY window_start, window_end;

--- of the statements that follow, and of one source once
INSERT INTO counts SELECT window_start, COUNT(*) FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '1' SECOND)
GROUP BY window_start, window_end;
SET 'late_rows' = 'late';
SELECT window_start, MAX(price) AS highest FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '5' SECOND)
GROUP BY window_start, window_end;
CREATE TABLE lows (window_start TIMESTAMP(3), lowest DOUBLE) WITH ('connector' = 'file', 'path' = 'out/lows.csv');
INSERT INTO lows SELECT window_start, MIN(price) AS lowest FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '5' SECOND)
GROUP BY window_start, window_end;

--- of two window functions
SET 'late_rows' = 'late';
INSERT INTO counts SELECT window_start, COUNT(*) FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '5' SECOND)
GROUP BY window_start, window_end
UNION ALL SELECT window_start, COUNT(*) FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '2' SECOND)
GROUP BY window_start, window_end;

--- rows that a condition leaves out are not late
SET 'late_rows' = 'late';
SELECT window_start, bidder FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '5' SECOND) WHERE bidder <> 'dave';

--- columns with other types
CREATE TABLE strings (ms STRING, price DECIMAL(8, 3)) WITH ('connector' = 'file', 'path' = 'out/strings.csv');
SET 'late_rows' = 'strings';
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '5' SECOND) GROUP BY window_start, window_end;

--- EXPLAIN
-- explain
SET 'late_rows' = 'late';
EXPLAIN SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '5' SECOND)
GROUP BY window_start, window_end;

--- a table that does not exist
SET 'late_rows' = 'lates';
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '5' SECOND) GROUP BY window_start, window_end;

--- a table that does not exist, in WITH
CREATE TABLE own (ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv', 'late_rows' = 'lates');
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE own, DESCRIPTOR(ts), INTERVAL '5' SECOND) GROUP BY window_start, window_end;

--- a column that late rows do not have
CREATE TABLE other (bidder STRING, city STRING) WITH ('connector' = 'file', 'path' = 'out/other.csv');
SET 'late_rows' = 'other';
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '5' SECOND) GROUP BY window_start, window_end;

--- a column of another type
CREATE TABLE other (bidder TIMESTAMP(3), price BOOLEAN) WITH ('connector' = 'file', 'path' = 'out/other.csv');
SET 'late_rows' = 'other';
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '5' SECOND) GROUP BY window_start, window_end;
