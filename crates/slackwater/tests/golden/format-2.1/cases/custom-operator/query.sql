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
CREATE TABLE o (k INT, ms BIGINT, old DOUBLE, new DOUBLE) WITH ('connector' = 'file', 'path' = 'out.csv', 'changelog' = 'op');
INSERT INTO o SELECT k, CAST(ts AS BIGINT), old, new FROM changes(TABLE a PARTITION BY k ORDER BY ts,
DESCRIPTOR(v), 5, silence => INTERVAL '1.5' SECOND);
