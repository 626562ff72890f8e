-- Joins of a stream with a table: one that ends, or the versions of one that changes.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

CREATE TABLE cities (city STRING, country STRING, inhabitants BIGINT)
WITH ('connector' = 'file', 'path' = 'data/cities.csv');

CREATE TABLE rates (ms BIGINT, auction INT, rate DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '10' SECOND)
WITH ('connector' = 'file', 'path' = 'data/rates.csv');

CREATE TABLE endless (k INT, v INT) WITH ('connector' = 'stdin', 'format' = 'csv');

--- inner
SELECT b.ms, b.bidder, p.city FROM bids AS b JOIN people AS p ON b.bidder = p.name;

--- the table on the left
SELECT b.ms, b.bidder, p.city FROM people AS p JOIN bids AS b ON b.bidder = p.name;

--- left: rows without a partner are padded, and NULL equals nothing
SELECT b.ms, b.bidder, p.city FROM bids AS b LEFT JOIN people AS p ON b.bidder = p.name;

--- right, with the table on the left
SELECT b.ms, b.bidder, p.city FROM people AS p RIGHT JOIN bids AS b ON b.bidder = p.name;

--- left, with another condition
SELECT b.ms, b.bidder, p.city FROM bids AS b LEFT JOIN people AS p ON b.bidder = p.name AND p.ms < b.ms;

--- a condition that fails for a pair refuses that pair
SELECT b.ms, b.bidder, p.city FROM bids AS b JOIN people AS p ON b.bidder = p.name AND 10 / (b.auction - 2) < p.ms;

--- a condition that fails for a row leaves it out
SELECT b.ms, p.city FROM bids AS b LEFT JOIN people AS p ON b.bidder = p.name AND 10 / (b.auction - 2) < p.ms;

--- USING, WHERE, and a table with conditions
SELECT bidder, p.city, country FROM bids JOIN (SELECT name AS bidder, city FROM people WHERE city <> 'Turin') AS p USING (bidder)
LEFT JOIN cities ON cities.city = p.city WHERE price > 5;

--- a join of tables as the table
SELECT b.ms, h.name, h.country FROM bids AS b
JOIN (SELECT p.name, c.country FROM people AS p JOIN cities AS c ON p.city = c.city) AS h ON b.bidder = h.name;

--- a table that is joined with itself
SELECT one.name, other.name AS namesake FROM people AS one JOIN people AS other ON one.city = other.city;

--- a stream that is joined twice, and with the same table
SELECT b.ms, p.city, c.country, q.name AS neighbour FROM bids AS b JOIN people AS p ON b.bidder = p.name
JOIN cities AS c ON p.city = c.city JOIN people AS q ON q.city = p.city WHERE b.auction = 1;

--- every pair
SELECT b.ms, c.city FROM bids AS b CROSS JOIN cities AS c WHERE b.auction = 3;

--- by an expression on both sides
SELECT b.ms, p.name FROM bids AS b JOIN people AS p ON UPPER(b.bidder) = UPPER(p.name) AND b.ms / 1000 = (p.ms + 500) / 1000;

--- windows after the join, with late rows
SELECT window_start, city, COUNT(*) AS n, SUM(price) AS total FROM TUMBLE(TABLE (
  SELECT b.ts, b.price, p.city FROM bids AS b JOIN people AS p ON b.bidder = p.name), DESCRIPTOR(ts), INTERVAL '2' SECOND)
GROUP BY window_start, window_end, city;

--- a running aggregate after the join
-- last per 1
SELECT c.country, COUNT(*) AS n FROM bids AS b JOIN people AS p ON b.bidder = p.name JOIN cities AS c ON c.city = p.city
GROUP BY c.country;

--- windows before the join
SELECT w.window_start, w.bidder, w.n, p.city FROM (
  SELECT window_start, window_end, bidder, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
  GROUP BY window_start, window_end, bidder) AS w JOIN people AS p ON w.bidder = p.name;

--- explained
-- explain
EXPLAIN SELECT b.ms, b.bidder, p.city FROM bids AS b LEFT JOIN people AS p ON b.bidder = p.name AND p.ms < b.ms;

--- a full join with a table is one of streams
-- table
SELECT * FROM bids AS b FULL JOIN people AS p ON b.bidder = p.name;

--- so is a left join that keeps the table
-- table
SELECT * FROM people AS p LEFT JOIN bids AS b ON b.bidder = p.name;

--- two streams
-- explain
EXPLAIN SELECT b.price, e.k FROM bids AS b JOIN endless AS e ON b.auction = e.k;

--- two streams of event time
SELECT b.price, r.rate FROM bids AS b JOIN rates AS r ON b.auction = r.auction;

--- a running aggregate joined with a stream
-- table
SELECT * FROM bids AS b JOIN (SELECT name, COUNT(*) AS n FROM people GROUP BY name) AS p ON b.bidder = p.name;

--- the version that is valid at a row's time
SELECT b.ms, b.auction, b.price, r.rate FROM bids AS b JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction;

--- the same, padded
SELECT b.ms, b.auction, r.ms AS since, r.rate FROM bids AS b
LEFT JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction;

--- with another condition
SELECT b.ms, b.auction, r.rate FROM bids AS b
LEFT JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction AND r.rate > 1;

--- a condition after the join does not join older versions
SELECT b.ms, r.rate FROM bids AS b JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction WHERE r.rate < 1.2;

--- nor does one of the join
SELECT b.ms, r.rate FROM bids AS b JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction AND r.rate < 1.2;

--- nor one of a left join
SELECT b.ms, r.rate FROM bids AS b LEFT JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction AND r.rate < 1.2;

--- nor one of a query around it
SELECT ms, rate FROM (SELECT b.ms, b.price, r.rate FROM bids AS b
  JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction) AS x WHERE rate < 1.2 AND price > 5;

--- nor one that fails
SELECT b.ms, r.rate FROM bids AS b JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction
WHERE 10 / CAST(r.rate - 1.25 AS INT) < 100;

--- without an alias
SELECT bids.ms, rate FROM bids JOIN rates FOR SYSTEM_TIME AS OF bids.ts ON bids.auction = rates.auction;

--- at a window's time
SELECT w.window_end, w.auction, w.n, r.rate FROM (
  SELECT window_start, window_end, window_time, auction, COUNT(*) AS n
  FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
  GROUP BY window_start, window_end, window_time, auction) AS w
JOIN rates FOR SYSTEM_TIME AS OF w.window_time AS r ON w.auction = r.auction;

--- and aggregated
SELECT window_start, SUM(value) AS total FROM TUMBLE(TABLE (
  SELECT b.ts, b.price * r.rate AS value FROM bids AS b
  JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction), DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end;

--- both kinds of tables
SELECT b.ms, p.city, r.rate FROM bids AS b JOIN people AS p ON b.bidder = p.name
JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON r.auction = b.auction;

--- versions explained
-- explain
EXPLAIN SELECT b.ms, r.rate FROM bids AS b JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction;

--- versions of a table without event time
SELECT * FROM bids AS b JOIN people FOR SYSTEM_TIME AS OF b.ts AS p ON b.bidder = p.name;

--- versions at a column that is not event time
SELECT * FROM bids AS b JOIN rates FOR SYSTEM_TIME AS OF b.ms AS r ON b.auction = r.auction;

--- versions at processing time
SELECT * FROM bids AS b JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() AS r ON b.auction = r.auction;

--- versions without a key
SELECT * FROM bids AS b JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON b.price > r.rate;

--- versions of the right side that a right join keeps
SELECT * FROM bids AS b RIGHT JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction;

--- versions by USING
SELECT * FROM bids JOIN rates FOR SYSTEM_TIME AS OF bids.ts USING (auction);

--- versions of what is not joined
SELECT * FROM rates FOR SYSTEM_TIME AS OF ts;

--- versions of an unknown table
SELECT * FROM bids AS b JOIN prices FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction;

--- versions of a view
CREATE VIEW v AS SELECT * FROM rates;
SELECT * FROM bids AS b JOIN v FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction;

--- versions at the table's own time
SELECT * FROM bids AS b JOIN rates FOR SYSTEM_TIME AS OF r.ts AS r ON b.auction = r.auction;

--- versions after the alias
SELECT * FROM bids AS b JOIN rates AS r FOR SYSTEM_TIME AS OF b.ts ON b.auction = r.auction;

--- versions of a query
SELECT * FROM bids AS b JOIN (SELECT * FROM rates) FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction;

--- versions of a table that is nearly right
SELECT * FROM bids AS b JOIN rate FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction;

--- USING in an outer join
SELECT * FROM bids LEFT JOIN people USING (ms);

--- NATURAL in an outer join
SELECT * FROM bids NATURAL FULL JOIN people;

--- versions of a table with a PRIMARY KEY, as in Flink
CREATE TABLE keyed_rates (ms BIGINT, auction INT, rate DOUBLE, ts AS TO_TIMESTAMP_LTZ(ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '10' SECOND, PRIMARY KEY (auction) NOT ENFORCED)
WITH ('connector' = 'file', 'path' = 'data/rates.csv');
SELECT b.ms, b.price * r.rate AS worth FROM bids AS b
JOIN keyed_rates FOR SYSTEM_TIME AS OF b.ts AS r ON b.auction = r.auction;

--- a table of which no column is read
SELECT ms FROM bids WHERE EXISTS (SELECT 1 FROM people) AND auction = 3;
SELECT ms FROM bids WHERE NOT EXISTS (SELECT 1 FROM people);
SELECT ms FROM bids WHERE NOT EXISTS (SELECT 1 FROM people WHERE 1 = 0) AND auction = 3;

--- a product of which no column is read
-- last per 0
SELECT COUNT(*) AS n FROM bids CROSS JOIN cities CROSS JOIN people;

--- a product of tables of every format
-- last per 0
CREATE TABLE a (x STRING) WITH ('connector' = 'file', 'path' = 'data/lines.txt', 'format' = 'raw');
CREATE TABLE b (id BIGINT) WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');
CREATE TABLE c (id BIGINT) WITH ('connector' = 'file', 'path' = 'data/orders.arrow', 'format' = 'arrow');
CREATE TABLE d (n INT, word STRING) WITH ('connector' = 'file', 'path' = 'data/packed.csv.zst');
SELECT COUNT(*) AS n FROM bids, a, b, c, d WHERE EXISTS (SELECT 1 FROM a) AND EXISTS (SELECT 1 FROM d);

--- streams of which no column is read
-- last per 0
SELECT COUNT(*) AS n FROM bids AS a CROSS JOIN bids AS b;
