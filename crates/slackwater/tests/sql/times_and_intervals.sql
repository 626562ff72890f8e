-- Times before 1970, after 2262 and finer than their column; durations.

CREATE TABLE t (id INT, a TIMESTAMP(3), b TIMESTAMP(6), day DATE) WITH ('connector' = 'file', 'path' = 'data/edge_times.csv');

--- a literal that is finer than the column
SELECT id, a = TIMESTAMP '2024-01-01 00:00:00.0005' AS e, a < TIMESTAMP '2024-01-01 00:00:00.0005' AS l, CAST(CAST(a AS TIMESTAMP(6)) AS BIGINT) = 1704067200000010 AS c,
  a IN (TIMESTAMP '2024-01-01 00:00:00.0005', TIMESTAMP '2024-01-01 00:00:00') AS i, a BETWEEN TIMESTAMP '2023-12-31 23:59:59.9999' AND TIMESTAMP '2024-01-01 00:00:00.0001' AS w, b > a AS g FROM t;

--- casts to coarser times round down
SELECT id, CAST(a AS TIMESTAMP(0)) AS s, CAST(a AS TIMESTAMP(0)) = FLOOR(a TO SECOND) AS e, CAST(b AS TIMESTAMP(3)) AS ms, TRY_CAST(b AS TIMESTAMP(0)) AS t, CAST(a AS DATE) AS d, to_unixtime(a) AS u,
  to_timestamp_seconds(b) AS ts, to_timestamp_millis(b) AS tm, CAST(CAST(a AS TIMESTAMP(0)) AS STRING) AS c, CAST(TIMESTAMP '1969-12-31 23:59:59.5' AS TIMESTAMP(0)) AS k FROM t;

--- into a table's column of coarser times
CREATE TABLE o (s TIMESTAMP(0), d DATE) WITH ('connector' = 'file', 'path' = 'out/o.csv');
INSERT INTO o SELECT b, b FROM t;

--- parts of times before 1970
SELECT EXTRACT(SECOND FROM a) AS s, EXTRACT(EPOCH FROM a) AS e, date_part('millisecond', a) AS ms, EXTRACT(YEAR FROM a) AS y, HOUR(a) AS h, DATE_FORMAT(a, 'yyyy-MM-dd HH:mm:ss.SSS') AS f, to_char(a, '%H:%M:%S%.3f') AS c,
  TIMESTAMPADD(SECOND, 1, a) AS p, TIMESTAMPDIFF(SECOND, a, TIMESTAMP '1970-01-01 00:00:01') AS d, a + INTERVAL '1' SECOND AS q FROM t WHERE id = 1;

--- FLOOR and CEIL of all times
SELECT id, FLOOR(a TO YEAR) AS y, FLOOR(a TO QUARTER) AS q, FLOOR(a TO WEEK) AS w, FLOOR(a TO SECOND) AS s, CEIL(a TO YEAR) AS cy, CEIL(a TO MINUTE) AS cm, CEILING(b TO MILLISECOND) AS cb, date_trunc('day', a) AS d,
  date_bin(INTERVAL '15' MINUTE, a) AS b, date_bin(INTERVAL '1' MONTH, a, TIMESTAMP '2024-01-15 00:00:00') AS m FROM t;

--- far away
SELECT id, a > '9999-12-31' AS s, a > '4000-01-01 00:00:00.000001' AS f, a > DATE '4000-01-01' AS d, a = day AS n, COALESCE(a, day) AS c, EXTRACT(YEAR FROM a) AS y, TIMESTAMPADD(YEAR, 1, a) AS p,
  TIMESTAMPDIFF(YEAR, TIMESTAMP '2000-01-01 00:00:00', a) AS z, a - INTERVAL '1' YEAR AS m, TIMESTAMP '5000-01-01 00:00:00' < a AS k FROM t;

--- what is too far away rejects its row
SELECT id, CAST(a AS TIMESTAMP(9)) AS n FROM t;

--- windows before 1970
CREATE TABLE early (id INT, a TIMESTAMP(3), b TIMESTAMP(6), day DATE, WATERMARK FOR a AS a) WITH ('connector' = 'file', 'path' = 'data/edge_times.csv');
SELECT id, window_start, window_end FROM TUMBLE(TABLE early, DESCRIPTOR(a), INTERVAL '1' SECOND);

--- lengths of time are compared by their length
SELECT id, b - TIMESTAMP '2024-01-01 00:00:00' AS l, b - TIMESTAMP '2024-01-01 00:00:00' > INTERVAL '1' DAY AS g, b - TIMESTAMP '2024-01-01 00:00:00' BETWEEN INTERVAL '0' DAY AND INTERVAL '48' HOUR AS w,
  b - TIMESTAMP '2024-01-01 00:00:00' IN (INTERVAL '2' DAY, INTERVAL '500' MICROSECOND) AS i, INTERVAL '24' HOUR = INTERVAL '1' DAY AS e, INTERVAL '25' HOUR > INTERVAL '1' DAY AS m, -INTERVAL '25' HOUR < -INTERVAL '1' DAY AS n,
  INTERVAL '12' MONTH = INTERVAL '1' YEAR AS y, a - b < INTERVAL '0' SECOND AS z FROM t;

--- grouped, the longest and the shortest
-- last per 1
SELECT CASE WHEN id = 1 THEN INTERVAL '24' HOUR ELSE INTERVAL '1' DAY END AS l, COUNT(*) AS n FROM t GROUP BY CASE WHEN id = 1 THEN INTERVAL '24' HOUR ELSE INTERVAL '1' DAY END;

--- the longest and the shortest of all
-- last per 1
SELECT id - id AS k, MAX(l) AS longest, MIN(l) AS shortest, COUNT(DISTINCT l) AS n FROM
  (SELECT id, CASE id WHEN 1 THEN INTERVAL '25' HOUR WHEN 2 THEN INTERVAL '1' DAY ELSE INTERVAL '86400' SECOND END AS l FROM t) GROUP BY id - id;

--- months have no fixed length
SELECT a - b > INTERVAL '1' MONTH AS m FROM t;

--- nor have years, in a join
SELECT l.id FROM t AS l JOIN t AS r ON l.id = r.id AND l.a - r.b BETWEEN INTERVAL '0' DAY AND INTERVAL '1' YEAR;

--- an interval join by a difference
CREATE TABLE s (ms BIGINT, id INT, bidder STRING, price DOUBLE, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' DAY) WITH ('connector' = 'file', 'path' = 'data/bids.csv');
SELECT a.ms, b.ms AS other FROM s AS a JOIN s AS b ON a.id = b.id AND a.ts - b.ts BETWEEN INTERVAL '0' DAY AND INTERVAL '3' SECOND;

--- which is planned as one
-- explain
CREATE TABLE s (ms BIGINT, id INT, bidder STRING, price DOUBLE, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' DAY) WITH ('connector' = 'file', 'path' = 'data/bids.csv');
EXPLAIN SELECT a.ms, b.ms AS other FROM s AS a JOIN s AS b ON a.id = b.id AND a.ts - b.ts > INTERVAL '-1' DAY AND INTERVAL '3' SECOND >= a.ts - b.ts;
