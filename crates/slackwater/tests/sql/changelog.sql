-- Changelogs: aggregates and conditions over rows that are updated or retracted, and what sinks do with them.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

CREATE VIEW per_bidder AS SELECT bidder, COUNT(*) AS n, SUM(price) AS total, MAX(price) AS highest
FROM bids GROUP BY bidder;

--- how many bidders have so many bids
-- last per 1
SELECT n, COUNT(*) AS bidders FROM per_bidder GROUP BY n;

--- every function over rows that change
-- last per 0
SELECT COUNT(*) AS c, COUNT(total) AS t, SUM(n) AS s, AVG(n) AS a, MIN(highest) AS lo, MAX(highest) AS hi,
  COUNT(DISTINCT n) AS d, SUM(DISTINCT n) AS sd, MAX(DISTINCT n) AS md, MIN(bidder) AS first_name,
  SUM(n) FILTER (WHERE bidder <> 'bob') AS without_bob, median(n) AS middle, stddev_pop(n) AS spread, bool_and(n > 1) AS b
FROM per_bidder;

--- an aggregate over all with nothing in it
-- last per 0
SELECT COUNT(*) AS c, SUM(n) AS s FROM per_bidder WHERE n > 100;

--- three aggregates, one upon the other
-- last per 1
SELECT bidders, COUNT(*) AS times FROM (SELECT n, COUNT(*) AS bidders FROM per_bidder GROUP BY n) GROUP BY bidders;

--- HAVING
-- table
SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder HAVING COUNT(*) > 1;

--- a condition that rows cease to meet
-- table
SELECT bidder, n FROM per_bidder WHERE n < 3;

--- a condition on the key
-- last per 1
SELECT bidder, n FROM per_bidder WHERE bidder <> 'bob';

--- DISTINCT over rows that change
-- table
SELECT DISTINCT n FROM per_bidder;

--- UNION of what changes with what stays
-- table
SELECT bidder, n FROM per_bidder UNION ALL SELECT name, 0 FROM people;

--- UNION that leaves doubles out
-- table
SELECT n FROM per_bidder UNION SELECT 2 FROM people;

--- a projection without the key shows deleted rows
-- table
SELECT n, total FROM per_bidder;

--- one update for each row, with what was before
SET 'emit' = 'every_row';
SELECT n FROM (SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder);

--- windows over windows that are kept stay windows
SELECT window_start, COUNT(*) AS bidders FROM (SELECT window_start, window_end, bidder, COUNT(*) AS n
  FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, bidder)
GROUP BY window_start;

--- what each row does as a column of a file
CREATE TABLE changes (n BIGINT, bidders BIGINT)
WITH ('connector' = 'file', 'path' = 'out/changes.csv', 'changelog' = 'op', 'csv.header' = 'true');
SET 'emit' = 'every_row';
INSERT INTO changes SELECT n, COUNT(*) FROM (SELECT auction, COUNT(*) AS n FROM bids WHERE auction = 2 GROUP BY auction) GROUP BY n;

--- rows that are only added are +I
CREATE TABLE changes (bidder STRING) WITH ('connector' = 'file', 'path' = 'out/changes.json', 'format' = 'json', 'changelog' = 'kind');
INSERT INTO changes SELECT bidder FROM bids WHERE price > 10;

--- a table that ends joined with rows that change
-- table
CREATE TABLE towns (town STRING, country STRING, people BIGINT) WITH ('connector' = 'file', 'path' = 'data/cities.csv');
SELECT c.city, c.n, t.country FROM (SELECT city, COUNT(*) AS n FROM people GROUP BY city) AS c LEFT JOIN towns AS t ON c.city = t.town;

--- a table that ends, aggregated
-- last per 1
CREATE TABLE towns (town STRING, country STRING, people BIGINT) WITH ('connector' = 'file', 'path' = 'data/cities.csv');
SELECT most, COUNT(*) AS countries FROM (SELECT country, MAX(people) AS most FROM towns GROUP BY country) GROUP BY most;

--- EXPLAIN shows what travels
-- explain
EXPLAIN SELECT n, COUNT(*) AS bidders FROM per_bidder WHERE n > 1 GROUP BY n;

--- EXPLAIN: by key where that is enough
-- explain
EXPLAIN SELECT bidder, n FROM per_bidder;

--- EXPLAIN of a PRIMARY KEY that is the query's
-- explain
CREATE TABLE out_table (bidder STRING, n BIGINT, PRIMARY KEY (bidder) NOT ENFORCED) WITH ('connector' = 'blackhole');
EXPLAIN INSERT INTO out_table SELECT bidder, n FROM per_bidder;

--- EXPLAIN of a PRIMARY KEY that is not the query's
-- explain
CREATE TABLE out_table (bidder STRING, n BIGINT, PRIMARY KEY (n) NOT ENFORCED) WITH ('connector' = 'blackhole');
EXPLAIN INSERT INTO out_table SELECT bidder, n FROM per_bidder;

--- EXPLAIN of a PRIMARY KEY of rows without a key, over a stream that does not end
-- explain
CREATE TABLE endless (k STRING, v INT) WITH ('connector' = 'stdin', 'format' = 'csv');
CREATE TABLE out_table (n BIGINT PRIMARY KEY NOT ENFORCED) WITH ('connector' = 'blackhole');
EXPLAIN INSERT INTO out_table SELECT n FROM (SELECT k, COUNT(*) AS n FROM endless GROUP BY k);

--- EXPLAIN of a join whose rows go from one instance to another
-- explain
CREATE TABLE out_table (bidder STRING, n BIGINT, bidders BIGINT, PRIMARY KEY (bidder) NOT ENFORCED) WITH ('connector' = 'blackhole');
EXPLAIN INSERT INTO out_table SELECT a.bidder, a.n, b.bidders FROM per_bidder AS a
JOIN (SELECT n, COUNT(*) AS bidders FROM per_bidder GROUP BY n) AS b ON a.n = b.n;

--- a plain file next to a reader that needs previous rows
CREATE TABLE names (bidder STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'out/names.csv');
CREATE TABLE numbers (n BIGINT, c BIGINT) WITH ('connector' = 'blackhole');
SET 'emit' = 'every_row';
INSERT INTO names SELECT bidder, n FROM per_bidder;
INSERT INTO numbers SELECT n, COUNT(*) FROM per_bidder GROUP BY n;

--- the terminal next to such a reader
CREATE TABLE numbers (n BIGINT, c BIGINT) WITH ('connector' = 'blackhole');
SET 'emit' = 'every_row';
SELECT bidder, n FROM per_bidder;
INSERT INTO numbers SELECT n, COUNT(*) FROM per_bidder GROUP BY n;

--- a total over groups that are all deleted
-- last per 0
SELECT COUNT(*) AS n, SUM(n) AS s, MAX(bidder) AS b FROM (SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder HAVING COUNT(*) < 1);

--- groups that are added and deleted, in a total
-- last per 0
SELECT COUNT(*) AS n, SUM(n) AS s FROM (SELECT auction % 1 AS k, COUNT(*) AS n FROM bids GROUP BY auction % 1 HAVING COUNT(*) < 2);

--- a total over rows that are all deleted, in a file of changes
CREATE TABLE totals (n BIGINT) WITH ('connector' = 'file', 'path' = 'out/totals.csv', 'changelog' = 'op');
INSERT INTO totals SELECT COUNT(*) FROM (SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder HAVING COUNT(*) < 1);

--- a total over groups without a value
-- table
SELECT k, COUNT(*) AS n FROM (SELECT auction % 1 AS k, bidder, COUNT(*) AS n FROM bids GROUP BY auction % 1, bidder HAVING COUNT(*) < 1) GROUP BY k;
