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
CREATE TABLE o (id INT, s BIGINT, n BIGINT, r BIGINT, l INT) WITH ('connector' = 'file', 'path' = 'out.csv', 'changelog' = 'op');
INSERT INTO o SELECT id, SUM(id) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW),
  COUNT(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW),
  ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts), LAG(id, 2) OVER (PARTITION BY k ORDER BY ts) FROM a;
