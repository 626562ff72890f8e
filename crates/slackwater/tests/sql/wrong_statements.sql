-- Wrong statements: spelling, punctuation, INSERT, CREATE VIEW, SET, EXPLAIN.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

CREATE TABLE result (name STRING, total DOUBLE) WITH ('connector' = 'blackhole');

--- a misspelt keyword at the beginning
SELCT price FROM bids;

--- a statement that is not known
DELETE FROM bids WHERE price > 1;

--- a misspelt FROM
SELECT price FORM bids;

--- a misspelt WHERE
SELECT price FROM bids WERE price > 1;

--- a misspelt GROUP BY
SELECT auction, COUNT(*) FROM bids GRUOP BY auction;

--- SELECT without columns
SELECT FROM bids;

--- no FROM
SELECT price WHERE price > 1;

--- a string that is not closed
SELECT price FROM bids WHERE bidder = 'alice;

--- an unclosed name
SELECT "price FROM bids;

--- an unclosed comment
SELECT price /* the price FROM bids;

--- an unclosed parenthesis
SELECT (price + 1 FROM bids;

--- a parenthesis too many
SELECT price + 1) FROM bids;

--- an unclosed function
SELECT COUNT(* FROM bids;

--- a missing semicolon
SELECT price FROM bids
SELECT auction FROM bids;

--- a character that does not belong here
SELECT price FROM bids WHERE price > 1 ¬ 2;

--- WHERE without a condition
SELECT price FROM bids WHERE;

--- GROUP BY without a key
SELECT COUNT(*) FROM bids GROUP BY;

--- JOIN without ON
SELECT bids.price FROM bids JOIN people;

--- ON without a condition
SELECT bids.price FROM bids JOIN people ON;

--- a subquery that is not closed
SELECT price FROM (SELECT price FROM bids;

--- INSERT INTO a table that does not exist
INSERT INTO resutl SELECT bidder, price FROM bids;

--- INSERT INTO a view
CREATE VIEW v AS SELECT bidder, price FROM bids;
INSERT INTO v SELECT bidder, price FROM bids;

--- INSERT with too few columns
INSERT INTO result SELECT bidder FROM bids;

--- INSERT with too many columns
INSERT INTO result SELECT bidder, price, auction FROM bids;

--- INSERT with a column list of another length
INSERT INTO result (name) SELECT bidder, price FROM bids;

--- INSERT with an unknown column
INSERT INTO result (nmae, total) SELECT bidder, price FROM bids;

--- INSERT with a column twice
INSERT INTO result (name, name) SELECT bidder, bidder FROM bids;

--- INSERT of a type that does not fit
CREATE TABLE times (at TIMESTAMP(3)) WITH ('connector' = 'blackhole');
INSERT INTO times SELECT price > 1 FROM bids;

--- INSERT of a ROW into a number
CREATE TABLE orders (customer ROW<name STRING>) WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');
INSERT INTO result SELECT 'x', customer FROM orders;

--- INSERT with VALUES
INSERT INTO result VALUES ('a', 1);

--- INSERT without a query
INSERT INTO result;

--- INSERT without INTO and without a table
INSERT SELECT bidder, price FROM bids;

--- INSERT into a table of a schema
INSERT INTO public.result SELECT bidder, price FROM bids;

--- CREATE VIEW without AS
CREATE VIEW v SELECT price FROM bids;

--- CREATE VIEW with a name that is taken
CREATE VIEW bids AS SELECT name FROM people;

--- CREATE VIEW with too few names
CREATE VIEW v (a) AS SELECT bidder, price FROM bids;

--- CREATE VIEW of a wrong query
CREATE VIEW v AS SELECT bidder, pric FROM bids;

--- CREATE MATERIALIZED VIEW without a query
CREATE MATERIALIZED VIEW v;

--- CREATE FUNCTION
CREATE FUNCTION f() RETURNS INT AS 'x';

--- CREATE without what
CREATE;

--- a misspelt setting
SET 'latency_targt' = '20 ms';

--- a setting that is nothing like the others
SET 'colour' = 'blue';

--- an option of a table as a setting
SET 'on_error' = 'fail';

--- a value that is not valid for a setting
SET 'emit' = 'sometimes';

--- a number that is not valid for a setting
SET 'parallelism' = '0';

--- a duration without a unit
SET 'linger' = '10';

--- SET without a value
SET 'parallelism';

--- SET without a value after the sign
SET 'parallelism' = ;

--- round robin without giving up order
SET 'balancer' = 'round_robin';
SELECT price FROM bids;

--- EXPLAIN without a statement
EXPLAIN;

--- EXPLAIN of a wrong query
EXPLAIN SELECT pric FROM bids;

--- nothing to run

--- only a comment and settings
-- nothing but this
SET 'parallelism' = '2';

--- CREATE OR REPLACE VIEW
CREATE OR REPLACE VIEW v AS SELECT price FROM bids;

--- CREATE VIEW IF NOT EXISTS without a query
CREATE VIEW IF NOT EXISTS v;

--- DEFAULT after a column
CREATE TABLE t (a INT DEFAULT 3, b INT) WITH ('connector' = 'blackhole');

--- COMMENT of a number
CREATE TABLE t (a INT COMMENT 5) WITH ('connector' = 'blackhole');

--- COMMENT after the columns without a string
CREATE TABLE t (a INT) COMMENT WITH ('connector' = 'blackhole');

--- PARTITIONED BY
CREATE TABLE t (a INT) PARTITIONED BY (a) WITH ('connector' = 'blackhole');

--- CREATE TABLE … AS SELECT
CREATE TABLE t (a INT) WITH ('connector' = 'blackhole') AS SELECT auction FROM bids;

--- CREATE TABLE … LIKE nothing
CREATE TABLE t (a INT) WITH ('connector' = 'blackhole') LIKE;

--- a number with '_'
SELECT 1_000 FROM bids;

--- a number with letters
SELECT price * 2x FROM bids;

--- a ROW of other fields into a ROW
CREATE TABLE t (a ROW<x INT, y ROW<z STRING>>) WITH ('connector' = 'file', 'path' = 'out/t.json', 'format' = 'json');
INSERT INTO t SELECT ROW(auction, bidder) FROM bids;

--- a query that would write over its input
CREATE TABLE again (a INT, b STRING) WITH ('connector' = 'file', 'path' = 'data/../data/final.csv');
CREATE TABLE over_it (a INT, b STRING) WITH ('connector' = 'file', 'path' = 'data/final.csv', 'overwrite' = 'true');
INSERT INTO over_it SELECT a, b FROM again WHERE a = 1;

--- a watermark without a unit
CREATE TABLE vague (ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5') WITH ('connector' = 'file', 'path' = 'data/final.csv');
SELECT ts FROM vague;
