CREATE TABLE quakes (arrival_ms BIGINT, event_ms BIGINT, id STRING, net STRING, mag DOUBLE, lon DOUBLE, lat DOUBLE,
  depth_km DOUBLE, ts AS TO_TIMESTAMP_LTZ(event_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '168' HOUR)
WITH ('connector' = 'file', 'path' = '${DATA}/usgs_quakes_by_arrival.csv', 'csv.header' = 'true');

CREATE TABLE answer (window_start_ms BIGINT, net STRING, "count" BIGINT, max_mag_x100 BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true');

INSERT INTO answer
SELECT CAST(window_start AS BIGINT), net, COUNT(*), MAX(CAST(ROUND(mag * 100) AS BIGINT))
FROM TUMBLE(TABLE quakes, DESCRIPTOR(ts), INTERVAL '1' HOUR)
GROUP BY window_start, window_end, net;
