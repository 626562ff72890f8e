-- Average price for a category: of the winning bids of its auctions.
CREATE TABLE events (type STRING,
  e ROW<id BIGINT, name STRING, city STRING, state STRING, seller BIGINT, category BIGINT, auction BIGINT,
        bidder BIGINT, price BIGINT, expires BIGINT, date_time BIGINT>,
  ts AS TO_TIMESTAMP_LTZ(e.date_time, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = '${DATA}/nexmark_100k_1000ps_ooo500.jsonl.gz', 'format' = 'json');

CREATE TABLE answer (category BIGINT, sum_final BIGINT, auctions BIGINT, avg_floor BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true', 'changelog' = 'op');

CREATE VIEW auction AS SELECT e.id AS id, e.seller AS seller, e.category AS category, ts, TO_TIMESTAMP_LTZ(e.expires, 3) AS expires
FROM events WHERE type = 'auction';
CREATE VIEW bid AS SELECT e.auction AS auction, e.bidder AS bidder, e.price AS price, ts FROM events WHERE type = 'bid';

INSERT INTO answer
SELECT Q.category, SUM(Q.final), COUNT(*), CAST(AVG(Q.final) AS BIGINT)
FROM (
  SELECT MAX(B.price) AS final, A.category
  FROM auction A, bid B
  WHERE A.id = B.auction AND B.ts BETWEEN A.ts AND A.expires
  GROUP BY A.id, A.category
) Q
GROUP BY Q.category;
