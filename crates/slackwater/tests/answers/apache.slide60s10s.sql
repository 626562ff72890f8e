-- Sliding windows without a key: one instance, whatever the parallelism.
CREATE TABLE log (ip STRING, time TIMESTAMP(3), status INT, bytes BIGINT,
  WATERMARK FOR time AS time - INTERVAL '60' SECOND)
WITH ('connector' = 'file', 'path' = '${DATA}/apache_logs.log', 'format' = 'combined_log');

CREATE TABLE answer (window_start_ms BIGINT, requests BIGINT, bytes BIGINT, distinct_ips BIGINT, errors_ge400 BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true');

INSERT INTO answer
SELECT CAST(window_start AS BIGINT), COUNT(*), COALESCE(SUM(bytes), 0), COUNT(DISTINCT ip),
  COUNT(*) FILTER (WHERE status >= 400)
FROM HOP(TABLE log, DESCRIPTOR(time), INTERVAL '10' SECOND, INTERVAL '60' SECOND)
GROUP BY window_start, window_end;
