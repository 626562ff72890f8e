-- Numbers at the limits of their types: what does not fit condemns its row, and nothing wraps.

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
