SET 'emit' = 'every 5 ms';
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
CREATE TABLE o (w BIGINT, k INT, n BIGINT, s DOUBLE) WITH ('connector' = 'file', 'path' = 'out.csv', 'changelog' = 'op');
INSERT INTO o SELECT CAST(window_start AS BIGINT), k, COUNT(*), SUM(v)
FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '4' SECOND) GROUP BY window_start, window_end, k;
