-- Hot items: the auctions with the most bids in each window of 10 s every 2 s; ties are kept.
CREATE TABLE events (type STRING,
  e ROW<id BIGINT, name STRING, city STRING, state STRING, seller BIGINT, category BIGINT, auction BIGINT,
        bidder BIGINT, price BIGINT, date_time BIGINT>,
  ts AS TO_TIMESTAMP_LTZ(e.date_time, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = '${DATA}/nexmark_100k_1000ps_ooo500.jsonl.gz', 'format' = 'json');

CREATE TABLE answer (window_start_ms BIGINT, auction BIGINT, num BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true');

CREATE VIEW bid AS SELECT e.auction AS auction, e.bidder AS bidder, e.price AS price, ts FROM events WHERE type = 'bid';

INSERT INTO answer
SELECT CAST(AuctionBids.starttime AS BIGINT), AuctionBids.auction, AuctionBids.num
FROM (
  SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end
) AS AuctionBids
JOIN (
  SELECT MAX(CountBids.num) AS maxn, CountBids.starttime, CountBids.endtime
  FROM (
    SELECT COUNT(*) AS num, window_start AS starttime, window_end AS endtime
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
  ) AS CountBids
  GROUP BY CountBids.starttime, CountBids.endtime
) AS MaxBids
ON AuctionBids.starttime = MaxBids.starttime AND AuctionBids.endtime = MaxBids.endtime
AND AuctionBids.num >= MaxBids.maxn;
