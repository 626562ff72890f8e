-- Statements: INSERT, CREATE VIEW, SET, EXPLAIN, UNION ALL, WITH.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

--- several INSERTs share one source (demux)
CREATE TABLE high (bidder STRING, price DOUBLE) WITH ('connector' = 'file', 'path' = 'out/high.csv');
CREATE TABLE low (bidder STRING, price DOUBLE) WITH ('connector' = 'file', 'path' = 'out/low.csv');
CREATE TABLE counts (window_start TIMESTAMP(3), n BIGINT) WITH ('connector' = 'file', 'path' = 'out/counts.csv');
INSERT INTO high SELECT bidder, price FROM bids WHERE price >= 10;
INSERT INTO low SELECT bidder, price FROM bids WHERE price < 10;
INSERT INTO counts SELECT window_start, COUNT(*) FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start;

--- how a demux looks
-- explain
CREATE TABLE high (bidder STRING, price DOUBLE) WITH ('connector' = 'file', 'path' = 'out/high.csv');
CREATE TABLE low (bidder STRING, price DOUBLE) WITH ('connector' = 'file', 'path' = 'out/low.csv');
EXPLAIN INSERT INTO high SELECT bidder, price FROM bids WHERE price >= 10;
EXPLAIN INSERT INTO low SELECT bidder, price FROM bids WHERE price < 10;

--- a SELECT next to an INSERT
CREATE TABLE high (bidder STRING, price DOUBLE) WITH ('connector' = 'file', 'path' = 'out/high.csv');
INSERT INTO high SELECT bidder, price FROM bids WHERE price >= 10;
SELECT auction, price FROM bids WHERE price < 5;

--- INSERT with a column list: the others are NULL
CREATE TABLE result (a STRING, b INT, c DOUBLE, d STRING) WITH ('connector' = 'file', 'path' = 'out/result.csv', 'csv.header' = 'true', 'csv.null' = '-');
INSERT INTO result (c, a) SELECT price, bidder FROM bids WHERE auction = 2;

--- INSERT casts by position
CREATE TABLE result (auction STRING, price DECIMAL(6, 1), ms INT, at TIMESTAMP(0), day DATE) WITH ('connector' = 'file', 'path' = 'out/result.csv');
INSERT INTO result SELECT auction, price, ms, ts, ts FROM bids;

--- INSERT with columns of other names
CREATE TABLE result (x INT, y STRING) WITH ('connector' = 'file', 'path' = 'out/result.csv', 'csv.header' = 'true');
INSERT INTO result SELECT auction AS a, bidder AS b FROM bids WHERE price > 10;

--- INSERT from a WITH query and from a view
CREATE TABLE result (bidder STRING) WITH ('connector' = 'file', 'path' = 'out/result.csv');
CREATE VIEW ones AS SELECT * FROM bids WHERE auction = 1;
INSERT INTO result WITH cheap AS (SELECT * FROM ones WHERE price < 11) SELECT bidder FROM cheap;

--- INSERT INTO a table with computed columns writes the others
CREATE TABLE result (a INT, twice AS a * 2, b STRING) WITH ('connector' = 'file', 'path' = 'out/result.csv', 'csv.header' = 'true');
INSERT INTO result SELECT auction, bidder FROM bids WHERE auction > 1;

--- two INSERTs of the same rows
CREATE TABLE one (n INT) WITH ('connector' = 'file', 'path' = 'out/one.csv');
CREATE TABLE other (n INT) WITH ('connector' = 'file', 'path' = 'out/other.csv');
INSERT INTO one SELECT auction FROM bids WHERE price > 20;
INSERT INTO other SELECT auction FROM bids WHERE price > 20;

--- CREATE VIEW with names of columns
CREATE VIEW v (item, who, at) AS SELECT auction, bidder, ts FROM bids;
SELECT who, item FROM v WHERE at < TIMESTAMP '1970-01-01 00:00:02.5';

--- a view over a view, and twice in a query
CREATE VIEW one AS SELECT auction, price FROM bids WHERE auction = 1;
CREATE VIEW cheap AS SELECT price FROM one WHERE price < 11;
SELECT price FROM cheap UNION ALL SELECT price + 100 FROM cheap;

--- SET in all its forms
SET 'parallelism' = '2';
SET parallelism = 1;
SET "linger" = '1 ms';
SET latency_target TO '50 ms';
SELECT auction FROM bids WHERE price > 20;

--- rows dealt out in turn
SET 'order' = 'none';
SET 'balancer' = 'round_robin';
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start;

--- EXPLAIN
-- explain
EXPLAIN SELECT window_start, auction, COUNT(*) AS n, AVG(price) AS average
FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) WHERE bidder <> 'bob' GROUP BY window_start, window_end, auction;

--- EXPLAIN of a join and a union
-- explain
CREATE VIEW b AS SELECT * FROM HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND);
CREATE VIEW p AS SELECT * FROM HOP(TABLE people, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND);
EXPLAIN SELECT b.bidder, p.city FROM b JOIN p ON b.window_start = p.window_start AND b.window_end = p.window_end AND b.bidder = p.name AND b.price > 10
UNION ALL SELECT city, name FROM people;

--- EXPLAIN next to a query that runs
-- explain
EXPLAIN SELECT COUNT(*) AS n FROM people;
SELECT bidder FROM bids WHERE price = 30;

--- UNION ALL
SELECT bidder AS who, ms FROM bids WHERE auction = 2 UNION ALL SELECT name, ms FROM people UNION ALL SELECT 'nobody', 0 FROM people WHERE city = 'Turin';

--- UNION ALL, then a window
CREATE VIEW seen AS SELECT bidder AS who, ts FROM bids UNION ALL SELECT name, ts FROM people;
SELECT window_start, COUNT(*) AS n, COUNT(DISTINCT who) AS persons FROM TUMBLE(TABLE seen, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end;

--- UNION ALL, then FIRST_VALUE
CREATE VIEW seen AS SELECT bidder AS who, ts FROM bids UNION ALL SELECT name, ts FROM people;
SELECT window_start, FIRST_VALUE(who) AS first_person, LAST_VALUE(who) AS last_person FROM TUMBLE(TABLE seen, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end;

--- UNION ALL of windowed aggregates
SELECT window_start, 'bids' AS what, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start
UNION ALL
SELECT window_start, 'people', COUNT(*) FROM TUMBLE(TABLE people, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start;

--- UNION without ALL returns each row once
-- last per 1
SELECT bidder FROM bids UNION SELECT name FROM people;

--- an alias of a table
SELECT b.bidder, b.price FROM bids AS b WHERE b.price > 10;

--- a star of one table
SELECT p.*, p.ms + 1 AS next FROM people p WHERE city = 'Oslo';

--- a subquery without an alias, and one with names of columns
SELECT who FROM (SELECT x AS who FROM (SELECT name, ms FROM people WHERE ms > 5000) AS q(x, y)) WHERE who IS NOT NULL;

--- a star without some columns
SELECT * EXCLUDE (ms, ts) FROM bids WHERE auction = 3;

--- a star with one column replaced
SELECT * REPLACE (ms + 1 AS ms) FROM bids WHERE auction = 3;

--- GROUP BY ALL groups by all columns that are not aggregated
-- last per 1
SELECT auction, COUNT(*) AS n FROM bids GROUP BY ALL;
