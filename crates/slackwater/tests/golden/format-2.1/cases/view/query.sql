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
CREATE TABLE o (k INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'print');
INSERT INTO o SELECT COALESCE(k, 0), COUNT(*) FROM a GROUP BY COALESCE(k, 0);
CREATE MATERIALIZED VIEW kept AS SELECT k, COUNT(*) AS n, MAX(v) AS m FROM a GROUP BY k;
