-- HiBench's fixed window: the visits of each address in 30 seconds, the first of them, and when that was
-- emitted.

CREATE TABLE visits (
  ts_ms BIGINT, page_id BIGINT, ip STRING, url STRING, visit_date STRING, ad_revenue DOUBLE,
  user_agent STRING, country STRING, language STRING, search_word STRING, duration INT,
  ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '1000000',
        'events_per_second' = '10000');

CREATE TABLE windows (
  window_start TIMESTAMP(3), ip STRING, first_ts TIMESTAMP(3), visits BIGINT, emitted TIMESTAMP(3)
) WITH ('connector' = 'blackhole');

INSERT INTO windows
SELECT window_start, ip, MIN(ts), COUNT(*), PROCTIME()
FROM TUMBLE(TABLE visits, DESCRIPTOR(ts), INTERVAL '30' SECOND)
GROUP BY window_start, window_end, ip;
