-- Requests per address and 30 s window: HiBench's fixwindow.
CREATE TABLE log (ip STRING, time TIMESTAMP(3), WATERMARK FOR time AS time - INTERVAL '60' SECOND)
WITH ('connector' = 'file', 'path' = '${DATA}/apache_logs.log', 'format' = 'combined_log');

CREATE TABLE answer (window_start_ms BIGINT, ip STRING, "count" BIGINT, first_ts_ms BIGINT, last_ts_ms BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true');

INSERT INTO answer
SELECT CAST(window_start AS BIGINT), ip, COUNT(*), CAST(MIN(time) AS BIGINT), CAST(MAX(time) AS BIGINT)
FROM TUMBLE(TABLE log, DESCRIPTOR(time), INTERVAL '30' SECOND)
GROUP BY window_start, window_end, ip;
