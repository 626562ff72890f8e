-- Names and forms of Flink that are answered with what to write here.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

--- batch mode
SET 'execution.runtime-mode' = 'both';

--- a time zone
SET 'table.local-time-zone' = 'Europe/Berlin';

--- a timeout of sources
SET 'table.exec.source.idle-timeout' = '10 s';

--- a duration that is not valid
SET 'table.exec.state.ttl' = 'soon';

--- a parallelism that is not valid
SET 'parallelism.default' = 'many';

--- where checkpoints are kept
SET 'state.checkpoints.dir' = 'file:///tmp/checkpoints';

--- RESET of an unknown setting
RESET 'colour';

--- a catalog
USE CATALOG hive;

--- a database
CREATE DATABASE db;

--- a JAR
ADD JAR '/opt/udf.jar';

--- SHOW outside of the shell
SHOW TABLES;

--- DESCRIBE outside of the shell
DESCRIBE bids;

--- ALTER
ALTER TABLE bids SET ('path' = 'x.csv');

--- DROP of what there is
DROP TABLE IF EXISTS bids;

--- DROP of what there is not
DROP TABLE nothing;

--- UPDATE
UPDATE bids SET price = 1;

--- a temporary function
CREATE TEMPORARY SYSTEM FUNCTION f AS 'com.example.F';

--- a materialized table
CREATE MATERIALIZED TABLE v AS SELECT price FROM bids;

--- a STATEMENT SET without END
EXECUTE STATEMENT SET BEGIN
INSERT INTO bids SELECT * FROM bids;

--- END without a STATEMENT SET
END;

--- a SELECT in a STATEMENT SET
BEGIN STATEMENT SET;
SELECT price FROM bids;
END;

--- a STATEMENT SET in another one
BEGIN STATEMENT SET;
EXECUTE STATEMENT SET BEGIN INSERT INTO bids SELECT * FROM bids; END;
END;

--- INSERT OVERWRITE
INSERT OVERWRITE bids SELECT * FROM bids;

--- CURRENT_WATERMARK
SELECT bidder FROM bids WHERE ts > CURRENT_WATERMARK(ts);

--- jdbc to postgres
CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://db:5432/shop', 'table-name' = 't');

--- jdbc to mysql
CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:mysql://db:3306/shop', 'table-name' = 't');

--- a connector that there isn't
CREATE TABLE t (a INT) WITH ('connector' = 'elasticsearch-7', 'hosts' = 'http://localhost:9200', 'index' = 't');

--- a topic of upserts that is read
CREATE TABLE t (a INT, PRIMARY KEY (a) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'localhost:9092', 'key.format' = 'json', 'value.format' = 'json');
SELECT a FROM t;

--- a topic of upserts without a key
CREATE TABLE t (a INT) WITH ('connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'localhost:9092', 'key.format' = 'json', 'value.format' = 'json');
INSERT INTO t SELECT auction FROM bids;

--- options of datagen in Flink
CREATE TABLE t (a INT) WITH ('connector' = 'datagen', 'rows-per-second' = '10', 'fields.a.kind' = 'sequence');

--- options of print in Flink
CREATE TABLE t (a INT) WITH ('connector' = 'print', 'print-identifier' = 'x');

--- a folder that is watched
CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'path' = 'data/parts/*.csv', 'format' = 'csv', 'source.monitor-interval' = '10 s');

--- an option under two names
CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'path' = 'data/bids.csv', 'csv.delimiter' = ',', 'csv.field-delimiter' = ',');

--- a field that must not be missing
CREATE TABLE t (a INT) WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json', 'json.fail-on-missing-field' = 'true');

--- NOT NULL of a computed column
CREATE TABLE t (a INT, b AS a + 1 NOT NULL) WITH ('connector' = 'blackhole');

--- NOT NULL of a field
CREATE TABLE t (a ROW<x INT NOT NULL>) WITH ('connector' = 'blackhole');

--- NOT NULL ends the query where bad rows do
CREATE TABLE readings (id INT, n INT NOT NULL) WITH ('connector' = 'file', 'path' = 'data/nulls.csv', 'on_error' = 'fail');
SELECT id, n FROM readings;

--- CREATE TABLE … AS with columns
CREATE TABLE t (a INT) WITH ('connector' = 'blackhole') AS SELECT auction FROM bids;

--- CREATE TABLE … AS without options
CREATE TABLE t AS SELECT auction FROM bids;

--- CREATE TABLE … AS of a column without a type
CREATE TABLE t WITH ('connector' = 'blackhole') AS SELECT NULL AS nothing FROM bids;

--- LIKE a table that there isn't
CREATE TABLE t LIKE bidz;

--- LIKE a view
CREATE VIEW v AS SELECT price FROM bids;
CREATE TABLE t LIKE v;

--- LIKE with a column twice
CREATE TABLE t (price DOUBLE) LIKE bids;

--- LIKE with two watermarks
CREATE TABLE t (WATERMARK FOR ts AS ts) LIKE bids;

--- LIKE with an option twice
CREATE TABLE t WITH ('path' = 'x.csv') LIKE bids (INCLUDING ALL);

--- LIKE with a part that is not known
CREATE TABLE t LIKE bids (INCLUDING COLORS);

--- COMMENT without a string
CREATE TABLE t (a INT COMMENT) WITH ('connector' = 'blackhole');

--- DISTRIBUTED
CREATE TABLE t (a INT) DISTRIBUTED BY (a) INTO 4 BUCKETS WITH ('connector' = 'blackhole');
