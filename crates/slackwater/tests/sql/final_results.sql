-- Results that are emitted once, when their inputs have ended.
CREATE TABLE t (id INT, k STRING, x INT, d DOUBLE, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '1' HOUR)
WITH ('connector' = 'file', 'path' = 'data/final.csv');
CREATE TABLE none (id INT, k STRING, x INT) WITH ('connector' = 'file', 'path' = 'data/empty.csv');
CREATE TABLE endless (event_type INT) WITH ('connector' = 'datagen', 'generator' = 'nexmark');
CREATE TABLE plain (k STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'out/plain.csv');

--- ORDER BY: NULL is less than all values
-- in order
SELECT k, x, id FROM t ORDER BY k DESC, x;

--- NULLS LAST, and ties by all columns
-- in order
SELECT x, k FROM t ORDER BY x NULLS LAST;

--- ORDER BY what is not selected
-- in order
SELECT id FROM t ORDER BY x DESC, id;

--- a running aggregate in order, the first ones
-- in order
SELECT k, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY k ORDER BY n DESC, k LIMIT 2;

--- OFFSET and FETCH
-- in order
SELECT id FROM t ORDER BY id DESC OFFSET 2 ROWS FETCH FIRST 3 ROWS ONLY;

--- LIMIT without ORDER BY returns the same rows in every run
-- in order
SELECT k, id FROM t LIMIT 3;

--- LIMIT 0
SELECT id FROM t LIMIT 0;

--- a subquery with LIMIT
SELECT id, x FROM t WHERE x IN (SELECT x FROM t ORDER BY x DESC LIMIT 2);

--- the sides of a UNION, and all of it
-- in order
SELECT id FROM t WHERE id > 6 UNION ALL SELECT id FROM t WHERE id < 3 ORDER BY id;

--- windows in order
-- in order
SELECT window_start, k, COUNT(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, k ORDER BY n DESC, window_start, k;

--- emit final: one row for each key
SET 'emit' = 'final';
SELECT k, COUNT(*) AS n, MIN(x) AS least, COUNT(DISTINCT x) AS different FROM t GROUP BY k;

--- emit final: an aggregate over an aggregate
SET 'emit' = 'final';
SELECT n, COUNT(*) AS keys FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) GROUP BY n;

--- emit final: without keys there is one row, also over no rows
SET 'emit' = 'final';
SELECT COUNT(*) AS n, SUM(x) AS s FROM none;

--- emit final: over groups that are all deleted
SET 'emit' = 'final';
SELECT COUNT(*) AS n FROM (SELECT k FROM t GROUP BY k HAVING COUNT(*) > 100);

--- emit final: no group over no rows
SET 'emit' = 'final';
SELECT k, COUNT(*) AS n FROM none GROUP BY k;

--- emit final: HAVING, DISTINCT, top-N and an outer join
SET 'emit' = 'final';
CREATE VIEW often AS SELECT k, COUNT(*) AS n FROM t GROUP BY k HAVING COUNT(*) > 1;
CREATE VIEW first AS SELECT k, id FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC, id) = 1;
SELECT o.k, n, f.id FROM often o FULL JOIN first f ON o.k = f.k;

--- emit final: an aggregate over rows that a join retracts
SET 'emit' = 'final';
SELECT COUNT(*) AS n, COUNT(b.id) AS partners FROM t a LEFT JOIN t b ON a.id = b.x;

--- emit final: percentiles and averages in order
-- in order
SET 'emit' = 'final';
SELECT k, percentile_cont(0.5) WITHIN GROUP (ORDER BY d) AS median, AVG(x) AS mean FROM t GROUP BY k ORDER BY k;

--- a file that can only add rows gets what is left at the end
INSERT INTO plain SELECT k, COUNT(*) FROM t GROUP BY k HAVING COUNT(*) < 3;

--- a file gets one row for each key when told
SET 'emit' = 'final';
INSERT INTO plain SELECT k, COUNT(*) FROM t GROUP BY k;

--- two statements, one of them in order
INSERT INTO plain SELECT k, COUNT(*) FROM t GROUP BY k ORDER BY k;
SELECT k, id FROM t ORDER BY id DESC LIMIT 1;

--- the plan
-- explain
EXPLAIN SELECT k, COUNT(*) AS n FROM t GROUP BY k ORDER BY n DESC LIMIT 2;

--- state_ttl does not count
-- explain
SET 'state_ttl' = '1 h';
EXPLAIN SELECT k, COUNT(*) AS n FROM t GROUP BY k ORDER BY n DESC LIMIT 2;

--- ORDER BY without an end
SELECT event_type FROM endless ORDER BY event_type;

--- LIMIT without an end
SELECT event_type FROM endless LIMIT 3;

--- emit final without an end
SET 'emit' = 'final';
SELECT event_type, COUNT(*) FROM endless GROUP BY event_type;

--- emit final and units of work
SET 'emit' = 'final';
CREATE TABLE units (id INT, k STRING) WITH ('connector' = 'file', 'path' = 'data/final.csv', 'unit_of_work' = 'file');
SELECT COUNT(*) FROM units;

--- FETCH WITH TIES
SELECT id FROM t ORDER BY x FETCH FIRST 3 ROWS WITH TIES;

--- LIMIT that is not a number
SELECT id FROM t LIMIT x;

--- a negative OFFSET
SELECT id FROM t LIMIT 1 OFFSET -1;
