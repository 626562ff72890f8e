-- When were flights from New York's airports delayed in 2013, hour by hour, and what was the weather?
--
-- Departures are ordered by the time at which the flights actually left, so a delayed flight is a
-- late event: up to 21 hours after its scheduled hour. They are replayed at 50,000 rows per second,
-- and each hour is printed as soon as it is complete.

CREATE TABLE departures (
  departed_ms BIGINT, scheduled_ms BIGINT, origin STRING, dest STRING, carrier STRING, delay_min INT,
  scheduled AS TO_TIMESTAMP_LTZ(scheduled_ms, 3),
  WATERMARK FOR scheduled AS scheduled - INTERVAL '24' HOUR
) WITH ('connector' = 'file', 'path' = 'demo-data/departures.csv', 'csv.header' = 'true',
        'replay_rate' = '50000/s');

CREATE TABLE weather (
  time_hour TIMESTAMP(0), origin STRING, temp DOUBLE, humid DOUBLE, wind_speed DOUBLE, precip DOUBLE,
  visib DOUBLE,
  WATERMARK FOR time_hour AS time_hour - INTERVAL '1' HOUR
) WITH ('connector' = 'file', 'path' = 'demo-data/weather.csv', 'csv.header' = 'true',
        'csv.null' = 'NA', 'replay_rate' = '4000/s');

CREATE VIEW hours AS
SELECT window_start, window_end, origin, COUNT(*) AS flights,
  COUNT(*) FILTER (WHERE delay_min >= 60) AS hour_late, AVG(delay_min) AS mean_delay,
  MAX(delay_min) AS worst_delay
FROM TUMBLE(TABLE departures, DESCRIPTOR(scheduled), INTERVAL '1' HOUR)
GROUP BY window_start, window_end, origin;

SELECT d.window_start AS scheduled, d.origin, d.flights, d.hour_late AS late_by_an_hour,
  ROUND(d.mean_delay) AS mean_min, d.worst_delay AS worst_min,
  w.temp AS temp_f, ROUND(w.wind_speed) AS wind_mph, w.precip AS rain_in, w.visib AS visible_mi
FROM hours d
JOIN (SELECT * FROM TUMBLE(TABLE weather, DESCRIPTOR(time_hour), INTERVAL '1' HOUR)) w
ON d.origin = w.origin AND d.window_start = w.window_start AND d.window_end = w.window_end
WHERE d.hour_late >= 12 AND d.mean_delay >= 100;
