-- ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= N.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE VIEW ranked AS SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bids;

--- the two highest bids of each auction, with their rank
-- last per 2
SELECT auction, rank_number, bidder, price FROM ranked WHERE rank_number <= 2;

--- without the rank
-- table
SELECT auction, bidder, price FROM ranked WHERE rank_number <= 2;

--- the highest alone
-- last per 1
SELECT auction, bidder, price FROM ranked WHERE rank_number = 1;

--- ranks below a number
-- table
SELECT bidder, price FROM ranked WHERE rank_number < 3;

--- the number on the left
-- table
SELECT bidder, price FROM ranked WHERE 2 >= rank_number;

--- BETWEEN
-- table
SELECT bidder, price FROM ranked WHERE rank_number BETWEEN 1 AND 2;

--- the second and third
-- table
SELECT auction, bidder, rank_number FROM ranked WHERE rank_number BETWEEN 2 AND 3;

--- with another condition
-- table
SELECT auction, bidder, price FROM ranked WHERE rank_number <= 2 AND price > 10;

--- QUALIFY
-- last per 1
SELECT auction, bidder, price FROM bids QUALIFY ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) = 1;

--- over all rows
-- last per 1
SELECT n, bidder, price FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY price DESC) AS n FROM bids) WHERE n <= 3;

--- deduplication: the first row of a key
-- last per 1
SELECT bidder, ms, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder ORDER BY ts) AS n FROM bids) WHERE n = 1;

--- deduplication: the last row of a key
-- last per 1
SELECT bidder, ms, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder ORDER BY ts DESC) AS n FROM bids) WHERE n = 1;

--- two columns of order
-- last per 2
SELECT auction, n, bidder, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY bidder, price DESC) AS n FROM bids) WHERE n <= 2;

--- NULL where it is asked for
-- last per 1
SELECT auction, bidder, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC NULLS FIRST) AS n FROM bids) WHERE n = 1;

--- an expression of order
-- last per 1
SELECT auction, bidder FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY char_length(bidder) DESC, bidder) AS n FROM bids) WHERE n = 1;

--- over an aggregate
-- last per 1
SELECT n, bidder, bids FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY bids DESC, bidder) AS n
  FROM (SELECT bidder, COUNT(*) AS bids FROM bids GROUP BY bidder)) WHERE n <= 2;

--- an aggregate over the first rows
-- last per 0
SELECT SUM(price) AS total FROM ranked WHERE rank_number <= 2;

--- the first row of a stream in which rows go
-- last per 1
SELECT n, bidder, bids FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY bids DESC, bidder) AS n
  FROM (SELECT bidder, COUNT(*) AS bids FROM bids GROUP BY bidder HAVING COUNT(*) < 3)) WHERE n <= 2;

--- in each window
SELECT window_start, auction, n FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n DESC, auction) AS rank_number
  FROM (SELECT window_start, window_end, auction, COUNT(*) AS n
    FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, auction))
WHERE rank_number <= 1;

--- in each window and key, with the rank
SELECT window_end, auction, bidder, price, rank_number FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_end, auction ORDER BY price DESC) AS rank_number
  FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '20' SECOND))
WHERE rank_number <= 2;

--- by the start of a window
SELECT window_start, bidder, price FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY price DESC) AS rank_number
  FROM HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND))
WHERE rank_number = 1;

--- an aggregate over the first rows of windows
SELECT window_start, SUM(price) AS total FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, auction ORDER BY price DESC) AS rank_number
  FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '20' SECOND))
WHERE rank_number = 1 GROUP BY window_start, window_end;

--- EXPLAIN
-- explain
EXPLAIN SELECT auction, bidder, price FROM ranked WHERE rank_number <= 2;

--- EXPLAIN in a window
-- explain
EXPLAIN SELECT window_end, bidder FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_end ORDER BY price DESC) AS rank_number
  FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '20' SECOND)) WHERE rank_number <= 2;
