-- Windows over the results of windows.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

CREATE VIEW per_auction AS
SELECT window_start, window_end, window_time AS at, auction, COUNT(*) AS n
FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND) GROUP BY window_start, window_end, window_time, auction;

--- an aggregate of the same window
SELECT window_start, window_end, MAX(n) AS most FROM per_auction GROUP BY window_start, window_end;

--- an aggregate of the same window, by its start only
SELECT window_start, SUM(n) AS n, COUNT(*) AS auctions FROM per_auction GROUP BY window_start;

--- three levels
SELECT s, MAX(auctions) AS auctions FROM (
  SELECT window_start AS s, window_end AS e, n, COUNT(*) AS auctions FROM per_auction GROUP BY window_start, window_end, n
) GROUP BY s, e;

--- TUMBLE over the window_time of an aggregate
SELECT window_start, window_end, SUM(n) AS n
FROM TUMBLE((SELECT at, n FROM per_auction), DESCRIPTOR(at), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- the busiest auction of each window
SELECT a.window_start, a.auction, a.n
FROM per_auction AS a
JOIN (SELECT window_start, window_end, MAX(n) AS most FROM per_auction GROUP BY window_start, window_end) AS m
ON a.window_start = m.window_start AND a.window_end = m.window_end AND a.n = m.most;

--- the bid with the highest price of each window
SELECT b.window_start, b.bidder, b.price
FROM (SELECT * FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS b
JOIN (SELECT window_start, window_end, MAX(price) AS highest FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
      GROUP BY window_start, window_end) AS m
ON b.window_start = m.window_start AND b.window_end = m.window_end AND b.price = m.highest;

--- a running aggregate of windows
-- last per 1
SELECT auction, COUNT(*) AS windows, SUM(n) AS bids, MAX(window_start) AS last_window FROM per_auction GROUP BY auction;

--- a condition between two levels
SELECT window_start, COUNT(*) AS busy FROM per_auction WHERE n > 1 GROUP BY window_start, window_end;

--- HAVING between two levels
SELECT s, SUM(n) AS n FROM (
  SELECT window_start AS s, window_end AS e, auction, COUNT(*) AS n
  FROM HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)
  GROUP BY window_start, window_end, auction HAVING COUNT(*) >= 2
) AS busy GROUP BY s, e;

--- window_time of windows that were not aggregated
SELECT window_start, window_end, COUNT(*) AS n FROM TUMBLE(
  (SELECT auction, window_time AS at FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND)),
  DESCRIPTOR(at), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- window_time of a window join
SELECT window_start, COUNT(*) AS n FROM TUMBLE((
  SELECT l.at, l.auction FROM
    (SELECT window_start, window_end, window_time AS at, auction FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND)) AS l
    JOIN (SELECT window_start, window_end, name FROM TUMBLE(TABLE people, DESCRIPTOR(ts), INTERVAL '5' SECOND)) AS r
    ON l.window_start = r.window_start AND l.window_end = r.window_end), DESCRIPTOR(at), INTERVAL '10' SECOND)
GROUP BY window_start, window_end;

--- a view of renamed windows, as Flink's documentation cascades them
CREATE VIEW fives AS
SELECT window_start AS five_start, window_end AS five_end, window_time AS rowtime, SUM(price) AS partial_total
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND)) GROUP BY window_start, window_end, window_time;
SELECT window_start, window_end, SUM(partial_total) AS total
FROM TABLE(TUMBLE(TABLE fives, DESCRIPTOR(rowtime), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
