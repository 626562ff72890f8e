-- Expressions whose rewriting once changed their answers: casts in comparisons, NULL, DECIMAL with DOUBLE, constants.

CREATE TABLE v (id INT, d DECIMAL(12, 3), i INT, b BIGINT, s STRING, x DOUBLE) WITH ('connector' = 'file', 'path' = 'data/edges.csv');

--- a cast in a comparison rounds, and is NULL, as it is alone
SELECT id, CAST(d AS BIGINT) AS whole, CAST(d AS BIGINT) = 0 AS zero, CAST(d AS BIGINT) > 0 AS positive, CAST(d AS BIGINT) IN (0, 2) AS one_of,
  CAST(d AS DECIMAL(12, 1)) = CAST(0.3 AS DECIMAL(12, 1)) AS third, TRY_CAST(i AS SMALLINT) AS t, TRY_CAST(i AS SMALLINT) > 100 AS large FROM v;

--- a cast that fails rejects its row, also in a condition
SELECT id FROM v WHERE CAST(b AS INT) > 6;

--- conditions are computed in the order in which they are written
SELECT id FROM v WHERE b > 0 AND 10 / b > 0 AND char_length(s) > 1 AND CAST(s AS INT) > 5;

--- also those around a subquery
SELECT id FROM (SELECT * FROM v WHERE s ~ '^[0-9]+$' AND b <> 0) WHERE CAST(s AS INT) > 5 AND 100 / b > 5;

--- NULL is not forgotten
SELECT i NOT IN (1) OR i NOT IN (2) AS a, i IN (1) AND i IN (2) AS b, i ^ i AS c, NULLIF(s, 'abc') ~ '.*' AS d, i = i AS e, i <> i AS f, power(i, 0) AS g,
  i > NULL AND id = 3 AS h, i BETWEEN NULL AND 2 AS i, NOT (i = 1) AS j, i % 1 AS k, i * 0 AS l, i NOT IN (2, NULL) AS m, i | i AS n, i & 0 AS o FROM v WHERE id = 3;

--- a condition that is NULL, combined with others
SELECT id FROM v WHERE id > NULL AND id > 1;

--- a division by zero is not lost in a product or a comparison
SELECT id, 0 * (10 / b) AS a, (10 / b) IS NULL AS c FROM v;

--- DECIMAL with DOUBLE is DOUBLE
SELECT id, d < x AS l, d = x AS e, d IN (x, 2.5) AS i, d BETWEEN 0.0 AND x AS b, COALESCE(d, x) AS c, CASE WHEN id > 2 THEN d ELSE x END AS k, GREATEST(d, x) AS g,
  NULLIF(d, 2.5) AS n, d * x AS m, arrow_typeof(COALESCE(d, x)) AS t, CASE d WHEN x THEN 1 WHEN 0.284 THEN 2 ELSE 3 END AS w, b < x AS bx FROM v;

--- DECIMAL with DOUBLE as keys of a join
SELECT a.id, b.id AS other FROM v a JOIN v b ON CAST(a.d AS DECIMAL(12, 1)) = b.x;

--- DECIMAL with DOUBLE in a union, and in IN with a subquery
SELECT d AS u FROM v WHERE id IN (2, 4) UNION ALL SELECT x FROM v WHERE id < 3 UNION ALL SELECT a.d FROM v AS a WHERE CAST(a.d AS DECIMAL(12, 1)) IN (SELECT x FROM v);

--- DECIMAL with DOUBLE into a column of a table
CREATE TABLE o (c DECIMAL(12, 1), t DOUBLE) WITH ('connector' = 'file', 'path' = 'out/o.csv');
INSERT INTO o SELECT CASE WHEN d > 1 THEN d ELSE 0.25 END, COALESCE(d, x) FROM v;

--- a FLOAT has 24 bits
SELECT CAST(16777217 AS INT) + id - id = CAST(16777216 AS FLOAT) AS e, 16777217 IN (CAST(16777216 AS FLOAT)) AS i FROM v WHERE id = 1;

--- functions of DECIMALs have the types that they declare
SELECT d, round(d, 0) * d > 1 AS a, round(d, 1 - 1) * d > 1 AS b, round(d, id - id) * d AS c, round(d) * d AS e, ceil(d) * d AS f, floor(d) * d = 1 AS g, trunc(d, 1) * d AS h, abs(d) * d > 0 AS i,
  round(d, -1) + d AS j, sqrt(abs(d)) * d > 0 AS k, arrow_typeof(round(d, 0) * d) AS l, MOD(d, 2) * d AS m FROM v;

--- aggregates over them
SELECT SUM(round(d, 0) * d) AS s, MAX(round(d, 1)) AS m FROM v WHERE round(d, 0) * d > 1 GROUP BY id;

--- a constant prints as a column does
SELECT CAST(TIMESTAMP '2024-01-01 00:00:00' AS STRING) AS t, CAST(TIMESTAMP '2024-01-01 00:00:00.25' AS STRING) AS f, 'at ' || TIMESTAMP '1969-12-31 23:59:59.5' AS c, CONCAT(TIMESTAMP '2024-01-01 00:00:00', '!') AS n,
  CAST(DATE '2024-01-02' AS STRING) AS d, CAST(CAST(1.5 AS DECIMAL(5, 2)) AS STRING) AS e, CAST(0.3 AS STRING) AS x, CAST(1e300 AS STRING) AS y, CAST(INTERVAL '90' MINUTE AS STRING) AS i FROM v WHERE id = 1;

--- as these columns do
SELECT CAST(t AS STRING) AS t, CAST(f AS STRING) AS f, 'at ' || c AS c, CONCAT(t, '!') AS n, CAST(d AS STRING) AS d, CAST(e AS STRING) AS e, CAST(x AS STRING) AS x, CAST(y AS STRING) AS y, CAST(i AS STRING) AS i FROM
  (SELECT TIMESTAMP '2024-01-01 00:00:00' + z AS t, TIMESTAMP '2024-01-01 00:00:00.25' + z AS f, TIMESTAMP '1969-12-31 23:59:59.5' + z AS c, DATE '2024-01-02' + z AS d, CAST(b - b + 1.5 AS DECIMAL(5, 2)) AS e,
    0.3 + b - b AS x, 1e300 + b - b AS y, INTERVAL '90' MINUTE + z AS i FROM (SELECT 0.0 AS b, CASE WHEN id = 1 THEN INTERVAL '0' DAY END AS z FROM v WHERE id = 1));

--- an OR of conditions with a common key is a join by that key
SELECT a.id, b.id AS other FROM v a JOIN v b ON (a.id = b.id AND a.b > 1) OR (a.id = b.id AND b.x < 1);

--- operators after IS DISTINCT FROM
CREATE TABLE d (id INT, b BOOLEAN, v INT) WITH ('connector' = 'file', 'path' = 'data/distinct_from.csv');
SELECT id, b IS DISTINCT FROM TRUE AND v > 5 AS one, v > 5 OR b IS NOT DISTINCT FROM NULL AND v < 5 AS two,
  NOT v IS DISTINCT FROM 9 OR FALSE AS three, CASE WHEN v IS DISTINCT FROM 1 + 0 AND b THEN 'x' END AS four
FROM d WHERE v IS DISTINCT FROM NULL AND id > 0;
