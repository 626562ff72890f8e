-- For each second, all bids.
SELECT window_start, COUNT(*) AS bids, COUNT(DISTINCT bid.auction) AS auctions, MAX(bid.price) AS highest
FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND)
WHERE event_type = 2
GROUP BY window_start, window_end;
