-- State that grows as long as its input does not end: warnings that name the clause.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'tcp', 'address' = '127.0.0.1:9991');

CREATE TABLE rates (ms BIGINT, auction INT, rate DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'tcp', 'address' = '127.0.0.1:9992');

CREATE TABLE known_rates (ms BIGINT, auction INT, rate DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/rates.csv');

CREATE TABLE timeless (ms BIGINT, auction INT, bidder STRING, price DOUBLE, ts AS TO_TIMESTAMP_LTZ(ms, 3))
WITH ('connector' = 'tcp', 'address' = '127.0.0.1:9993');

--- keys of GROUP BY
-- explain
EXPLAIN SELECT auction, bidder, COUNT(*) AS n FROM bids GROUP BY auction, bidder;

--- DISTINCT
-- explain
EXPLAIN SELECT DISTINCT bidder FROM bids;

--- one group does not grow
-- explain
EXPLAIN SELECT COUNT(*) AS n, MAX(price) AS highest FROM bids;

--- but for what keeps every value
-- explain
EXPLAIN SELECT COUNT(DISTINCT bidder) AS bidders, median(price) AS middle, approx_distinct(bidder) AS about FROM bids;

--- which state_ttl does not forget
-- explain
SET 'state_ttl' = '1 h';
EXPLAIN SELECT auction, COUNT(DISTINCT bidder) AS bidders FROM bids GROUP BY auction;

--- a join
-- explain
EXPLAIN SELECT b.bidder, r.rate FROM bids AS b JOIN rates AS r ON b.auction = r.auction;

--- a top-N
-- explain
EXPLAIN SELECT * FROM bids QUALIFY ROW_NUMBER() OVER (PARTITION BY bidder ORDER BY ts DESC) = 1;

--- all that state_ttl forgets
-- explain
SET 'state_ttl' = '1 h';
EXPLAIN SELECT n, COUNT(*) AS bidders FROM (SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder) AS b GROUP BY n;

--- OVER with a number of rows
-- explain
EXPLAIN SELECT ts, SUM(price) OVER (PARTITION BY bidder ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS s,
  price - LAG(price) OVER (PARTITION BY bidder ORDER BY ts) AS change FROM bids;

--- OVER of all rows so far
-- explain
EXPLAIN SELECT ts, ROW_NUMBER() OVER (PARTITION BY bidder ORDER BY ts) AS n FROM bids;

--- OVER of both
-- explain
EXPLAIN SELECT ts, LAG(price) OVER (PARTITION BY bidder, auction ORDER BY ts) AS l,
  MAX(price) OVER (PARTITION BY bidder, auction ORDER BY ts ROWS UNBOUNDED PRECEDING) AS m FROM bids;

--- state_ttl does not count for OVER
-- explain
SET 'state_ttl' = '1 h';
EXPLAIN SELECT ts, LAG(price) OVER (PARTITION BY bidder ORDER BY ts) AS l FROM bids;

--- OVER that keeps no more than an interval, a row, or one value
-- explain
EXPLAIN SELECT ts, COUNT(DISTINCT price) OVER (PARTITION BY bidder ORDER BY ts
    RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW) AS n,
  SUM(price) OVER (PARTITION BY bidder ORDER BY ts ROWS CURRENT ROW) AS here,
  LAG(price, 5) OVER (ORDER BY ts) AS l, COUNT(*) OVER (ORDER BY ts) AS all_rows FROM bids;

--- OVER that keeps every value, without a key
-- explain
EXPLAIN SELECT ts, COUNT(DISTINCT bidder) OVER (ORDER BY ts) AS n FROM bids;

--- OVER that keeps every value of a key
-- explain
EXPLAIN SELECT ts, COUNT(DISTINCT bidder) OVER (PARTITION BY auction ORDER BY ts) AS n FROM bids;

--- count windows
-- explain
EXPLAIN SELECT window_number, auction, AVG(price) AS price FROM COUNT_WINDOW(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), 100)
GROUP BY window_start, window_end, window_number, auction;

--- count windows of all rows do not grow
-- explain
EXPLAIN SELECT window_number, AVG(price) AS price FROM COUNT_WINDOW(TABLE bids, DESCRIPTOR(ts), 100)
GROUP BY window_start, window_end, window_number;

--- versions of a table
-- explain
EXPLAIN SELECT b.ts, b.price * r.rate AS price FROM bids AS b JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction;

--- versions of a table that ends
-- explain
EXPLAIN SELECT b.ts, b.price * r.rate AS price FROM bids AS b JOIN known_rates FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction;

--- what the watermark bounds
-- explain
EXPLAIN SELECT window_start, bidder, COUNT(DISTINCT auction) AS n
FROM SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, bidder;

--- joins within an interval
-- explain
EXPLAIN SELECT b.ts, r.rate FROM bids AS b JOIN rates AS r
ON b.auction = r.auction AND b.ts BETWEEN r.ts - INTERVAL '1' MINUTE AND r.ts;

--- of a table without a WATERMARK: a join of all rows with all
-- explain
EXPLAIN SELECT b.ts, r.rate FROM timeless AS b JOIN rates AS r
ON b.auction = r.auction AND b.ts BETWEEN r.ts - INTERVAL '1' MINUTE AND r.ts;

--- windows of a table without a WATERMARK
EXPLAIN SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE timeless, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end;

--- sessions of it
EXPLAIN SELECT window_start, COUNT(*) AS n FROM SESSION(TABLE timeless, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end;

--- count windows of it
EXPLAIN SELECT window_number, COUNT(*) AS n FROM COUNT_WINDOW(TABLE timeless, DESCRIPTOR(ts), 10)
GROUP BY window_start, window_end, window_number;

--- OVER of it
EXPLAIN SELECT SUM(price) OVER (PARTITION BY bidder ORDER BY ts
  RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW) AS s FROM timeless;

--- state_ttl of it forgets nothing
-- explain
SET 'state_ttl' = '1 h';
EXPLAIN SELECT auction, COUNT(*) AS n FROM timeless GROUP BY auction;
