-- GROUPING SETS, ROLLUP and CUBE.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

--- GROUPING SETS in a window
SELECT window_start, auction, bidder, COUNT(*) AS n, MAX(price) AS highest
FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, GROUPING SETS ((auction), (bidder), ());

--- ROLLUP in a window
SELECT window_end, auction, bidder, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '20' SECOND)
GROUP BY window_start, window_end, ROLLUP (auction, bidder);

--- CUBE in a window, with GROUPING
SELECT window_start, auction, bidder, GROUPING(auction) AS ga, GROUPING(auction, bidder) AS gab, SUM(price) AS total
FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '20' SECOND) GROUP BY window_start, window_end, CUBE (auction, bidder);

--- a NULL key, and a NULL of a grouping set
-- table
SELECT bidder, GROUPING(bidder) AS is_total, COUNT(*) AS n FROM bids GROUP BY ROLLUP (bidder);

--- running
-- table
SELECT auction, bidder, COUNT(*) AS n, SUM(price) AS total FROM bids GROUP BY GROUPING SETS ((auction, bidder), (auction), ());

--- HAVING, and an expression as a key
-- table
SELECT auction % 2 AS odd, COUNT(*) AS n FROM bids GROUP BY CUBE (auction % 2) HAVING COUNT(*) > 4;

--- keys of two tables with one name
-- table
SELECT b.ms, p.ms AS other, COUNT(*) AS n FROM bids AS b JOIN people AS p ON b.bidder = p.name AND p.city = 'Oslo'
GROUP BY GROUPING SETS ((b.ms), (p.ms));

--- a set that is named twice
-- table
SELECT auction, COUNT(*) AS n FROM bids GROUP BY GROUPING SETS ((auction), (auction));

--- one set
-- last per 1
SELECT auction, COUNT(*) AS n FROM bids GROUP BY GROUPING SETS ((auction));

--- aggregated again
-- last per 1
SELECT auction, MAX(n) AS most FROM
  (SELECT auction, bidder, COUNT(*) AS n FROM bids GROUP BY GROUPING SETS ((auction, bidder), (bidder))) GROUP BY auction;

--- windows of windows: the sets keep their window
SELECT window_start, COUNT(*) AS groups FROM
  (SELECT window_start, window_end, auction FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
   GROUP BY window_start, window_end, ROLLUP (auction))
GROUP BY window_start, window_end;

--- EXPLAIN
-- explain
EXPLAIN SELECT window_start, auction, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, ROLLUP (auction);

--- WITH ROLLUP
SELECT auction, COUNT(*) FROM bids GROUP BY auction WITH ROLLUP;

--- nothing of no keys
SELECT auction FROM bids GROUP BY ROLLUP (auction);

--- too many sets
SELECT COUNT(*) FROM bids GROUP BY CUBE (auction, bidder, price, ms, ms + 1, ms + 2, ms + 3);

--- GROUPING of a column that is not a key
SELECT auction, GROUPING(bidder) FROM bids GROUP BY ROLLUP (auction);

--- the keys alone: the empty set has its row
-- table
SELECT bidder FROM (SELECT bidder, AVG(price) AS a FROM bids GROUP BY GROUPING SETS ((bidder), ()));

--- ROLLUP of which the keys alone are read
-- table
SELECT auction FROM (SELECT auction, COUNT(*) AS n FROM bids GROUP BY ROLLUP (auction));

--- the sets share nodes, also with a CASE over constants
-- explain
EXPLAIN SELECT c, name, COUNT(*) AS n FROM (SELECT ms, CASE bidder WHEN 'a' THEN '1' WHEN 'b' THEN '2' WHEN 'c' THEN '3' WHEN 'd' THEN '4'
  WHEN 'e' THEN '5' WHEN 'f' THEN '6' END AS c FROM bids) AS o JOIN people AS p ON o.c = p.city GROUP BY GROUPING SETS ((c), (c, name));
