-- Wrong tables: names, types, WATERMARK, computed columns, options.

--- two tables of one name
CREATE TABLE t (a INT) WITH ('connector' = 'blackhole');
CREATE TABLE t (b INT) WITH ('connector' = 'blackhole');

--- two columns of one name
CREATE TABLE t (a INT, b INT, a STRING) WITH ('connector' = 'blackhole');

--- an unknown type
CREATE TABLE t (a INT, b STRNG) WITH ('connector' = 'blackhole');

--- a type that is nothing like the others
CREATE TABLE t (a GEOMETRY) WITH ('connector' = 'blackhole');

--- no type
CREATE TABLE t (a, b INT) WITH ('connector' = 'blackhole');

--- a DECIMAL of too many digits
CREATE TABLE t (a DECIMAL(50, 2)) WITH ('connector' = 'blackhole');

--- a DECIMAL with more decimals than digits
CREATE TABLE t (a DECIMAL(5, 6)) WITH ('connector' = 'blackhole');

--- a TIMESTAMP of too many decimals
CREATE TABLE t (a TIMESTAMP(10)) WITH ('connector' = 'blackhole');

--- a ROW without fields
CREATE TABLE t (a ROW) WITH ('connector' = 'blackhole');

--- a ROW that is not closed
CREATE TABLE t (a ROW<x INT, b INT) WITH ('connector' = 'blackhole');

--- an unknown type inside a ROW
CREATE TABLE t (a ROW<x INT, y ROW<z INTT>>) WITH ('connector' = 'blackhole');

--- no columns
CREATE TABLE t () WITH ('connector' = 'blackhole');

--- no list of columns
CREATE TABLE t WITH ('connector' = 'blackhole');

--- a column list that is not closed
CREATE TABLE t (a INT, b INT WITH ('connector' = 'blackhole');

--- a comma too many
CREATE TABLE t (a INT, b INT,) WITH ('connector' = 'blackhole');

--- NOT without NULL
CREATE TABLE t (a INT NOT) WITH ('connector' = 'blackhole');

--- DEFAULT
CREATE TABLE t (a INT DEFAULT 1) WITH ('connector' = 'blackhole');

--- METADATA columns
CREATE TABLE t (a INT METADATA FROM 'offset') WITH ('connector' = 'stdin'); SELECT a FROM t;

--- PARTITIONED BY
CREATE TABLE t (a INT) PARTITIONED BY (a) WITH ('connector' = 'blackhole');

--- CREATE TABLE AS SELECT
CREATE TABLE t AS SELECT 1;

--- a table without options
CREATE TABLE t (a INT);

--- a table without a connector
CREATE TABLE t (a INT) WITH ('path' = 'x.csv');

--- an unknown connector
CREATE TABLE t (a INT) WITH ('connector' = 'kafak');
SELECT a FROM t;

--- a misspelt option
CREATE TABLE t (a INT) WITH ('connector' = 'file', 'pth' = 'data/bids.csv');
SELECT a FROM t;

--- an option of another format
CREATE TABLE t (a INT) WITH ('connector' = 'file', 'path' = 'data/bids.csv', 'format' = 'json', 'csv.header' = 'true');
SELECT a FROM t;

--- a setting as an option
CREATE TABLE t (a INT) WITH ('connector' = 'file', 'path' = 'data/bids.csv', 'parallelism' = '2');

--- an option twice
CREATE TABLE t (a INT) WITH ('connector' = 'file', 'path' = 'a.csv', 'path' = 'b.csv');

--- an option without a value
CREATE TABLE t (a INT) WITH ('connector');

--- an option with a wrong value
CREATE TABLE t (a INT) WITH ('connector' = 'file', 'path' = 'data/bids.csv', 'csv.header' = 'perhaps');
SELECT a FROM t;

--- options without commas
CREATE TABLE t (a INT) WITH ('connector' = 'file' 'path' = 'a.csv');

--- a file that does not exist
CREATE TABLE t (a INT) WITH ('connector' = 'file', 'path' = 'data/nothing.csv');
SELECT a FROM t;

--- an output that exists
CREATE TABLE t (a INT) WITH ('connector' = 'file', 'path' = 'data/bids.csv');
CREATE TABLE copy (a INT) WITH ('connector' = 'file', 'path' = 'data/bids.csv');
INSERT INTO copy SELECT a FROM t;

--- reading what can only be written
CREATE TABLE t (a INT) WITH ('connector' = 'blackhole');
SELECT a FROM t;

--- WATERMARK for a column that does not exist
CREATE TABLE t (ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR tz AS tz) WITH ('connector' = 'blackhole');

--- WATERMARK for a number
CREATE TABLE t (ms BIGINT, WATERMARK FOR ms AS ms - INTERVAL '5' SECOND) WITH ('connector' = 'blackhole');

--- WATERMARK of another column
CREATE TABLE t (a TIMESTAMP(3), b TIMESTAMP(3), WATERMARK FOR a AS b) WITH ('connector' = 'blackhole');

--- WATERMARK plus an interval
CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR a AS a + INTERVAL '5' SECOND) WITH ('connector' = 'blackhole');

--- WATERMARK minus a number
CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR a AS a - 5) WITH ('connector' = 'blackhole');

--- WATERMARK minus a month
CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR a AS a - INTERVAL '1' MONTH) WITH ('connector' = 'blackhole');

--- WATERMARK minus a negative interval
CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR a AS a - INTERVAL '-5' SECOND) WITH ('connector' = 'blackhole');

--- WATERMARK without AS
CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR a) WITH ('connector' = 'blackhole');

--- two WATERMARKs
CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR a AS a, WATERMARK FOR a AS a - INTERVAL '1' SECOND) WITH ('connector' = 'blackhole');

--- a computed column of a column that does not exist
CREATE TABLE t (ms BIGINT, ts AS TO_TIMESTAMP_LTZ(mz, 3)) WITH ('connector' = 'blackhole');

--- a computed column of itself
CREATE TABLE t (a INT, b AS b + 1) WITH ('connector' = 'blackhole');

--- a computed column that uses a later one
CREATE TABLE t (a INT, b AS c + 1, c AS a + 1) WITH ('connector' = 'blackhole');

--- a computed column with an aggregate
CREATE TABLE t (a INT, b AS COUNT(*)) WITH ('connector' = 'blackhole');

--- a computed column with a subquery
CREATE TABLE t (a INT, b AS (SELECT 1)) WITH ('connector' = 'blackhole');

--- a computed column of wrong types
CREATE TABLE t (a INT, b STRING, c AS a * b) WITH ('connector' = 'blackhole');

--- a computed column without an expression
CREATE TABLE t (a INT, b AS) WITH ('connector' = 'blackhole');

--- a type that the format can't hold
CREATE TABLE t (a ROW<x INT>) WITH ('connector' = 'file', 'path' = 'data/bids.csv');
SELECT a FROM t;

--- TIME is held by no format
CREATE TABLE t (a TIME) WITH ('connector' = 'file', 'path' = 'data/bids.csv');
SELECT a FROM t;

--- a table of a schema
CREATE TABLE s.t (a INT) WITH ('connector' = 'blackhole');

--- a misspelt TABLE
CREATE TABEL t (a INT) WITH ('connector' = 'blackhole');

--- CREATE OR REPLACE
CREATE OR REPLACE TABLE t (a INT) WITH ('connector' = 'blackhole');

--- a sink in a format that is only read
CREATE TABLE t (line STRING) WITH ('connector' = 'file', 'path' = 'out/t.txt', 'format' = 'raw');
CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING) WITH ('connector' = 'file', 'path' = 'data/bids.csv');
INSERT INTO t SELECT bidder FROM bids;

--- BYTES in a format
CREATE TABLE t (a VARBINARY(3)) WITH ('connector' = 'file', 'path' = 'data/bids.csv');
SELECT a FROM t;

--- a path with a scheme
CREATE TABLE t (a INT) WITH ('connector' = 'file', 'path' = 'file:///data/bids.csv');
SELECT a FROM t;
