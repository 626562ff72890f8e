-- Wrong queries: names, types, and what needs retraction or the end of the stream.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

CREATE VIEW b AS SELECT * FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND);
CREATE VIEW p AS SELECT * FROM TUMBLE(TABLE people, DESCRIPTOR(ts), INTERVAL '10' SECOND);

--- a misspelt table
SELECT price FROM bidz;

--- a table that is nothing like the others
SELECT price
  FROM observations;

--- a misspelt column
SELECT bider, price FROM bids;

--- a column that is nothing like the others
SELECT zzz FROM people;

--- a misspelt column in WHERE
SELECT price
FROM bids
WHERE auktion = 3;

--- a misspelt column in GROUP BY
SELECT COUNT(*) FROM bids GROUP BY biddr;

--- a misspelt column in HAVING
SELECT window_start FROM b GROUP BY window_start HAVING MAX(pricee) > 1;

--- a misspelt column in ON
SELECT b.price FROM b JOIN p ON b.window_start = p.window_start AND b.bidder = p.nmae;

--- a misspelt column with its table
SELECT b.bider FROM bids AS b;

--- a column of a table that is not read
SELECT people.name FROM bids;

--- names are told apart by case
SELECT Price FROM bids;

--- a string in double quotes is a name
SELECT price FROM bids WHERE bidder = "alice";

--- a column that is in both tables
SELECT ms FROM b JOIN p ON b.window_start = p.window_start;

--- a column that is neither a key nor aggregated
SELECT auction, bidder, COUNT(*) FROM bids GROUP BY auction;

--- a column that is neither a key nor aggregated, without GROUP BY
SELECT bidder, COUNT(*) FROM bids;

--- an aggregate in WHERE
SELECT auction FROM bids WHERE COUNT(*) > 1 GROUP BY auction;

--- an aggregate in an aggregate
SELECT MAX(COUNT(*)) FROM bids GROUP BY auction;

--- an aggregate as a key
SELECT COUNT(*) FROM bids GROUP BY COUNT(*);

--- a key by a number that is too large
SELECT auction, COUNT(*) FROM bids GROUP BY 3;

--- OVER
SELECT price, SUM(price) OVER (PARTITION BY auction ORDER BY ms) FROM bids;

--- ROW_NUMBER
SELECT price, ROW_NUMBER() OVER (PARTITION BY auction) FROM bids;

--- EXCEPT
SELECT bidder FROM bids EXCEPT SELECT name FROM people;

--- INTERSECT
SELECT bidder FROM bids INTERSECT SELECT name FROM people;

--- sides of a UNION of different widths
SELECT bidder, price FROM bids UNION ALL SELECT name FROM people;

--- sides of a UNION of different types
SELECT ts FROM bids UNION ALL SELECT TRUE FROM people;

--- DISTINCT ON
SELECT DISTINCT ON (auction) auction, price FROM bids;

--- a query without a table
SELECT 1 + 1;

--- VALUES
VALUES (1, 'a'), (2, 'b');

--- a recursive query
WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r;

--- a lateral join
SELECT b.price, l.x FROM bids AS b, LATERAL (SELECT b.price + 1 AS x) AS l;

--- UNNEST
SELECT * FROM UNNEST([1, 2, 3]);

--- a condition that is not a BOOLEAN
SELECT price FROM bids WHERE price + 1;

--- aggregates that depend on the order of rows
SELECT auction, ARRAY_AGG(bidder) FROM bids GROUP BY auction;

--- ORDER BY in an aggregate
SELECT FIRST_VALUE(bidder ORDER BY price) FROM bids;

--- two columns of one name
SELECT price AS x, auction AS x FROM bids;

--- the same view twice in a name
SELECT price FROM bids AS x, people AS x;

--- a column that GROUP BY casts to two types
SELECT CAST(auction AS STRING) AS a, CAST(auction AS BIGINT) AS b, COUNT(*) AS n FROM bids GROUP BY CAST(auction AS STRING), CAST(auction AS BIGINT);
