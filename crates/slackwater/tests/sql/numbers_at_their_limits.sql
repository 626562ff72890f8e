-- Numbers at the limits of their types: a value that does not fit rejects its row, and nothing wraps.

CREATE TABLE wide (c DECIMAL(38, 0), m DECIMAL(38, 2)) WITH ('connector' = 'file', 'path' = 'data/wide.csv');

CREATE TABLE zeros (n INT, d DOUBLE, f FLOAT) WITH ('connector' = 'file', 'path' = 'data/zeros.csv');

--- a sum of 39 digits
SELECT c + 1 AS sum FROM wide;

--- one of 38 with a scale
SELECT m + CAST(0.01 AS DECIMAL(3, 2)) AS sum FROM wide;

--- a difference
SELECT 0 - c - 1 AS difference FROM wide;

--- a product
SELECT c * 10 AS product FROM wide;

--- the greatest number as a sum
SELECT SUM(c) AS sum FROM wide WHERE c > 5;

--- an average whose sum does not fit
-- last per 1
SELECT n, AVG(c) AS average FROM (SELECT c, CASE WHEN c > 5 THEN 1 ELSE 0 END AS n FROM wide) GROUP BY n;

--- -0 is 0, as a group
-- last per 1
SELECT d, COUNT(*) AS n FROM zeros GROUP BY d;

--- -0 is 0, as one of two keys
-- last per 2
SELECT f, d, COUNT(*) AS n FROM zeros GROUP BY f, d;

--- -0 is 0, among distinct values
-- last per 1
SELECT 'all' AS of, COUNT(DISTINCT d) AS doubles, COUNT(DISTINCT f) AS floats FROM zeros;

--- -0 is 0, in a join of streams
SELECT a.n, b.n AS other FROM zeros a JOIN zeros b ON a.d = b.d WHERE a.n < b.n;

--- -0 is 0, in a condition
SELECT n FROM zeros WHERE d = 0 AND f IN (0);

--- -0 is 0, in partitions
SELECT n, d, r FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY d ORDER BY n) AS r FROM zeros) WHERE r <= 2;

--- -0 is 0 and NaN the greatest, in an order
-- last per 1
SELECT r, n FROM (SELECT n, ROW_NUMBER() OVER (ORDER BY d, n) AS r FROM zeros) WHERE r <= 5;

--- in an order from the greatest, of the negated numbers
-- last per 1
SELECT r, n FROM (SELECT n, ROW_NUMBER() OVER (ORDER BY -d DESC, -f, n) AS r FROM zeros) WHERE r <= 5;

--- NaN with a sign is the same NaN
SELECT -d > 5 AS g, -d = d AS e, -d <> d AS ne, -d < 0 AS l, -d IS DISTINCT FROM d AS dist, d BETWEEN 1 AND 2 AS b, -d IN (d) AS i, -d IN (1, 2, 3, 4, CAST('NaN' AS DOUBLE)) AS c,
  d / d > 5 AS q, NULLIF(-d, d) AS nu, GREATEST(-d, 1) AS gr, LEAST(-d, 1) AS le, -f >= f AS s, CASE -d WHEN d THEN 'same' ELSE 'other' END AS k FROM zeros WHERE n = 4;

--- -0 is 0, in every comparison
SELECT n, d = 0 AS e, d < 0 AS l, f >= 0 AS g, d IN (0) AS i, d IN (1, 2, 3, 4, 0) AS c, f IN (1, 2, 3, 4, 0) AS fc, NULLIF(d, 0.0) AS nu, CASE d WHEN 0.0 THEN 'zero' WHEN 1.5 THEN 'more' END AS k,
  d IS DISTINCT FROM 0 AS dist, -d = d AS neg FROM zeros WHERE n <> 4;

--- the least and the greatest
-- last per 0
SELECT MIN(-d) AS lo, MAX(-d) AS hi, MIN(-f) AS flo, MAX(-f) AS fhi, MIN(-d) FILTER (WHERE n < 3) AS zero, MAX(DISTINCT -d) AS dhi, median(-d) AS m FROM zeros;

--- MIN and MAX of rows that are retracted
-- last per 0
SELECT MIN(v) AS lo, MAX(v) AS hi FROM (SELECT n % 2 AS k, SUM(-d) AS v FROM zeros GROUP BY n % 2);

--- NaN with a sign, as a key
-- last per 1
SELECT k, COUNT(*) AS n FROM (SELECT -d AS k FROM zeros UNION ALL SELECT d FROM zeros) GROUP BY k;
