-- Wrong expressions: functions, types, literals.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

--- a misspelt function
SELECT uper(bidder) FROM bids;

--- a misspelt aggregate
SELECT auction, COUTN(price) FROM bids GROUP BY auction;

--- a function that is nothing like the others
SELECT qqqq(bidder) FROM bids;

--- too few arguments
SELECT replace(bidder, 'a') FROM bids;

--- too many arguments
SELECT upper(bidder, 1) FROM bids;

--- arguments of the wrong type
SELECT abs(bidder) FROM bids;

--- an aggregate of the wrong type
SELECT auction, SUM(bidder) FROM bids GROUP BY auction;

--- AVG of a time
SELECT auction, AVG(ts) FROM bids GROUP BY auction;

--- a number and a time
SELECT ts + 1 FROM bids;

--- a string and a number
SELECT bidder * 2 FROM bids;

--- comparing a time with a number
SELECT price FROM bids WHERE ts > 1000;

--- comparing a time with a string that is not a time
SELECT price FROM bids WHERE ts > 'yesterday';

--- comparing a number with a string that is not a number
SELECT price FROM bids WHERE price > 'ten';

--- AND of what is not true or false
SELECT price FROM bids WHERE auction AND price > 1;

--- NOT of a string
SELECT NOT bidder FROM bids;

--- branches of CASE of different types
SELECT CASE WHEN auction = 1 THEN ts ELSE TRUE END FROM bids;

--- CASE without END
SELECT CASE WHEN auction = 1 THEN 2 FROM bids;

--- LIKE of a number
SELECT price FROM bids WHERE auction LIKE '1%';

--- CAST to a type that does not exist
SELECT CAST(price AS NUMBR) FROM bids;

--- CAST that can't be
SELECT CAST(ts AS BOOLEAN) FROM bids;

--- CAST of a literal that is not a number
SELECT CAST('abc' AS INT) FROM bids;

--- a TIMESTAMP literal that is not valid
SELECT price FROM bids WHERE ts > TIMESTAMP 'nonsense';

--- a TIMESTAMP of too many decimals
SELECT CAST(ts AS TIMESTAMP(12)) FROM bids;

--- a DATE literal that is not valid
SELECT price FROM bids WHERE ts > DATE '2024-13-01';

--- an INTERVAL of an unknown unit
SELECT ts + INTERVAL '1' FORTNIGHT FROM bids;

--- an INTERVAL that is not a number
SELECT ts + INTERVAL 'soon' FROM bids;

--- EXTRACT of an unknown part
SELECT EXTRACT(FORTNIGHT FROM ts) FROM bids;

--- a constant overflow
SELECT 9223372036854775807 + 1 FROM bids;

--- TO_TIMESTAMP_LTZ without its precision
SELECT TO_TIMESTAMP_LTZ(ms) FROM bids;

--- TO_TIMESTAMP_LTZ with a precision that does not exist
SELECT TO_TIMESTAMP_LTZ(ms, 4) FROM bids;

--- TO_TIMESTAMP_LTZ of a string
SELECT TO_TIMESTAMP_LTZ(bidder, 3) FROM bids;

--- a field of a column that is not a ROW
SELECT bids.price.cents FROM bids;

--- a field that does not exist
CREATE TABLE orders (id BIGINT, customer ROW<name STRING, city STRING>) WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');
SELECT customer.nme FROM orders;

--- a field of an array
CREATE TABLE orders (id BIGINT, tags ARRAY<STRING>) WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');
SELECT tags['new'] FROM orders;

--- a star inside a function
SELECT SUM(*) FROM bids;

--- DISTINCT in a function that is not an aggregate
SELECT upper(DISTINCT bidder) FROM bids;

--- FILTER on a function that is not an aggregate
SELECT upper(bidder) FILTER (WHERE price > 1) FROM bids;

--- FILTER of an expression that is not a condition
SELECT auction, SUM(price) FILTER (WHERE price) FROM bids GROUP BY auction;

--- a parameter
SELECT price FROM bids WHERE auction = ?;

--- a parameter with a number
SELECT price FROM bids WHERE auction = $1;

--- a variable
SELECT price FROM bids WHERE auction = @x;

--- nested too deeply
SELECT ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1)))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))) FROM bids;
