CREATE TABLE a (ms BIGINT, id INT, k INT, g STRING, v DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'a.csv', 'csv.null' = '');
CREATE TABLE b (ms BIGINT, id INT, k INT, g STRING, v DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'b.csv', 'csv.null' = '');
CREATE TABLE both (ms BIGINT, id INT, k INT, g STRING, v DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = '[ab].csv', 'csv.null' = '');
CREATE TABLE t (k INT, w INT) WITH ('connector' = 'file', 'path' = 't.csv');
CREATE TABLE o (w BIGINT, u STRING, a DOUBLE, m DOUBLE, x DOUBLE, y DOUBLE, d BIGINT, l INT, p DOUBLE, r DOUBLE, f BIGINT) WITH ('connector' = 'file', 'path' = 'out.csv', 'changelog' = 'op');
INSERT INTO o SELECT CAST(window_end AS BIGINT), UPPER(g), AVG(v), MIN(v), MAX(v), stddev(v), COUNT(DISTINCT k),
  LAST_VALUE(id) IGNORE NULLS, median(v), corr(v, id), COUNT(*) FILTER (WHERE v + 1 > 2)
FROM CUMULATE(TABLE a, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' SECOND)
GROUP BY window_start, window_end, UPPER(g);
