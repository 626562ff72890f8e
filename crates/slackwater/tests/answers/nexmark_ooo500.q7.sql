-- The highest bid of each 10 s.
CREATE TABLE events (type STRING,
  e ROW<id BIGINT, name STRING, city STRING, state STRING, seller BIGINT, category BIGINT, auction BIGINT,
        bidder BIGINT, price BIGINT, date_time BIGINT>,
  ts AS TO_TIMESTAMP_LTZ(e.date_time, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = '${DATA}/nexmark_100k_1000ps_ooo500.jsonl.gz', 'format' = 'json');

CREATE TABLE answer (window_start_ms BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, date_time_ms BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true');

CREATE VIEW bid AS SELECT e.auction AS auction, e.bidder AS bidder, e.price AS price, ts FROM events WHERE type = 'bid';

INSERT INTO answer
SELECT CAST(B.window_start AS BIGINT), B.auction, B.bidder, B.price, CAST(B.ts AS BIGINT)
FROM (SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND))) B
JOIN (
  SELECT window_start, window_end, MAX(price) AS maxprice
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) M
ON B.window_start = M.window_start AND B.window_end = M.window_end AND B.price = M.maxprice;
