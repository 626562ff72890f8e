-- Formats other than csv and json: regular expressions, columnar files, compressed files.

--- groups of a regular expression are columns
CREATE TABLE bids (who STRING, price DOUBLE, at TIMESTAMP(0))
WITH ('connector' = 'file', 'path' = 'data/bids.log', 'format' = 'regex',
      'regex.pattern' = '^(?<at>\S+ \S+) (?<who>\w+) bid (?:-|(?<price>\S+))$');
SELECT at, who, price FROM bids;

--- only what is read of a line has to be right
CREATE TABLE bids (who STRING, price DOUBLE, at TIMESTAMP(0))
WITH ('connector' = 'file', 'path' = 'data/bids.log', 'format' = 'regex',
      'regex.pattern' = '^(?<at>\S+ \S+) (?<who>\w+) bid (?:-|(?<price>\S+))$');
SELECT who FROM bids;

--- event time from a regular expression
CREATE TABLE bids (who STRING, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.log', 'format' = 'regex',
      'regex.pattern' = '(?<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?<who>\w+)');
SELECT window_start, COUNT(*) AS bids FROM TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND)
GROUP BY window_start, window_end;

--- an expression that is not valid
CREATE TABLE bids (who STRING)
WITH ('connector' = 'file', 'path' = 'data/bids.log', 'format' = 'regex', 'regex.pattern' = '(?<who>\w+) (bid');
SELECT who FROM bids;

--- an expression that looks ahead
CREATE TABLE bids (who STRING)
WITH ('connector' = 'file', 'path' = 'data/bids.log', 'format' = 'regex', 'regex.pattern' = '(?<who>\w+)(?= bid)');
SELECT who FROM bids;

--- a column without a group
CREATE TABLE bids (who STRING, prize DOUBLE)
WITH ('connector' = 'file', 'path' = 'data/bids.log', 'format' = 'regex', 'regex.pattern' = '(?<who>\w+) (?<price>\S+)');
SELECT who FROM bids;

--- no expression
CREATE TABLE bids (who STRING) WITH ('connector' = 'file', 'path' = 'data/bids.log', 'format' = 'regex');
SELECT who FROM bids;

--- nothing is written with a regular expression
CREATE TABLE bids (who STRING) WITH ('connector' = 'file', 'path' = 'data/cities.csv');
CREATE TABLE o (who STRING) WITH ('connector' = 'file', 'path' = 'out/o.log', 'format' = 'regex', 'regex.pattern' = '(?<who>\w+)');
INSERT INTO o SELECT who FROM bids;

--- a file of Arrow, as another program has written it
CREATE TABLE orders (id INT, at TIMESTAMP(3), customer ROW<name STRING, address ROW<city STRING>>, tags ARRAY<STRING>,
  color STRING, total DECIMAL(10, 3))
WITH ('connector' = 'file', 'path' = 'data/orders.arrow', 'format' = 'arrow');
SELECT id, at, customer.name AS name, customer.address.city AS city, tags, color, total FROM orders;

--- a stream of Arrow
CREATE TABLE orders (color STRING, id BIGINT)
WITH ('connector' = 'file', 'path' = 'data/orders.arrows', 'format' = 'arrow');
SELECT color, COUNT(*) AS n, SUM(id) AS ids FROM orders GROUP BY color;
-- last per 1

--- rows alone
CREATE TABLE orders (color STRING, id BIGINT)
WITH ('connector' = 'file', 'path' = 'data/orders.arrow', 'format' = 'arrow');
CREATE TABLE o (n BIGINT) WITH ('connector' = 'file', 'path' = 'out/o.csv');
INSERT INTO o SELECT 1 FROM orders;

--- a value that does not fit its column
CREATE TABLE orders (id TINYINT, color STRING)
WITH ('connector' = 'file', 'path' = 'data/orders.arrow', 'format' = 'arrow');
SELECT id, color FROM orders;

--- a column that is not in the file
CREATE TABLE orders (id BIGINT, colour STRING)
WITH ('connector' = 'file', 'path' = 'data/orders.arrow', 'format' = 'arrow');
SELECT id, colour FROM orders;

--- a column of another type
CREATE TABLE orders (id STRING)
WITH ('connector' = 'file', 'path' = 'data/orders.arrow', 'format' = 'arrow');
SELECT id FROM orders;

--- a field of another type
CREATE TABLE orders (customer ROW<address ROW<zip INT>>)
WITH ('connector' = 'file', 'path' = 'data/orders.arrow', 'format' = 'arrow');
SELECT customer.address.zip AS zip FROM orders;

--- a file that is not in the Arrow format
CREATE TABLE orders (id BIGINT)
WITH ('connector' = 'file', 'path' = 'data/bids.csv', 'format' = 'arrow');
SELECT id FROM orders;

--- Arrow is for files
CREATE TABLE orders (id BIGINT)
WITH ('connector' = 'tcp', 'address' = 'localhost:1', 'format' = 'arrow');
SELECT id FROM orders;

--- a layout that there is not
CREATE TABLE orders (id BIGINT) WITH ('connector' = 'file', 'path' = 'data/orders.arrow', 'format' = 'arrow');
CREATE TABLE o (id BIGINT) WITH ('connector' = 'file', 'path' = 'out/o.arrow', 'format' = 'arrow', 'arrow.layout' = 'streem');
INSERT INTO o SELECT id FROM orders;

--- a file that is packed with zstd, in two frames
CREATE TABLE packed (n INT, word STRING) WITH ('connector' = 'file', 'path' = 'data/packed.csv.zst');
SELECT n, word FROM packed;

--- mqtt: a filter that is not valid
CREATE TABLE readings (n INT) WITH ('connector' = 'mqtt', 'address' = 'localhost', 'topic' = 'a/#/b');
SELECT n FROM readings;

--- mqtt: a persistent session without a name
CREATE TABLE readings (n INT) WITH ('connector' = 'mqtt', 'address' = 'localhost', 'topic' = 'a', 'session' = 'persistent');
SELECT n FROM readings;

--- mqtt: metadata that there is not
CREATE TABLE readings (n INT, at TIMESTAMP(3) METADATA FROM 'timestamp') WITH ('connector' = 'mqtt', 'address' = 'localhost', 'topic' = 'a');
SELECT n FROM readings;

--- mqtt: a topic with wildcards can't be written
CREATE TABLE bids (who STRING) WITH ('connector' = 'file', 'path' = 'data/cities.csv');
CREATE TABLE o (who STRING) WITH ('connector' = 'mqtt', 'address' = 'localhost', 'topic' = 'a/+');
INSERT INTO o SELECT who FROM bids;
