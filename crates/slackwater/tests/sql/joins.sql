-- Joins of two inputs over the same window.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

CREATE VIEW b AS SELECT * FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND);
CREATE VIEW p AS SELECT * FROM TUMBLE(TABLE people, DESCRIPTOR(ts), INTERVAL '10' SECOND);

--- inner
SELECT b.window_start, b.bidder, b.price, p.city FROM b JOIN p
ON b.bidder = p.name AND b.window_start = p.window_start AND b.window_end = p.window_end;

--- left
SELECT b.window_start, b.bidder, b.price, p.city FROM b LEFT JOIN p
ON b.bidder = p.name AND b.window_start = p.window_start AND b.window_end = p.window_end;

--- right
SELECT p.window_start, p.name, p.city, b.price FROM b RIGHT JOIN p
ON b.bidder = p.name AND b.window_start = p.window_start AND b.window_end = p.window_end;

--- full
SELECT b.window_start AS b_start, p.window_start AS p_start, b.bidder, p.name, b.price FROM b FULL OUTER JOIN p
ON b.bidder = p.name AND b.window_start = p.window_start AND b.window_end = p.window_end;

--- with another condition
SELECT b.window_start, b.bidder, b.price, p.city FROM b JOIN p
ON b.bidder = p.name AND b.window_start = p.window_start AND b.window_end = p.window_end AND b.price > 10 AND p.ts <= b.ts;

--- left, with another condition: rows that fail it are padded
SELECT b.window_start, b.bidder, b.price, p.city FROM b LEFT JOIN p
ON b.bidder = p.name AND b.window_start = p.window_start AND b.window_end = p.window_end AND b.price > 10;

--- full, with another condition
SELECT b.bidder, b.price, p.name, p.city FROM b FULL JOIN p
ON b.bidder = p.name AND b.window_start = p.window_start AND b.window_end = p.window_end AND p.city = 'Oslo' AND b.price > 1;

--- by the window's start only, and the sides the other way round
SELECT b.bidder, p.city FROM b JOIN p ON p.window_start = b.window_start AND p.name = b.bidder;

--- by the window's end only
SELECT b.bidder, p.city FROM b JOIN p ON p.window_end = b.window_end AND p.name = b.bidder;

--- by the window only: every pair
SELECT b.window_start, b.bidder, p.name FROM b JOIN p ON b.window_start = p.window_start AND b.window_end = p.window_end
WHERE b.auction = 1;

--- by the window only, with an inequality
SELECT b.window_start, b.bidder, p.name FROM b JOIN p ON b.window_start = p.window_start AND b.window_end = p.window_end AND b.bidder < p.name;

--- conditions in WHERE
SELECT b.bidder, p.city FROM b, p
WHERE b.window_start = p.window_start AND b.window_end = p.window_end AND b.bidder = p.name AND b.price > 5;

--- USING
SELECT window_start, bidder, name, city FROM b JOIN p USING (window_start, window_end);

--- keys that are expressions, of different types
SELECT b.auction, p.name FROM b JOIN p
ON b.window_start = p.window_start AND b.window_end = p.window_end AND upper(b.bidder) = upper(p.name) AND b.auction + 1 = char_length(p.city) - 2;

--- two keys
SELECT l.auction, l.bidder AS one, r.bidder AS other FROM b AS l JOIN b AS r
ON l.window_start = r.window_start AND l.window_end = r.window_end AND l.auction = r.auction AND (l.price > 9) = (r.price > 9)
AND l.ms < r.ms;

--- of two aggregates
SELECT x.window_start, x.n AS bids, y.n AS people
FROM (SELECT window_start, window_end, COUNT(*) AS n FROM b GROUP BY window_start, window_end) AS x
LEFT JOIN (SELECT window_start, window_end, COUNT(*) AS n FROM p GROUP BY window_start, window_end) AS y
ON x.window_start = y.window_start AND x.window_end = y.window_end;

--- of sliding windows
SELECT l.window_start, l.bidder, r.city
FROM (SELECT * FROM HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) AS l
JOIN (SELECT * FROM HOP(TABLE people, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) AS r
ON l.window_start = r.window_start AND l.window_end = r.window_end AND l.bidder = r.name;

--- of three
SELECT a.window_start, a.bidder, c.n FROM b AS a
JOIN p ON a.window_start = p.window_start AND a.window_end = p.window_end AND a.bidder = p.name
JOIN (SELECT window_start, window_end, COUNT(*) AS n FROM b GROUP BY window_start, window_end) AS c
ON a.window_start = c.window_start AND a.window_end = c.window_end;

--- then aggregated in the same window
SELECT b.window_start, p.city, SUM(b.price) AS total FROM b JOIN p
ON b.bidder = p.name AND b.window_start = p.window_start AND b.window_end = p.window_end
GROUP BY b.window_start, b.window_end, p.city;

--- then aggregated over everything
-- last per 1
SELECT p.city, COUNT(*) AS n FROM b JOIN p
ON b.bidder = p.name AND b.window_start = p.window_start AND b.window_end = p.window_end GROUP BY p.city;

--- a row that is late for its window joins nothing
CREATE TABLE strict (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');
SELECT s.bidder, s.price FROM (SELECT * FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS s
JOIN b ON s.window_start = b.window_start AND s.window_end = b.window_end AND s.ms = b.ms;

--- NATURAL, of views with the columns of the window and one more in common
CREATE VIEW x AS SELECT window_start, window_end, bidder AS who, price FROM b;
CREATE VIEW y AS SELECT window_start, window_end, name AS who, city FROM p;
SELECT * FROM x NATURAL JOIN y;

--- a side that ends long before the other
CREATE TABLE short (ms BIGINT, k STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/short.csv');
CREATE TABLE long (ms BIGINT, k STRING, x INT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/long.csv');
SELECT a.window_start, a.k, a.c, b.x FROM (SELECT window_start, window_end, k, COUNT(*) c
  FROM TUMBLE(TABLE short, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, k) a
JOIN (SELECT * FROM TUMBLE(TABLE long, DESCRIPTOR(ts), INTERVAL '10' SECOND)) b
ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end;
