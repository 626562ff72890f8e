-- Rows of one event time stand in the order of their partitions and of their positions in these, whatever they have gone through.

CREATE TABLE one (ms BIGINT, g STRING, x INT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' HOUR)
WITH ('connector' = 'file', 'path' = 'data/places/a.csv');
CREATE TABLE two (ms BIGINT, g STRING, x INT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' HOUR)
WITH ('connector' = 'file', 'path' = 'data/places/?.csv');

--- in sessions that are merged, and in sessions whose rows are kept
SELECT FIRST_VALUE(g) AS f, LAST_VALUE(g) AS l, FIRST_VALUE(-x) AS x FROM SESSION(TABLE two, DESCRIPTOR(ts), INTERVAL '2' SECOND) GROUP BY window_start, window_end;
SELECT FIRST_VALUE(g) AS f, LAST_VALUE(g) AS l, FIRST_VALUE(-x) AS x FROM SESSION(TABLE two, DESCRIPTOR(ts), INTERVAL '2' SECOND) WHERE x > 0 GROUP BY window_start, window_end;

--- by a key in addition to the session
SELECT k, FIRST_VALUE(g) AS f, LAST_VALUE(g) AS l FROM
  (SELECT window_start, window_end, g, x % 2 AS k FROM SESSION(TABLE two, DESCRIPTOR(ts), INTERVAL '2' SECOND)) GROUP BY window_start, window_end, k;

--- in count windows
SELECT window_number, FIRST_VALUE(g) AS f, LAST_VALUE(g) AS l, LAST_VALUE(g) FILTER (WHERE x > 1) AS some FROM COUNT_WINDOW(TABLE one, DESCRIPTOR(ts), 2, 4)
GROUP BY window_start, window_end, window_number;

--- in count windows over several partitions
SELECT window_number, FIRST_VALUE(g) AS f, LAST_VALUE(g) AS l FROM COUNT_WINDOW(TABLE two, DESCRIPTOR(ts), 5) GROUP BY window_start, window_end, window_number;

--- after WHERE, a projection and a UNION
SELECT FIRST_VALUE(h) AS f, LAST_VALUE(h) AS l, FIRST_VALUE(h) IGNORE NULLS AS i FROM TUMBLE(
  (SELECT UPPER(g) AS h, ts FROM two WHERE x > 0 UNION ALL SELECT g, ts FROM one WHERE x < 0), DESCRIPTOR(ts), INTERVAL '5' SECOND) GROUP BY window_start;

--- after OVER
CREATE VIEW counted AS SELECT g, x, ts, SUM(x) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM two;
SELECT FIRST_VALUE(g) AS f, LAST_VALUE(g) AS l, FIRST_VALUE(s) AS s, LAST_VALUE(s) AS t FROM TUMBLE(TABLE counted, DESCRIPTOR(ts), INTERVAL '5' SECOND) GROUP BY window_start;

--- OVER after OVER
CREATE VIEW counted AS SELECT g, x, ts, SUM(x) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM two;
SELECT g, s, LAG(g) OVER (ORDER BY ts) AS before FROM counted;

--- OVER after SESSION
SELECT g, LAG(g) OVER (ORDER BY window_time) AS before FROM SESSION(TABLE two, DESCRIPTOR(ts), INTERVAL '2' SECOND);

--- windows of windows
SELECT window_number, FIRST_VALUE(g) AS f, LAST_VALUE(g) AS l FROM COUNT_WINDOW(
  (SELECT g, window_time AS rowtime FROM SESSION(TABLE two, DESCRIPTOR(ts), INTERVAL '2' SECOND)), DESCRIPTOR(rowtime), 5) GROUP BY window_start, window_end, window_number;

--- when windows are emitted early
-- last per 1
SET 'emit' = 'every 1 ms';
SELECT window_start, FIRST_VALUE(g) AS f, LAST_VALUE(g) AS l FROM TUMBLE(TABLE two, DESCRIPTOR(ts), INTERVAL '5' SECOND) GROUP BY window_start;

--- in running aggregates
-- last per 0
SELECT FIRST_VALUE(g) AS f, LAST_VALUE(g) AS l FROM two;

--- after a join with a table that ends
CREATE TABLE names (g STRING) WITH ('connector' = 'file', 'path' = 'data/empty.csv');
SELECT FIRST_VALUE(g) AS f, LAST_VALUE(g) AS l FROM TUMBLE((SELECT t.g, t.ts FROM two AS t LEFT JOIN names AS n ON t.g = n.g), DESCRIPTOR(ts), INTERVAL '5' SECOND) GROUP BY window_start;
