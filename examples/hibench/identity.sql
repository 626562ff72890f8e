-- HiBench's identity: every row is copied.

CREATE TABLE visits (
  ts_ms BIGINT, page_id BIGINT, ip STRING, url STRING, visit_date STRING, ad_revenue DOUBLE,
  user_agent STRING, country STRING, language STRING, search_word STRING, duration INT,
  ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '1000000',
        'events_per_second' = '10000');

CREATE TABLE copies (
  ts_ms BIGINT, page_id BIGINT, ip STRING, url STRING, visit_date STRING, ad_revenue DOUBLE,
  user_agent STRING, country STRING, language STRING, search_word STRING, duration INT
) WITH ('connector' = 'blackhole');

INSERT INTO copies
SELECT ts_ms, page_id, ip, url, visit_date, ad_revenue, user_agent, country, language, search_word, duration
FROM visits;
