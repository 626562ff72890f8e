-- Joins of two streams without windows.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

--- INNER
SELECT b.bidder, b.price, p.city FROM bids AS b JOIN people AS p ON b.bidder = p.name;

--- INNER with a condition
SELECT b.bidder, b.price, p.city FROM bids AS b JOIN people AS p ON b.bidder = p.name AND b.price > 10;

--- INNER by a condition alone
SELECT b.bidder, p.name FROM bids AS b JOIN people AS p ON b.price > 20 AND b.bidder < p.name;

--- every pair
-- last per 0
SELECT COUNT(*) AS pairs FROM (SELECT b.price FROM bids AS b CROSS JOIN people AS p) WHERE price > 10;

--- LEFT
-- table
SELECT b.bidder, b.price, p.city FROM bids AS b LEFT JOIN people AS p ON b.bidder = p.name;

--- LEFT with a condition
-- table
SELECT b.bidder, b.price, p.city FROM bids AS b LEFT JOIN people AS p ON b.bidder = p.name AND b.price > 10;

--- RIGHT
-- table
SELECT b.price, p.name, p.city FROM bids AS b RIGHT JOIN people AS p ON b.bidder = p.name;

--- FULL
-- table
SELECT b.bidder, b.price, p.name, p.city FROM bids AS b FULL JOIN people AS p ON b.bidder = p.name;

--- a condition on what may be padded
-- table
SELECT b.bidder, b.price FROM bids AS b LEFT JOIN people AS p ON b.bidder = p.name WHERE p.name IS NULL;

--- a computed key
SELECT b.bidder, p.name FROM bids AS b JOIN people AS p ON upper(b.bidder) = upper(p.name) AND b.price < 8;

--- two keys
SELECT l.bidder, l.price, r.price AS other FROM bids AS l JOIN bids AS r
ON l.auction = r.auction AND l.bidder = r.bidder AND l.price < r.price;

--- three streams
SELECT b.bidder, p.city, q.name FROM bids AS b JOIN people AS p ON b.bidder = p.name
JOIN people AS q ON p.city = q.city AND b.price > 20;

--- with rows that are replaced
-- table
SELECT p.name, p.city, n FROM people AS p JOIN (SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder) AS c ON p.name = c.bidder;

--- both sides are replaced
-- table
SELECT l.bidder, l.n, r.cities FROM (SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder) AS l
FULL JOIN (SELECT name, COUNT(*) AS cities FROM people GROUP BY name) AS r ON l.bidder = r.name;

--- aggregated
-- last per 1
SELECT p.city, COUNT(*) AS n, SUM(b.price) AS total FROM bids AS b JOIN people AS p ON b.bidder = p.name GROUP BY p.city;

--- an outer join aggregated
-- last per 1
SELECT p.city, COUNT(*) AS n, MAX(b.price) AS highest FROM bids AS b LEFT JOIN people AS p ON b.bidder = p.name GROUP BY p.city;

--- a pair for which the condition fails
SELECT b.bidder, p.name FROM bids AS b JOIN people AS p ON b.bidder = p.name AND 100 / (b.auction - 2) < 0;

--- a pair for which the condition fails is not padded
-- table
SELECT b.bidder, b.auction, p.name FROM bids AS b LEFT JOIN people AS p ON b.bidder = p.name AND 100 / (b.auction - 2) > 0;

--- windows that differ are joined like other columns
SELECT l.window_start, r.window_start AS other, l.bidder FROM
  (SELECT * FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS l
JOIN (SELECT * FROM TUMBLE(TABLE people, DESCRIPTOR(ts), INTERVAL '20' SECOND)) AS r ON l.bidder = r.name AND l.price < 10;

--- EXPLAIN of an outer join
-- explain
EXPLAIN SELECT b.bidder, p.city FROM bids AS b LEFT JOIN people AS p ON b.bidder = p.name AND b.price > 1;
