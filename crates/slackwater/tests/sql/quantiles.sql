-- PERCENTILE_CONT, MEDIAN and other functions that keep or merge states.

CREATE TABLE gaps (x DOUBLE) WITH ('connector' = 'file', 'path' = 'data/gaps.csv');

-- Rows 9 and 27 make one session of three.
CREATE TABLE merging (s BIGINT, x DOUBLE, ts AS TO_TIMESTAMP_LTZ(s, 0), WATERMARK FOR ts AS ts - INTERVAL '1' DAY)
WITH ('connector' = 'file', 'path' = 'data/merging.csv');

CREATE TABLE zeros (n INT, d DOUBLE, f FLOAT) WITH ('connector' = 'file', 'path' = 'data/zeros.csv');

--- between two values a quantile is interpolated exactly
-- last per 0
SELECT percentile_cont(0.95) WITHIN GROUP (ORDER BY x) AS p95, percentile_cont(0.05) WITHIN GROUP (ORDER BY x DESC) AS d05,
  percentile_cont(x, 0.25) AS p25, percentile_cont(0.0) WITHIN GROUP (ORDER BY x) AS p0, percentile_cont(1) WITHIN GROUP (ORDER BY x) AS p100,
  percentile_cont(0.9999999) WITHIN GROUP (ORDER BY x) AS nearly, median(x) AS middle, quantile_cont(x, 0.5) AS q,
  percentile_cont(0.95) WITHIN GROUP (ORDER BY CAST(x AS FLOAT)) AS single, median(CAST(x / 1e11 AS INT)) AS whole,
  median(CAST(x / 1e11 AS DECIMAL(10, 2))) AS dec, median(DISTINCT x) AS dist, median(x) FILTER (WHERE x > 0) AS above FROM gaps;

--- over sessions that merge
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) AS p, median(x) AS m, median(DISTINCT x) AS md, COUNT(*) AS n, SUM(x) AS s, MIN(x) AS lo, MAX(x) AS hi,
  COUNT(DISTINCT x) AS d, FIRST_VALUE(x) AS f, LAST_VALUE(x) AS l, approx_distinct(CAST(x AS BIGINT)) AS ad, approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY x) AS ap,
  approx_median(x) AS am, bool_and(x > 0) AS ba, bool_or(x > 999) AS bo, bit_xor(CAST(x AS BIGINT)) AS bx, bit_or(CAST(x AS BIGINT)) AS bor,
  median(CAST(x AS DECIMAL(10, 2))) AS dec, round(stddev(x), 3) AS sd, round(corr(x, s), 3) AS co, round(regr_slope(x, s), 3) AS slope, regr_count(x, s) AS rc
FROM SESSION(TABLE merging, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- over chunks that are combined before they are sent
SET 'two_phase' = 'on';
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) AS p, median(x) AS m, median(DISTINCT x) AS md, median(CAST(x AS DECIMAL(10, 2))) AS dec, COUNT(*) AS n,
  approx_distinct(CAST(x AS BIGINT)) AS ad, bit_xor(CAST(x AS BIGINT)) AS bx, round(var_pop(x), 3) AS vp, regr_count(x, s) AS rc
FROM TUMBLE(TABLE merging, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start;

--- over rows that are retracted
-- last per 0
SELECT median(n) AS m, percentile_cont(0.75) WITHIN GROUP (ORDER BY n) AS p FROM (SELECT d, COUNT(*) * 1.5 AS n FROM zeros GROUP BY d);

--- of no values, and of NULL
-- last per 0
SELECT median(x) AS m, percentile_cont(0.5) WITHIN GROUP (ORDER BY x) AS p, median(NULLIF(x, x)) AS nothing FROM gaps WHERE x < 0;

--- a fraction beyond 1
SELECT percentile_cont(1.5) WITHIN GROUP (ORDER BY x) AS p FROM gaps;

--- aggregates that differ by what is cast are different ones
-- last per 0
SELECT SUM(CAST(d AS BIGINT)) AS a, SUM(d) AS b, SUM(TRY_CAST(d AS INT)) AS c, COUNT(DISTINCT CAST(n AS STRING)) AS e, COUNT(DISTINCT n) AS f,
  MAX(CAST(n AS STRING)) AS g, MAX(n) AS h, COUNT(*) FILTER (WHERE CAST(d AS BIGINT) > 1) AS i, COUNT(*) FILTER (WHERE d > 1) AS j
FROM zeros WHERE n < 4;

--- in a condition over groups
-- last per 1
SELECT n, SUM(d) AS s FROM zeros WHERE n < 4 GROUP BY n HAVING SUM(CAST(d AS BIGINT)) = 1 AND SUM(d) = 1.5;

--- in OVER
CREATE TABLE timed (n INT, d DOUBLE, f FLOAT, ts AS TO_TIMESTAMP_LTZ(n, 0), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/zeros.csv');
SELECT n, SUM(CAST(d AS BIGINT)) OVER (ORDER BY ts) AS a, SUM(d) OVER (ORDER BY ts) AS b FROM timed WHERE n < 4;
