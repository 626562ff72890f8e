CREATE TABLE quakes (arrival_ms BIGINT, event_ms BIGINT, id STRING, net STRING, mag DOUBLE, lon DOUBLE, lat DOUBLE,
  depth_km DOUBLE, ts AS TO_TIMESTAMP_LTZ(event_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '168' HOUR)
WITH ('connector' = 'file', 'path' = '${DATA}/usgs_quakes_by_arrival.csv', 'csv.header' = 'true');

CREATE TABLE answer (id_a STRING, id_b STRING, t_a_ms BIGINT, t_b_ms BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true');

INSERT INTO answer
SELECT a.id, b.id, a.event_ms, b.event_ms FROM quakes AS a JOIN quakes AS b
ON b.ts BETWEEN a.ts - INTERVAL '60' SECOND AND a.ts + INTERVAL '60' SECOND AND a.net <> b.net AND a.id < b.id;
