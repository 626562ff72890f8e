-- HiBench's stateful word count: a running count for each address, one update for each visit.

SET 'emit' = 'every_row';

CREATE TABLE visits (
  ts_ms BIGINT, page_id BIGINT, ip STRING, url STRING, visit_date STRING, ad_revenue DOUBLE,
  user_agent STRING, country STRING, language STRING, search_word STRING, duration INT,
  ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '1000000',
        'events_per_second' = '10000');

CREATE TABLE counts (ip STRING, visits BIGINT) WITH ('connector' = 'blackhole');

INSERT INTO counts SELECT ip, COUNT(*) FROM visits GROUP BY ip;
