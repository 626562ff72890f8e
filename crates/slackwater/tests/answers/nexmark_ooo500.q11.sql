-- User sessions: bids of a person that are less than 10 s apart.
CREATE TABLE events (type STRING,
  e ROW<auction BIGINT, bidder BIGINT, price BIGINT, date_time BIGINT>,
  ts AS TO_TIMESTAMP_LTZ(e.date_time, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = '${DATA}/nexmark_100k_1000ps_ooo500.jsonl.gz', 'format' = 'json');

CREATE TABLE answer (bidder BIGINT, bids BIGINT, first_ms BIGINT, last_ms BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true');

CREATE VIEW bid AS SELECT e.bidder AS bidder, ts FROM events WHERE type = 'bid';

INSERT INTO answer
SELECT bidder, COUNT(*), CAST(window_start AS BIGINT), CAST(window_end AS BIGINT) - 10000
FROM SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, bidder;
