-- What can't be done with rows that change, and how it is said.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE endless (event_type INT) WITH ('connector' = 'datagen', 'generator' = 'nexmark');

CREATE VIEW per_type AS SELECT event_type, COUNT(*) AS n FROM endless GROUP BY event_type;
CREATE VIEW per_bidder AS SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder;

--- a file that can't retract rows
CREATE TABLE out_file (n BIGINT, bidders BIGINT) WITH ('connector' = 'file', 'path' = 'out/a.csv');
INSERT INTO out_file SELECT n, COUNT(*) FROM per_type GROUP BY n;

--- a file with rows whose key is not selected
CREATE TABLE out_file (n BIGINT) WITH ('connector' = 'file', 'path' = 'out/a.csv');
INSERT INTO out_file SELECT n FROM per_type;

--- a PRIMARY KEY of a file
CREATE TABLE out_file (bidder STRING, n BIGINT, PRIMARY KEY (bidder) NOT ENFORCED) WITH ('connector' = 'file', 'path' = 'out/a.csv');
INSERT INTO out_file SELECT bidder, n FROM per_bidder;

--- changelog without a name
CREATE TABLE out_file (bidder STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'out/a.csv', 'changelog' = '');
INSERT INTO out_file SELECT bidder, n FROM per_bidder;

--- changelog with the name of a column
CREATE TABLE out_file (bidder STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'out/a.csv', 'changelog' = 'n');
INSERT INTO out_file SELECT bidder, n FROM per_bidder;

--- changelog of a table that is read
CREATE TABLE in_file (bidder STRING) WITH ('connector' = 'file', 'path' = 'data/bids.csv', 'changelog' = 'op');
SELECT * FROM in_file;

--- windows over rows that change
SELECT window_start, COUNT(*) FROM TUMBLE((SELECT bidder, MAX(ts) AS ts FROM bids GROUP BY bidder), DESCRIPTOR(ts), INTERVAL '1' SECOND)
GROUP BY window_start;

--- FIRST_VALUE over rows that change
SELECT FIRST_VALUE(bidder) AS f FROM per_bidder GROUP BY n;

--- RANK
SELECT bidder FROM (SELECT *, RANK() OVER (PARTITION BY auction ORDER BY price) AS r FROM bids) WHERE r <= 2;

--- ROW_NUMBER without an order
SELECT bidder FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction) AS r FROM bids) WHERE r <= 2;

--- the first zero rows
SELECT bidder FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price) AS r FROM bids) WHERE r < 1;

--- too many first
SELECT bidder FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price) AS r FROM bids) WHERE r <= 10000000;

--- state_ttl without a unit
SET 'state_ttl' = '10';
SELECT * FROM per_bidder;

--- state_ttl that is too short
SET 'state_ttl' = '10 us';
SELECT * FROM per_bidder;

--- a PRIMARY KEY of an unknown column
CREATE TABLE t (id BIGINT, PRIMARY KEY (idd) NOT ENFORCED) WITH ('connector' = 'blackhole');

--- a PRIMARY KEY of a computed column
CREATE TABLE t (id BIGINT, twice AS id * 2, PRIMARY KEY (twice) NOT ENFORCED) WITH ('connector' = 'blackhole');

--- a PRIMARY KEY that names a column twice
CREATE TABLE t (id BIGINT, PRIMARY KEY (id, id) NOT ENFORCED) WITH ('connector' = 'blackhole');

--- two PRIMARY KEYs
CREATE TABLE t (id BIGINT PRIMARY KEY NOT ENFORCED, n INT, PRIMARY KEY (n) NOT ENFORCED) WITH ('connector' = 'blackhole');

--- a PRIMARY KEY that would be enforced
CREATE TABLE t (id BIGINT PRIMARY KEY) WITH ('connector' = 'blackhole');

--- PRIMARY without KEY
CREATE TABLE t (id BIGINT, PRIMARY (id)) WITH ('connector' = 'blackhole');
