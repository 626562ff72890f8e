-- Window join per address: requests that were not found against those that were.
CREATE TABLE log (ip STRING, time TIMESTAMP(3), status INT,
  WATERMARK FOR time AS time - INTERVAL '60' SECOND)
WITH ('connector' = 'file', 'path' = '${DATA}/apache_logs.log', 'format' = 'combined_log');

CREATE TABLE answer (window_start_ms BIGINT, ip STRING, n404 BIGINT, n200 BIGINT, pairs BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true');

CREATE VIEW windowed AS
SELECT * FROM TABLE(TUMBLE(TABLE log, DESCRIPTOR(time), INTERVAL '30' SECOND));

CREATE VIEW missing AS
SELECT window_start, window_end, ip, COUNT(*) AS n FROM windowed WHERE status = 404
GROUP BY window_start, window_end, ip;

CREATE VIEW found AS
SELECT window_start, window_end, ip, COUNT(*) AS n FROM windowed WHERE status = 200
GROUP BY window_start, window_end, ip;

INSERT INTO answer
SELECT CAST(m.window_start AS BIGINT), m.ip, m.n, f.n, m.n * f.n
FROM missing m JOIN found f
ON m.ip = f.ip AND m.window_start = f.window_start AND m.window_end = f.window_end;
