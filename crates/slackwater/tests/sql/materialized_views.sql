-- CREATE MATERIALIZED VIEW: by what rows are kept and for how long, and views that statements read.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE live_bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'tcp', 'address' = '127.0.0.1:9991');

--- the key of GROUP BY
-- explain
EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT bidder, COUNT(*) AS n, SUM(price) AS total FROM bids GROUP BY bidder;

--- the window and the key, with a retention
-- explain
EXPLAIN CREATE MATERIALIZED VIEW v WITH ('retention' = '1 d') AS
SELECT window_start, window_end, auction, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, auction;

--- cumulating windows share their starts
-- explain
EXPLAIN CREATE MATERIALIZED VIEW v AS
SELECT window_start, window_end, auction, COUNT(*) AS n
FROM CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '1' MINUTE)
GROUP BY window_start, window_end, auction;

--- the partition and rank of a top-N
-- explain
EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT bidder, price, rank_ FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder ORDER BY price DESC) AS rank_ FROM bids) AS b WHERE rank_ <= 3;

--- the key of a query is not among its columns
-- explain
EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT n FROM (SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder) AS b;

--- one row
-- explain
EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT COUNT(*) AS n FROM bids;

--- a PRIMARY KEY and names of columns
-- explain
EXPLAIN CREATE MATERIALIZED VIEW IF NOT EXISTS v (who, paid, PRIMARY KEY (who) NOT ENFORCED) AS
SELECT bidder, price FROM bids;

--- a PRIMARY KEY that is not the key of the query
-- explain
EXPLAIN CREATE MATERIALIZED VIEW v (bidder, n, PRIMARY KEY (n) NOT ENFORCED) AS
SELECT bidder, COUNT(*) FROM bids GROUP BY bidder;

--- a retention by another column
-- explain
EXPLAIN CREATE MATERIALIZED VIEW v WITH ('retention' = '2 h', 'retention_column' = 'latest') AS
SELECT bidder, MAX(ts) AS latest FROM bids GROUP BY bidder;

--- every row is kept forever
-- explain
EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT bidder, price FROM live_bids;

--- every row is kept, and could be discarded
-- explain
EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT ts, bidder, price FROM live_bids;

--- a view on a view, and a statement that reads it
CREATE MATERIALIZED VIEW v AS SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder;
CREATE MATERIALIZED VIEW w AS SELECT n, COUNT(*) AS bidders FROM v GROUP BY n;
CREATE TABLE out (bidder STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'out/n.csv');
SET 'emit' = 'final';
INSERT INTO out SELECT bidder, n FROM v WHERE n > 1;

--- only views
CREATE MATERIALIZED VIEW v WITH ('retention' = '10 s') AS SELECT ts, bidder, price FROM bids;

--- a latency target of a view
-- explain
SET 'latency_target.v' = '20 ms';
EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder;
