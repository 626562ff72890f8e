-- CREATE MATERIALIZED VIEW with errors.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'tcp', 'address' = '127.0.0.1:9991');

--- ORDER BY without an end
CREATE MATERIALIZED VIEW v AS SELECT bidder, price FROM bids ORDER BY price;

--- LIMIT without an end
CREATE MATERIALIZED VIEW v AS SELECT bidder, price FROM bids LIMIT 10;

--- a retention without a time
CREATE MATERIALIZED VIEW v WITH ('retention' = '1 d') AS SELECT bidder, price FROM bids;

--- a retention whose column must be named
CREATE MATERIALIZED VIEW v WITH ('retention' = '1 d') AS SELECT bidder, MAX(ts) AS latest FROM bids GROUP BY bidder;

--- a retention by a number
CREATE MATERIALIZED VIEW v WITH ('retention' = '1 d', 'retention_column' = 'price') AS SELECT bidder, price FROM bids;

--- a retention by a column that is not there
CREATE MATERIALIZED VIEW v WITH ('retention' = '1 d', 'retention_column' = 'pric') AS SELECT bidder, price FROM bids;

--- a retention that is no time
CREATE MATERIALIZED VIEW v WITH ('retention' = 'long') AS SELECT ts, price FROM bids;

--- a column for a retention, and none
CREATE MATERIALIZED VIEW v WITH ('retention_column' = 'ts') AS SELECT ts, price FROM bids;

--- an unknown option
CREATE MATERIALIZED VIEW v WITH ('retenton' = '1 d') AS SELECT ts, price FROM bids;

--- a connector
CREATE MATERIALIZED VIEW v WITH ('connector' = 'file') AS SELECT ts, price FROM bids;

--- an option twice
CREATE MATERIALIZED VIEW v WITH ('retention' = '1 d', 'retention' = '2 d') AS SELECT ts, price FROM bids;

--- a PRIMARY KEY of a column that is not there
CREATE MATERIALIZED VIEW v (a, b, PRIMARY KEY (c) NOT ENFORCED) AS SELECT bidder, price FROM bids;

--- a PRIMARY KEY that names a column twice
CREATE MATERIALIZED VIEW v (a, b, PRIMARY KEY (a, a) NOT ENFORCED) AS SELECT bidder, price FROM bids;

--- two PRIMARY KEYs
CREATE MATERIALIZED VIEW v (a, PRIMARY KEY (a) NOT ENFORCED, PRIMARY KEY (a) NOT ENFORCED) AS SELECT bidder FROM bids;

--- a PRIMARY KEY that would be checked
CREATE MATERIALIZED VIEW v (a, b, PRIMARY KEY (a)) AS SELECT bidder, price FROM bids;

--- types of columns
CREATE MATERIALIZED VIEW v (a STRING, b DOUBLE) AS SELECT bidder, price FROM bids;

--- too few names
CREATE MATERIALIZED VIEW v (a) AS SELECT bidder, price FROM bids;

--- a list that is not closed
CREATE MATERIALIZED VIEW v (a, b

--- no query
CREATE MATERIALIZED VIEW v;

--- a name that is taken
CREATE MATERIALIZED VIEW bids AS SELECT 1 AS one FROM bids;

--- a wrong query
CREATE MATERIALIZED VIEW v AS SELECT pric FROM bids;

--- a materialized table
CREATE MATERIALIZED TABLE t AS SELECT price FROM bids;

--- OR REPLACE
CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT price FROM bids;

--- DROP
CREATE MATERIALIZED VIEW v AS SELECT price FROM bids;
DROP MATERIALIZED VIEW v;

--- DROP of nothing
DROP MATERIALIZED VIEW v;
