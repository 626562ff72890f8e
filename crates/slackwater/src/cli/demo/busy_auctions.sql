-- For each auction that had bids in a second, how many they were, and the highest.
CREATE TABLE busy_auctions (window_start TIMESTAMP(3), auction BIGINT, bids BIGINT, highest BIGINT)
WITH (${ANSWER});

INSERT INTO busy_auctions
SELECT window_start, bid.auction, COUNT(*), MAX(bid.price)
FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND)
WHERE event_type = 2
GROUP BY window_start, window_end, bid.auction;
