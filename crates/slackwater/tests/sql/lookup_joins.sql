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

CREATE TABLE orders (ms BIGINT, auction INT, bidder STRING, price DOUBLE, proc_time AS PROCTIME(),
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

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

--- at a column that is not a time
SELECT * FROM bids AS b JOIN people FOR SYSTEM_TIME AS OF b.ms AS p ON b.bidder = p.name;

--- without a column of the stream
SELECT * FROM bids AS b JOIN people FOR SYSTEM_TIME AS OF PROCTIME() AS p ON p.name = 'Ada';

--- that keeps rows of the table
SELECT * FROM bids AS b RIGHT JOIN people FOR SYSTEM_TIME AS OF PROCTIME() AS p ON b.bidder = p.name;

--- at another function
SELECT * FROM bids AS b JOIN people FOR SYSTEM_TIME AS OF NOW() AS p ON b.bidder = p.name;

--- at a column that is PROCTIME()
SELECT o.ms, o.bidder, p.city FROM orders AS o JOIN people FOR SYSTEM_TIME AS OF o.proc_time AS p ON o.bidder = p.name;

--- left, at such a column, with conditions
SELECT o.ms, o.bidder, p.city, p.capitals FROM orders AS o
LEFT JOIN people FOR SYSTEM_TIME AS OF o.proc_time AS p ON o.bidder = p.name AND p.city <> 'Turin' AND o.price > 5;

--- that column in the result, too
SELECT o.ms, p.city, o.proc_time IS NULL AS has_none FROM orders AS o
JOIN people FOR SYSTEM_TIME AS OF o.proc_time AS p ON o.bidder = p.name;

--- a column without its table's name
SELECT o.ms, city FROM orders AS o JOIN people FOR SYSTEM_TIME AS OF proc_time AS p ON bidder = name WHERE price > 5;

--- through a view, which names it otherwise
CREATE VIEW dear AS SELECT ms, bidder, proc_time AS at FROM orders WHERE price > 5;
SELECT d.ms, p.city FROM dear AS d JOIN people FOR SYSTEM_TIME AS OF d.at AS p ON d.bidder = p.name;

--- a column that a subquery makes
SELECT b.ms, p.city FROM (SELECT *, PROCTIME() AS at FROM bids) AS b JOIN people FOR SYSTEM_TIME AS OF b.at AS p ON b.bidder = p.name;

--- in front of windows of event time
SELECT window_start, city, COUNT(*) AS n FROM TUMBLE((SELECT o.ts, p.city FROM orders AS o
  JOIN people FOR SYSTEM_TIME AS OF o.proc_time AS p ON o.bidder = p.name), DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, city;

--- after windows
SELECT w.window_start, w.bidder, p.city FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND) AS w
JOIN people FOR SYSTEM_TIME AS OF w.proc_time AS p ON w.bidder = p.name;

--- twice
SELECT o.ms, p.city, q.ms AS since FROM orders AS o
JOIN people FOR SYSTEM_TIME AS OF o.proc_time AS p ON o.bidder = p.name
LEFT JOIN people FOR SYSTEM_TIME AS OF o.proc_time AS q ON o.bidder = q.name AND q.city = 'Turin';

--- at such a column, in a table with event time
SELECT * FROM orders AS o JOIN rates FOR SYSTEM_TIME AS OF o.proc_time AS r ON o.auction = r.auction;

--- at such a column, in a table that may never end
SELECT * FROM orders AS o JOIN endless FOR SYSTEM_TIME AS OF o.proc_time AS e ON o.auction = e.k;

--- at another time than now
CREATE VIEW planned AS SELECT *, proc_time + INTERVAL '1' HOUR AS later FROM orders;
SELECT * FROM planned AS o JOIN people FOR SYSTEM_TIME AS OF o.later AS p ON o.bidder = p.name;

--- a column computed from such a column
CREATE TABLE wrong (k INT, proc_time AS PROCTIME(), later AS proc_time + INTERVAL '1' HOUR) WITH ('connector' = 'stdin');

--- at a column that is not there
SELECT * FROM orders AS o JOIN people FOR SYSTEM_TIME AS OF o.proctime AS p ON o.bidder = p.name;

--- at a column of the table itself
SELECT * FROM bids AS b JOIN orders FOR SYSTEM_TIME AS OF o.proc_time AS o ON b.bidder = o.bidder;

--- a condition in front of the key
SELECT b.ms, p.city FROM bids AS b JOIN people FOR SYSTEM_TIME AS OF PROCTIME() AS p ON p.city <> 'Turin' AND b.bidder = p.name;

--- the key in WHERE's company
SELECT o.ms, p.city FROM orders AS o JOIN people FOR SYSTEM_TIME AS OF o.proc_time AS p ON o.bidder = p.name
WHERE o.bidder <> 'bob' AND p.name <> 'alice' AND o.price > 1;

--- the internal function, as a condition
SELECT * FROM orders WHERE system_time_as_of(proc_time, bidder, false);
