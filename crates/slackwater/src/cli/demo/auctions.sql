-- The bids of an auction site, generated (Nexmark): for each auction that had bids in a second, how many they
-- were, and the highest.
SET 'latency_target' = '5 ms';
SET 'checkpoint_interval' = '500 ms';

CREATE TABLE events (
  event_type INT,
  person ROW<dateTime TIMESTAMP(3)>,
  auction ROW<dateTime TIMESTAMP(3)>,
  bid ROW<auction BIGINT, price BIGINT, dateTime TIMESTAMP(3)>,
  ts AS COALESCE(bid.dateTime, auction.dateTime, person.dateTime),
  WATERMARK FOR ts AS ts - INTERVAL '500' MILLISECOND
) WITH ('connector' = 'datagen', 'generator' = 'nexmark', 'disorder' = '500 ms', ${EVENTS});

CREATE TABLE busy_auctions (window_start TIMESTAMP(3), auction BIGINT, bids BIGINT, highest BIGINT)
WITH (${ANSWER});

INSERT INTO busy_auctions
SELECT window_start, bid.auction, COUNT(*), MAX(bid.price)
FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND)
WHERE event_type = 2
GROUP BY window_start, window_end, bid.auction;
