-- Sessions per address: requests less than 30 minutes apart.
CREATE TABLE log (ip STRING, time TIMESTAMP(3), WATERMARK FOR time AS time - INTERVAL '60' SECOND)
WITH ('connector' = 'file', 'path' = '${DATA}/apache_logs.log', 'format' = 'combined_log');

CREATE TABLE answer (ip STRING, first_ts_ms BIGINT, last_ts_ms BIGINT, "count" BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true');

INSERT INTO answer
SELECT ip, CAST(MIN(time) AS BIGINT), CAST(MAX(time) AS BIGINT), COUNT(*)
FROM SESSION(TABLE log PARTITION BY ip, DESCRIPTOR(time), INTERVAL '30' MINUTE)
GROUP BY window_start, window_end, ip;
