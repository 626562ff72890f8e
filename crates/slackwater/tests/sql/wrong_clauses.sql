-- Clauses that other databases have, and that would do nothing here.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE copies (bidder STRING, price DOUBLE) WITH ('connector' = 'file', 'path' = 'out/copies.csv');

--- a sample
SELECT COUNT(*) FROM bids TABLESAMPLE (10 PERCENT);

--- a partition of a table
SELECT bidder FROM bids PARTITION (p0);

--- numbers of rows
SELECT * FROM bids WITH ORDINALITY;

--- hints of another database
SELECT bidder FROM bids WITH (NOLOCK);

--- a partition to write to
INSERT INTO copies PARTITION (bidder = 'x') SELECT bidder, price FROM bids;

--- what to do about keys
INSERT INTO copies SELECT bidder, price FROM bids ON CONFLICT DO NOTHING;

--- rows back
INSERT INTO copies SELECT bidder, price FROM bids RETURNING bidder;

--- another way to insert
INSERT OVERWRITE copies SELECT bidder, price FROM bids;

--- OVER at a function of one row
SELECT UPPER(bidder) OVER (ORDER BY ts) FROM bids;

--- OVER after an unknown function
SELECT ROWNUMBER() OVER (ORDER BY ts) FROM bids;

--- IGNORE NULLS at a function of one row
SELECT UPPER(bidder) IGNORE NULLS FROM bids;

--- an order at a function of one row
SELECT UPPER(bidder ORDER BY ts) FROM bids;

--- a window function in a clause that is evaluated before it
SELECT bidder FROM bids WHERE ROW_NUMBER() OVER (PARTITION BY bidder ORDER BY ts) = 1;

--- the same after GROUP BY
SELECT bidder, COUNT(*) FROM bids GROUP BY bidder HAVING RANK() OVER (ORDER BY bidder) = 1;

--- a condition around it
SELECT bidder, n FROM (SELECT bidder, ROW_NUMBER() OVER (PARTITION BY bidder ORDER BY ts) AS n FROM bids) WHERE n = 1;
