-- Names and forms of Flink that are accepted.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

--- settings by the names of Flink
SET 'table.exec.state.ttl' = '1 d';
SET 'execution.checkpointing.interval' = '10 min';
SET 'parallelism.default' = '2';
SET 'execution.runtime-mode' = 'streaming';
SET 'table.local-time-zone' = 'UTC';
SET 'sql-client.execution.result-mode' = 'tableau';
SET pipeline.max-parallelism = 128;
SET table.exec.mini-batch.enabled = true;
SELECT bidder, price FROM bids WHERE price > 20;

--- RESET undoes SET
SET 'allowed_lateness' = '1 h';
SET 'table.exec.state.ttl' = '1 d';
RESET 'allowed_lateness';
RESET 'table.exec.state.ttl';
RESET;
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start;

--- EXECUTE STATEMENT SET
CREATE TABLE high (bidder STRING, price DOUBLE) WITH ('connector' = 'filesystem', 'path' = 'out/high.csv', 'format' = 'csv');
CREATE TABLE low (bidder STRING, price DOUBLE) WITH ('connector' = 'file', 'path' = 'out/low.csv', 'csv.field-delimiter' = ';');
EXECUTE STATEMENT SET
BEGIN
INSERT INTO high SELECT bidder, price FROM bids WHERE price > 20;
INSERT INTO low SELECT bidder, price FROM bids WHERE price < 6;
END;

--- BEGIN STATEMENT SET
CREATE TABLE high (bidder STRING) WITH ('connector' = 'file', 'path' = 'out/high.csv');
BEGIN STATEMENT SET;
INSERT INTO high SELECT bidder FROM bids WHERE price > 20;
END;

--- EXECUTE INSERT, and DROP of what isn't there
DROP TABLE IF EXISTS high;
CREATE TABLE high (bidder STRING) WITH ('connector' = 'file', 'path' = 'out/high.csv');
EXECUTE INSERT INTO high SELECT bidder FROM bids WHERE price > 20;

--- EXPLAIN with the options of other systems
-- explain
EXPLAIN PLAN FOR SELECT bidder FROM bids;
EXPLAIN ESTIMATED_COST, CHANGELOG_MODE SELECT bidder FROM bids;

--- NOT NULL of a column that is read rejects the record
CREATE TABLE readings (id INT NOT NULL, n INT NOT NULL COMMENT 'how many', at TIMESTAMP(3), twice AS n * 2 COMMENT 'n, twice')
COMMENT 'some are broken' WITH ('connector' = 'file', 'path' = 'data/broken.csv');
SELECT id, twice FROM readings;

--- NOT NULL of a column that is not read is not checked
CREATE TABLE readings (id INT, n INT NOT NULL, at TIMESTAMP(3)) WITH ('connector' = 'file', 'path' = 'data/broken.csv');
SELECT id FROM readings;

--- NOT NULL of a column that is written rejects the row
CREATE TABLE result (bidder STRING NOT NULL, price DOUBLE) WITH ('connector' = 'file', 'path' = 'out/result.csv');
INSERT INTO result SELECT NULLIF(bidder, 'bob'), price FROM bids;

--- NOT NULL of the result of an aggregate
CREATE TABLE result (window_start TIMESTAMP(3), least STRING NOT NULL) WITH ('connector' = 'file', 'path' = 'out/result.csv');
INSERT INTO result SELECT window_start, NULLIF(MIN(bidder), 'alice') FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start;

--- NOT NULL of a key
CREATE TABLE result (bidder STRING NOT NULL, n BIGINT NOT NULL, CONSTRAINT pk PRIMARY KEY (bidder) NOT ENFORCED) WITH ('connector' = 'blackhole');
INSERT INTO result SELECT bidder, COUNT(*) FROM bids GROUP BY bidder;

--- CREATE TABLE … AS SELECT
CREATE TABLE high WITH ('connector' = 'file', 'path' = 'out/high.csv', 'csv.header' = 'true')
AS SELECT bidder, price * 2 AS twice, ts, auction >> 1 AS half FROM bids WHERE price > 10;

--- CREATE TABLE … AS SELECT of a window, read by nothing else
CREATE TABLE counts WITH ('connector' = 'file', 'path' = 'out/counts.csv', 'csv.header' = 'true')
AS SELECT window_start, COUNT(*) AS n, APPROX_DISTINCT(bidder) AS bidders FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- CREATE TABLE … AS SELECT of what there is already
CREATE TABLE IF NOT EXISTS bids WITH ('connector' = 'blackhole') AS SELECT 1 AS x FROM bids;
SELECT bidder FROM bids WHERE price > 20;

--- CREATE TABLE … LIKE copies columns, event time and options
CREATE TABLE more (twice AS price * 2, half AS auction >> 1) LIKE bids;
SELECT window_start, SUM(twice) AS total, SUM(half) AS halves FROM TUMBLE(TABLE more, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start;

--- CREATE TABLE … LIKE without some parts
CREATE TABLE result (at TIMESTAMP(3)) WITH ('connector' = 'file', 'path' = 'out/result.csv')
LIKE bids (EXCLUDING ALL INCLUDING CONSTRAINTS);
INSERT INTO result SELECT ms, auction, bidder, price, ts FROM bids WHERE price > 20;

--- CREATE TABLE … LIKE with other options and another watermark
CREATE TABLE later (WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE) WITH ('idle_timeout' = '5 s')
LIKE bids (OVERWRITING WATERMARKS OVERWRITING OPTIONS);
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE later, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start;

--- CREATE TEMPORARY VIEW IF NOT EXISTS
CREATE TEMPORARY VIEW IF NOT EXISTS high AS SELECT bidder, price FROM bids WHERE price > 20;
CREATE VIEW IF NOT EXISTS high COMMENT 'the same' AS SELECT bidder, price FROM bids;
SELECT * FROM high;

--- filesystem, and errors that are ignored
CREATE TABLE result (bidder STRING) WITH ('connector' = 'filesystem', 'path' = 'out/result.csv', 'format' = 'csv');
CREATE TABLE readings (id INT, n INT) WITH ('connector' = 'filesystem', 'path' = 'data/short.csv', 'format' = 'csv', 'csv.ignore-parse-errors' = 'true');
INSERT INTO result SELECT CAST(COUNT(*) AS STRING) FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start;
SELECT id FROM readings WHERE n > 100;
