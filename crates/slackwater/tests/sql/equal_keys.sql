-- -0 equals 0 and every NaN equals every other, as the key of every operator that keeps state by key.

CREATE TABLE zeros (n INT, d DOUBLE, f FLOAT, ts AS TO_TIMESTAMP_LTZ(n * 1000, 3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/zeros.csv');

CREATE TABLE versions (n INT, d DOUBLE, f FLOAT, ts AS TO_TIMESTAMP_LTZ(n * 1000 + 500, 3),
  WATERMARK FOR ts AS ts, PRIMARY KEY (d) NOT ENFORCED)
WITH ('connector' = 'file', 'path' = 'data/zeros.csv');

CREATE TABLE plain (n INT, d DOUBLE, f FLOAT) WITH ('connector' = 'file', 'path' = 'data/zeros.csv');

--- GROUP BY, running
-- last per 1
SELECT d, COUNT(*) AS n FROM zeros GROUP BY d;

--- GROUP BY, over rows that may go
-- table
SELECT groups_of, COUNT(*) AS n FROM (SELECT d AS groups_of, f, COUNT(*) AS c FROM zeros GROUP BY d, f)
GROUP BY groups_of;

--- GROUP BY in windows
SELECT window_end, d, COUNT(*) AS n
FROM TUMBLE(TABLE zeros, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_end, d;

--- GROUP BY two keys in windows
SELECT window_end, f, d, COUNT(*) AS n
FROM TUMBLE(TABLE zeros, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_end, f, d;

--- distinct values within an aggregate, the least and the greatest
SELECT COUNT(DISTINCT d) AS doubles, COUNT(DISTINCT f) AS floats, MIN(d) AS least, MAX(d) AS greatest,
  PERCENTILE_CONT(1.0) WITHIN GROUP (ORDER BY d) AS last
FROM TUMBLE(TABLE zeros, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_end;

--- sessions
SELECT window_end, d, COUNT(*) AS n
FROM SESSION(TABLE zeros PARTITION BY d, DESCRIPTOR(ts), INTERVAL '6' SECOND) GROUP BY window_start, window_end, d;

--- rows of sessions
SELECT n, window_start, window_end
FROM SESSION(TABLE zeros PARTITION BY d, DESCRIPTOR(ts), INTERVAL '6' SECOND);

--- windows of so many rows
SELECT n, window_number FROM COUNT_WINDOW(TABLE zeros PARTITION BY d, DESCRIPTOR(ts), 2);

--- OVER, from the first row on
SELECT n, COUNT(*) OVER (PARTITION BY d ORDER BY ts) AS rows_so_far FROM zeros;

--- OVER, the last rows
SELECT n, SUM(n) OVER (PARTITION BY d ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS two FROM zeros;

--- DISTINCT
-- last per 1
SELECT DISTINCT d FROM zeros;

--- a join with a table
SELECT a.n, b.n AS other FROM zeros AS a JOIN plain AS b ON a.d = b.d WHERE a.n < b.n;

--- a join of two streams
SELECT a.n, b.n AS other FROM zeros AS a JOIN zeros AS b ON a.d = b.d WHERE a.n < b.n;

--- a join of two streams, one of which takes rows back
-- table
SELECT a.n, b.n AS other FROM (SELECT d, MAX(n) AS n FROM zeros GROUP BY d) AS a JOIN zeros AS b ON a.d = b.d;

--- an interval join
SELECT a.n, b.n AS other FROM zeros AS a JOIN zeros AS b
ON a.d = b.d AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '10' SECOND WHERE a.n < b.n;

--- a join with the versions of a table
SELECT z.n, v.n AS version FROM zeros AS z JOIN versions FOR SYSTEM_TIME AS OF z.ts AS v ON z.d = v.d;

--- a lookup join
SELECT z.n, p.n AS other FROM zeros AS z JOIN plain FOR SYSTEM_TIME AS OF PROCTIME() AS p ON z.d = p.d
WHERE z.n < p.n;

--- a window join
SELECT a.n, b.n AS other FROM TUMBLE(TABLE zeros, DESCRIPTOR(ts), INTERVAL '10' SECOND) AS a
JOIN TUMBLE(TABLE zeros, DESCRIPTOR(ts), INTERVAL '10' SECOND) AS b
ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.d = b.d WHERE a.n < b.n;

--- rows that have a partner
SELECT n FROM zeros WHERE d IN (SELECT d FROM versions WHERE n IN (2, 4));

--- top-N
-- last per 2
SELECT n, d FROM (SELECT n, d, ROW_NUMBER() OVER (PARTITION BY d ORDER BY n) AS r FROM zeros) WHERE r <= 1;

--- top-N in windows
SELECT n, d FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, d ORDER BY n) AS r
  FROM TUMBLE(TABLE zeros, DESCRIPTOR(ts), INTERVAL '10' SECOND)) WHERE r <= 1;

--- ORDER BY
-- in order
SET 'emit' = 'final';
SELECT n, d FROM zeros ORDER BY d, n;
