-- Winning bids: of each auction the highest, of several the first.
CREATE TABLE events (type STRING,
  e ROW<id BIGINT, name STRING, city STRING, state STRING, seller BIGINT, category BIGINT, auction BIGINT,
        bidder BIGINT, price BIGINT, expires BIGINT, date_time BIGINT>,
  ts AS TO_TIMESTAMP_LTZ(e.date_time, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = '${DATA}/nexmark_100k_1000ps_ooo500.jsonl.gz', 'format' = 'json');

CREATE TABLE answer (auction BIGINT, price BIGINT, bid_time_ms BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true', 'changelog' = 'op');

CREATE VIEW auction AS SELECT e.id AS id, e.seller AS seller, e.category AS category, ts, TO_TIMESTAMP_LTZ(e.expires, 3) AS expires
FROM events WHERE type = 'auction';
CREATE VIEW bid AS SELECT e.auction AS auction, e.bidder AS bidder, e.price AS price, ts FROM events WHERE type = 'bid';

INSERT INTO answer
SELECT id, price, CAST(bid_ts AS BIGINT)
FROM (
  SELECT A.id, B.price, B.ts AS bid_ts,
         ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.ts ASC) AS rownum
  FROM auction A, bid B
  WHERE A.id = B.auction AND B.ts BETWEEN A.ts AND A.expires
)
WHERE rownum <= 1;
