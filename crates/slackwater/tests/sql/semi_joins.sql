-- Semi and anti joins: IN (SELECT …), EXISTS, and written as such. And subqueries that are values.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

CREATE TABLE names (ms BIGINT, name STRING, city STRING)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

CREATE TABLE nobody (ms BIGINT, name STRING, city STRING)
WITH ('connector' = 'file', 'path' = 'data/empty.csv');

CREATE TABLE nobody_ever (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/empty.csv');

CREATE VIEW b AS SELECT * FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND);
CREATE VIEW p AS SELECT * FROM TUMBLE(TABLE people, DESCRIPTOR(ts), INTERVAL '10' SECOND);

--- IN: rows are emitted once, however many partners they have
SELECT ms, bidder FROM bids WHERE bidder IN (SELECT name FROM people);

--- IN with conditions on both sides
SELECT ms, bidder FROM bids WHERE price > 8 AND bidder IN (SELECT name FROM people WHERE city = 'Oslo') AND auction = 1;

--- EXISTS
SELECT ms, bidder FROM bids AS b WHERE EXISTS (SELECT 1 FROM people AS p WHERE p.name = b.bidder);

--- EXISTS with another condition
SELECT b.ms, b.bidder FROM bids AS b WHERE EXISTS (SELECT * FROM people AS p WHERE p.name = b.bidder AND p.ms < b.ms AND b.price > 8);

--- EXISTS without a key
SELECT b.ms, b.bidder FROM bids AS b WHERE EXISTS (SELECT 1 FROM people AS p WHERE p.ms > b.ms AND p.city = 'Oslo');

--- EXISTS that does not depend on the row
SELECT ms FROM bids WHERE price < 5 AND EXISTS (SELECT 1 FROM people WHERE city = 'Turin');

--- EXISTS that is never true
SELECT ms FROM bids WHERE EXISTS (SELECT 1 FROM people WHERE city = 'Rome');

--- LEFT SEMI JOIN
SELECT b.ms, b.bidder FROM bids AS b LEFT SEMI JOIN people AS p ON b.bidder = p.name AND p.city <> 'Turin';

--- RIGHT SEMI JOIN
SELECT p.ms, p.name FROM bids AS b RIGHT SEMI JOIN people AS p ON b.bidder = p.name;

--- NOT EXISTS: a NULL has no partner
-- table
SELECT ms, bidder FROM bids AS b WHERE NOT EXISTS (SELECT 1 FROM people AS p WHERE p.name = b.bidder);

--- NOT EXISTS with a condition
-- table
SELECT ms, bidder, price FROM bids AS b WHERE NOT EXISTS (SELECT 1 FROM people AS p WHERE p.name = b.bidder AND b.price > 8);

--- NOT EXISTS without a key
-- table
SELECT b.ms, b.bidder FROM bids AS b WHERE NOT EXISTS (SELECT 1 FROM people AS p WHERE p.ms > b.ms AND p.city = 'Oslo');

--- NOT EXISTS over no rows
-- table
SELECT ms FROM bids WHERE auction = 2 AND NOT EXISTS (SELECT 1 FROM nobody_ever);

--- LEFT ANTI JOIN
-- table
SELECT b.ms, b.bidder FROM bids AS b LEFT ANTI JOIN people AS p ON b.bidder = p.name;

--- RIGHT ANTI JOIN
-- table
SELECT p.name, p.city FROM bids AS b RIGHT ANTI JOIN people AS p ON b.bidder = p.name AND b.price > 11;

--- NOT IN where nothing is NULL
-- table
SELECT ms, bidder FROM bids WHERE bidder IS NOT NULL AND bidder NOT IN (SELECT name FROM people WHERE name IS NOT NULL);

--- NOT IN where conditions see to it that nothing is NULL
-- table
SELECT ms, bidder FROM bids WHERE bidder <> 'dave' AND NOT bidder IN (SELECT name FROM people WHERE name LIKE '%o%');

--- NOT IN of keys and counts
-- table
SELECT auction, n FROM (SELECT auction, COUNT(*) AS n FROM bids GROUP BY auction)
WHERE n NOT IN (SELECT COUNT(*) FROM people WHERE name IS NOT NULL GROUP BY name);

--- NOT IN where a NULL may arrive
SELECT ms, bidder FROM bids WHERE bidder NOT IN (SELECT name FROM people);

--- NOT IN where a NULL may arrive on the left
SELECT ms, bidder FROM bids WHERE bidder NOT IN (SELECT name FROM people WHERE name IS NOT NULL);

--- NOT IN of a stream itself
-- table
SELECT ms, auction FROM bids WHERE auction > 0 AND auction NOT IN (SELECT auction FROM bids WHERE price > 20 AND auction > 0);

--- both in one query
-- table
SELECT ms, bidder FROM bids AS b WHERE bidder IN (SELECT name FROM people)
AND NOT EXISTS (SELECT 1 FROM bids AS x WHERE x.bidder = b.bidder AND x.ms > b.ms);

--- IN inside of IN
SELECT ms, bidder FROM bids WHERE bidder IN (SELECT name FROM people WHERE city IN (SELECT city FROM people WHERE name = 'carol'));

--- of rows that change
-- table
SELECT bidder, n FROM (SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder) WHERE bidder IN (SELECT name FROM people);

--- in rows that change
-- table
SELECT ms, bidder FROM bids WHERE bidder IN (SELECT bidder FROM (SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder) WHERE n = 2);

--- not in rows that change
-- table
SELECT ms, bidder FROM bids AS b WHERE NOT EXISTS (SELECT 1 FROM (SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder) AS c
WHERE c.bidder = b.bidder AND n > 1);

--- HAVING
-- table
SELECT bidder, SUM(price) AS total FROM bids GROUP BY bidder HAVING bidder IN (SELECT name FROM people) AND SUM(price) > 15;

--- aggregated
-- last per 1
SELECT auction, COUNT(*) AS n FROM bids WHERE bidder IN (SELECT name FROM people) GROUP BY auction;

--- of an anti join aggregated
-- last per 0
SELECT COUNT(*) AS n, MAX(price) AS highest FROM bids AS b WHERE NOT EXISTS (SELECT 1 FROM people AS p WHERE p.name = b.bidder);

--- in a view
CREATE VIEW known AS SELECT * FROM bids WHERE bidder IN (SELECT name FROM people);
SELECT ms, bidder FROM known WHERE auction IN (SELECT auction FROM known WHERE price > 20);

--- types that differ
SELECT ms FROM bids WHERE auction IN (SELECT ms / 500 FROM people);

--- a subquery over a window
SELECT ms, bidder FROM bids WHERE ms IN
  (SELECT MAX(ms) FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end);

--- in the same window: final, and in order of time
SELECT b.window_start, b.bidder, b.price FROM b WHERE EXISTS
  (SELECT 1 FROM p WHERE p.name = b.bidder AND p.window_start = b.window_start AND p.window_end = b.window_end);

--- not in the same window: final, too
SELECT b.window_start, b.bidder, b.price FROM b WHERE NOT EXISTS
  (SELECT 1 FROM p WHERE p.name = b.bidder AND p.window_start = b.window_start AND p.window_end = b.window_end);

--- a semi join over the window alone
SELECT b.price FROM b LEFT SEMI JOIN p ON b.window_start = p.window_start;

--- an anti join with a condition, aggregated in its window
SELECT window_start, COUNT(*) AS n FROM
  (SELECT * FROM b LEFT ANTI JOIN p ON b.window_start = p.window_start AND b.window_end = p.window_end AND b.price < 10)
GROUP BY window_start, window_end;

--- IN with windows
SELECT b.window_end, b.bidder FROM b WHERE b.bidder IN (SELECT name FROM p WHERE p.window_end = b.window_end);

--- within an interval: final, and with event time
SELECT window_start, COUNT(*) AS n FROM TUMBLE((SELECT b.ts, b.bidder FROM bids AS b WHERE EXISTS
  (SELECT 1 FROM people AS p WHERE p.name = b.bidder AND b.ts BETWEEN p.ts AND p.ts + INTERVAL '10' SECOND)),
  DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- within an interval, the rows
SELECT b.ms, b.bidder FROM bids AS b WHERE EXISTS
  (SELECT 1 FROM people AS p WHERE p.name = b.bidder AND b.ts BETWEEN p.ts AND p.ts + INTERVAL '10' SECOND);

--- not within an interval
SELECT b.ms, b.bidder FROM bids AS b WHERE NOT EXISTS
  (SELECT 1 FROM people AS p WHERE p.name = b.bidder AND b.ts BETWEEN p.ts AND p.ts + INTERVAL '10' SECOND AND b.price > 7);

--- EXPLAIN within an interval
-- explain
EXPLAIN SELECT b.ms FROM bids AS b LEFT ANTI JOIN people AS p
ON p.name = b.bidder AND b.ts BETWEEN p.ts - INTERVAL '1' SECOND AND p.ts + INTERVAL '10' SECOND;

--- with a table that ends: rows go on at once
SELECT ms, bidder FROM bids WHERE bidder IN (SELECT name FROM names WHERE city = 'Oslo');

--- NOT IN with a table that ends: no row is retracted
SELECT ms, bidder FROM bids AS b WHERE NOT EXISTS (SELECT 1 FROM names AS n WHERE n.name = b.bidder);

--- with a table and a condition
SELECT b.ms, b.bidder FROM bids AS b WHERE EXISTS (SELECT 1 FROM names AS n WHERE n.name = b.bidder AND n.ms > b.ms);

--- NOT EXISTS with a table and a condition alone
SELECT b.ms, b.bidder FROM bids AS b WHERE NOT EXISTS (SELECT 1 FROM names AS n WHERE n.ms > b.ms);

--- NOT IN of a table with a NULL: no rows
SELECT ms, bidder FROM bids WHERE bidder NOT IN (SELECT name FROM names);

--- NOT IN of a table without NULL
SELECT ms, bidder FROM bids WHERE bidder NOT IN (SELECT name FROM names WHERE name IS NOT NULL);

--- NOT IN of an empty table: all rows, NULL included
SELECT ms, bidder FROM bids WHERE bidder NOT IN (SELECT name FROM nobody);

--- NOT IN of a table for each row
SELECT ms, bidder FROM bids AS b WHERE bidder NOT IN (SELECT name FROM names AS n WHERE n.ms > b.ms);

--- event time continues after a join with a table
SELECT window_start, COUNT(*) AS n FROM
  TUMBLE((SELECT ts, bidder FROM bids WHERE bidder IN (SELECT name FROM names)), DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end;

--- rows that change, in a table that ends
-- table
SELECT bidder, n FROM (SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder) WHERE n IN (SELECT ms / 500 FROM names);

--- a table in a stream: both are streams
SELECT name, city FROM names WHERE name IN (SELECT bidder FROM bids WHERE price > 20);

--- a pair for which the condition fails lets no row through
SELECT b.ms, b.bidder FROM bids AS b WHERE EXISTS (SELECT 1 FROM people AS p WHERE p.name = b.bidder AND 100 / (b.auction - 2) < 0);

--- a pair for which the condition fails is a partner of an anti join
-- table
SELECT b.ms, b.bidder FROM bids AS b WHERE NOT EXISTS (SELECT 1 FROM people AS p WHERE p.name = b.bidder AND 100 / (b.auction - 2) > 0);

--- a condition that fails with a table
SELECT b.ms, b.bidder FROM bids AS b WHERE NOT EXISTS (SELECT 1 FROM names AS n WHERE n.name = b.bidder AND 100 / (b.auction - 2) > 0);

--- a condition that fails in a window
SELECT b.ms, b.bidder FROM b WHERE NOT EXISTS
  (SELECT 1 FROM p WHERE p.window_start = b.window_start AND p.name = b.bidder AND 100 / (b.auction - 2) > 0);

--- a value: the rows above what is now the average
-- table
SELECT ms, price FROM bids WHERE price > (SELECT AVG(price) FROM bids);

--- a value for each row
-- table
SELECT ms, auction, price FROM bids AS b WHERE price = (SELECT MAX(price) FROM bids AS x WHERE x.auction = b.auction);

--- a value in SELECT
-- table
SELECT ms, (SELECT MAX(ms) FROM people) AS latest FROM bids WHERE price > 10;

--- a scalar subquery for each row: COUNT over no rows is 0
-- table
SELECT name, (SELECT COUNT(*) FROM bids AS b WHERE b.bidder = p.name AND b.price > 8) AS bids FROM people AS p;

--- COUNT over no rows is 0
-- table
SELECT ms FROM bids WHERE auction > (SELECT COUNT(*) FROM nobody_ever);

--- MAX over no rows is NULL
-- table
SELECT ms FROM bids WHERE auction > (SELECT MAX(ms) FROM nobody_ever);

--- a value in HAVING
-- table
SELECT bidder, SUM(price) AS total FROM bids GROUP BY bidder HAVING SUM(price) > (SELECT AVG(price) FROM bids);

--- EXPLAIN of a semi join of streams
-- explain
EXPLAIN SELECT ms, bidder FROM bids WHERE bidder IN (SELECT name FROM people);

--- EXPLAIN of an anti join of streams
-- explain
EXPLAIN SELECT ms, bidder FROM bids AS b WHERE NOT EXISTS (SELECT 1 FROM people AS p WHERE p.name = b.bidder AND p.ms < b.ms);

--- EXPLAIN with a table that ends
-- explain
EXPLAIN SELECT ms, bidder FROM bids WHERE bidder NOT IN (SELECT name FROM names);

--- EXPLAIN in a window
-- explain
EXPLAIN SELECT b.ms FROM b WHERE b.bidder IN (SELECT name FROM p WHERE p.window_end = b.window_end);

--- EXPLAIN of a value
-- explain
EXPLAIN SELECT ms, price FROM bids WHERE price > (SELECT AVG(price) FROM bids);

--- IN combined with OR
SELECT ms FROM bids WHERE price > 20 OR bidder IN (SELECT name FROM people);

--- EXISTS in SELECT
SELECT ms, EXISTS (SELECT 1 FROM people WHERE name = bidder) AS is_known FROM bids;

--- IN in ON
SELECT b.ms FROM bids AS b JOIN people AS p ON b.bidder = p.name AND b.auction IN (SELECT ms FROM people);

--- a subquery in GROUP BY
SELECT COUNT(*) FROM bids GROUP BY (SELECT MAX(ms) FROM people);

--- a value in ON
SELECT b.ms FROM bids AS b JOIN people AS p ON b.bidder = p.name AND b.ms > (SELECT MAX(ms) FROM people);

--- a value of several rows
SELECT ms FROM bids WHERE bidder = (SELECT name FROM people);

--- a value with COUNT that is computed with
SELECT ms FROM bids WHERE auction > (SELECT COUNT(*) * 2 FROM people);

--- EXISTS of an aggregate
SELECT ms FROM bids WHERE EXISTS (SELECT COUNT(*) FROM people WHERE name = bidder);

--- IN of an aggregate for each row
SELECT ms FROM bids WHERE auction IN (SELECT COUNT(*) FROM people WHERE name = bidder);

--- = ANY
SELECT ms FROM bids WHERE bidder = ANY (SELECT name FROM people);

--- two columns for one
SELECT ms FROM bids WHERE bidder IN (SELECT name, city FROM people);

--- an unknown column
SELECT ms FROM bids WHERE bidder IN (SELECT nam FROM people);

--- a SEMI JOIN without a side
SELECT ms FROM bids SEMI JOIN people ON bidder = name;

--- a semi join without a condition
SELECT ms FROM bids LEFT SEMI JOIN people;

--- a column of the side that is only looked for
SELECT b.ms, p.name FROM bids AS b LEFT SEMI JOIN people AS p ON b.bidder = p.name;

--- NOT IN of streams: a view's expression that is never NULL
-- table
CREATE VIEW given AS SELECT COALESCE(name, 'nobody') AS name, ts FROM people;
SELECT ms, bidder FROM bids WHERE bidder IS NOT NULL AND bidder NOT IN (SELECT name FROM given WHERE name IS NOT NULL);

--- NOT IN of streams: never NULL without a condition
-- table
SELECT ms, bidder FROM bids WHERE bidder IS NOT NULL AND bidder NOT IN (SELECT COALESCE(name, 'nobody') FROM people);

--- NOT IN of streams: combined with BETWEEN
SELECT ms, bidder FROM bids AS b WHERE bidder IS NOT NULL
AND bidder NOT IN (SELECT name FROM people AS p WHERE name IS NOT NULL AND b.ts BETWEEN p.ts AND p.ts + INTERVAL '2' SECOND);

--- NOT IN of streams: combined with BETWEEN of equal bounds
SELECT ms, bidder FROM bids AS b WHERE bidder IS NOT NULL
AND bidder NOT IN (SELECT name FROM people AS p WHERE name IS NOT NULL AND b.ts - INTERVAL '0.5' SECOND BETWEEN p.ts AND p.ts);

--- NOT IN of streams: both may be NULL, in a view
CREATE VIEW perhaps AS SELECT NULLIF(name, 'bob') AS name FROM people WHERE name IS NOT NULL;
SELECT ms FROM bids WHERE bidder IS NOT NULL AND bidder NOT IN (SELECT name FROM perhaps);
