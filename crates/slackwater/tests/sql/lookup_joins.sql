-- Joins with what a table has at the moment at which a row is worked on. Tables of databases are in the tests of
-- their features; a table that ends is read before the stream, and joined as one.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING, capitals AS UPPER(city))
WITH ('connector' = 'file', 'path' = 'data/people.csv');

CREATE TABLE rates (ms BIGINT, auction INT, rate DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '10' SECOND)
WITH ('connector' = 'file', 'path' = 'data/rates.csv');

CREATE TABLE endless (k INT, v INT) WITH ('connector' = 'stdin', 'format' = 'csv');

--- inner
SELECT b.ms, b.bidder, p.city FROM bids AS b JOIN people FOR SYSTEM_TIME AS OF PROCTIME() AS p ON b.bidder = p.name;

--- left, with conditions, and without the keyword AS
SELECT b.ms, b.bidder, p.city, p.capitals FROM bids b
LEFT JOIN people FOR SYSTEM_TIME AS OF proctime() p ON b.bidder = p.name AND p.city <> 'Turin' AND b.price > 5;

--- a condition on the table, and columns without their table's name
SELECT bidder, city FROM bids JOIN people FOR SYSTEM_TIME AS OF PROCTIME() ON bidder = name WHERE city <> 'Turin';

--- in front of windows
SELECT window_start, city, COUNT(*) AS n FROM TUMBLE((SELECT b.ts, p.city FROM bids AS b
  JOIN people FOR SYSTEM_TIME AS OF PROCTIME() AS p ON b.bidder = p.name), DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, city;

--- explained
-- explain
EXPLAIN SELECT b.ms, p.city FROM bids AS b JOIN people FOR SYSTEM_TIME AS OF PROCTIME() AS p ON b.bidder = p.name;

--- in a table with event time
SELECT * FROM bids AS b JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() AS r ON b.auction = r.auction;

--- in a table that may never end
SELECT * FROM bids AS b JOIN endless FOR SYSTEM_TIME AS OF PROCTIME() AS e ON b.auction = e.k;

--- at event time, in a table without
SELECT * FROM bids AS b JOIN people FOR SYSTEM_TIME AS OF b.ts AS p ON b.bidder = p.name;

--- at a column that is no time
SELECT * FROM bids AS b JOIN people FOR SYSTEM_TIME AS OF b.ms AS p ON b.bidder = p.name;

--- without a column of the stream
SELECT * FROM bids AS b JOIN people FOR SYSTEM_TIME AS OF PROCTIME() AS p ON p.name = 'Ada';

--- that keeps rows of the table
SELECT * FROM bids AS b RIGHT JOIN people FOR SYSTEM_TIME AS OF PROCTIME() AS p ON b.bidder = p.name;

--- at another function
SELECT * FROM bids AS b JOIN people FOR SYSTEM_TIME AS OF NOW() AS p ON b.bidder = p.name;
