-- Nexmark q13. Bounded side input: bids joined with a file of names.
-- (Flink's text looks up the file by processing time; here a file is a table. It has 1,000 names, not 10,000.)
-- Run it from the root of the repository: the path of the file is relative to it.

-- The events: generated as they are read, out of order by less than half a second.
CREATE TABLE nexmark (
  event_type INT,
  person ROW<id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING,
             dateTime TIMESTAMP(3), extra STRING>,
  auction ROW<id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
              dateTime TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING>,
  bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP(3),
          extra STRING>,
  dateTime AS CASE WHEN event_type = 0 THEN person.dateTime
                   WHEN event_type = 1 THEN auction.dateTime
                   ELSE bid.dateTime END,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND
) WITH ('connector' = 'datagen', 'generator' = 'nexmark', 'rows' = '100000', 'disorder' = '500 ms');

CREATE VIEW bid AS
SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.url, dateTime, bid.extra
FROM nexmark WHERE event_type = 2;

CREATE TABLE nexmark_q13 (auction BIGINT, bidder BIGINT, price BIGINT, dateTime TIMESTAMP(3), `value` STRING)
WITH ('connector' = 'print');

CREATE TABLE side_input (key BIGINT, `value` STRING)
WITH ('connector' = 'file', 'path' = 'examples/nexmark/side_input.csv');

INSERT INTO nexmark_q13
SELECT B.auction, B.bidder, B.price, B.dateTime, S.`value`
FROM bid B JOIN side_input S ON MOD(B.auction, 1000) = S.key;
