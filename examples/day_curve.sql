-- A day in forty seconds: the rate rises from 2,000 rows per second to 3 million and falls again, while
-- the query keeps its latency target of 20 ms with as little CPU time as possible.
--
--   slackwater run examples/day_curve.sql --live          (make demo-latency)

SET 'latency_target' = '20 ms';
SET 'parallelism' = '2';

CREATE TABLE visits (
  ts_ms BIGINT, ip STRING, ad_revenue DOUBLE, country STRING, user_agent STRING,
  ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts
) WITH (
  'connector' = 'datagen', 'generator' = 'uservisits', 'events_per_second' = '100000',
  'rate' = '2000/s', 'rate_max' = '3000000/s', 'rate_period' = '40 s', 'rows' = '60040000'
);

CREATE TABLE by_country (
  window_start TIMESTAMP(3), country STRING, visits BIGINT, visitors BIGINT, revenue DOUBLE
) WITH ('connector' = 'blackhole');

INSERT INTO by_country
SELECT window_start, country, COUNT(*), COUNT(DISTINCT ip), SUM(ad_revenue)
FROM TUMBLE(TABLE visits, DESCRIPTOR(ts), INTERVAL '1' SECOND)
GROUP BY window_start, window_end, country;
