-- A format of this example's own: the fixes of satellite receivers. Run it in this folder: the file is beside
-- it. One of its sentences has a wrong checksum, and is in slackwater-dead-letter/fixes.jsonl afterwards.

CREATE TABLE fixes (
  at TIMESTAMP(3), latitude DOUBLE, longitude DOUBLE, altitude DOUBLE,
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'fixes.nmea', 'format' = 'nmea', 'nmea.date' = '2026-11-29');

SELECT at, ROUND(latitude, 4) AS latitude, ROUND(longitude, 4) AS longitude, altitude FROM fixes;
