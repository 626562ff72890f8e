-- What is said of wrong expressions and queries: in SQL's words.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

CREATE TABLE orders (id BIGINT, at TIMESTAMP(3), customer ROW<name STRING, address ROW<city STRING, zip STRING>>,
  total DECIMAL(8, 2), tags ARRAY<STRING>, paid BOOLEAN, day DATE)
WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');

--- IS with a number
SELECT price FROM bids WHERE price IS 5;

--- IS without anything
SELECT price FROM bids WHERE price IS;

--- an interval and a number
SELECT INTERVAL '1' DAY + 5 FROM bids;

--- the mean of an interval
SELECT AVG(INTERVAL '1' DAY) FROM bids;

--- an interval as a number
SELECT CAST(INTERVAL '1' DAY AS BIGINT) FROM bids;

--- the absolute value of an interval
SELECT ABS(INTERVAL '1' DAY) FROM bids;

--- a time where a string belongs
SELECT UPPER(ts) FROM bids;

--- a row where a string belongs
SELECT CONCAT(bidder, customer) FROM bids, orders;

--- a row as a string
SELECT CAST(customer AS STRING) FROM orders;

--- minus of a string
SELECT -bidder FROM bids;

--- branches of a row and a number
SELECT CASE WHEN price > 1 THEN customer ELSE 1 END FROM orders, bids;

--- CASE of a number and a time
SELECT CASE price WHEN ts THEN 1 END FROM bids;

--- COALESCE of a number and a time
SELECT COALESCE(price, ts) FROM bids;

--- GREATEST of a number and a time
SELECT GREATEST(price, ts) FROM bids;

--- NULLIF of a number and a time
SELECT NULLIF(price, ts) FROM bids;

--- IN with a time among strings
SELECT price IN ('a', ts) FROM bids;

--- BETWEEN a string and a time
SELECT price BETWEEN 'a' AND ts FROM bids;

--- a regular expression that is a number
SELECT bidder ~ 5 FROM bids;

--- a number that is matched
SELECT price ~ 'x' FROM bids;

--- bits of a string
SELECT bidder & 5 FROM bids;

--- an operator of another language
SELECT auction # 5 FROM bids;

--- division of another language
SELECT price // 2 FROM bids;

--- an operator of JSON
SELECT bidder -> 'x' FROM bids;

--- a string where a number belongs
SELECT power(bidder, 2) FROM bids;

--- a string instead of an integer
SELECT repeat(bidder, 'x') FROM bids;

--- a regular expression with an open parenthesis
SELECT bidder ~ '(' FROM bids;

--- names without values
SELECT named_struct('a') FROM bids;

--- a name that is not a string
SELECT named_struct(auction, 1) FROM bids;

--- a field of an expression
SELECT struct(1, 2).x FROM bids;

--- elements of two types
SELECT ARRAY[1, ts] FROM bids;

--- an Arrow type that is not valid
SELECT arrow_cast(price, 'x') FROM bids;

--- ROW_NUMBER without OVER
SELECT ROW_NUMBER() FROM bids;

--- a negative length
SELECT price::VARCHAR(-1) FROM bids;

--- a DATE that is a number
SELECT DATE 5 FROM bids;

--- an interval of two units
SELECT INTERVAL '1-2' YEAR TO MONTH FROM bids;

--- bits
SELECT B'01' FROM bids;

--- a national string
SELECT N'x' FROM bids;

--- a boolean that is not valid
SELECT CAST('x' AS BOOLEAN) FROM bids;

--- a DECIMAL that is too small
SELECT CAST(99999 AS DECIMAL(5,2)) FROM bids;

--- a window without a definition
SELECT SUM(price) OVER w FROM bids;

--- too many arguments of an aggregate
SELECT SUM(price, auction) FROM bids;

--- an aggregate without an argument
SELECT SUM() FROM bids;

--- a percentile beyond all
SELECT percentile_cont(2) WITHIN GROUP (ORDER BY price) FROM bids;

--- a percentile that is a column
SELECT percentile_cont(price) WITHIN GROUP (ORDER BY price) FROM bids;

--- bits of a number with a point
SELECT bit_and(price) FROM bids;

--- OVER in an aggregate
SELECT SUM(SUM(price) OVER (ORDER BY ts)) FROM bids;

--- HAVING of a row
SELECT price FROM bids HAVING price > 1;

--- a key that is an aggregate
SELECT SUM(price) FROM bids GROUP BY 1;

--- GROUPING without GROUP BY
SELECT GROUPING(bidder) FROM bids;

--- all columns of a table that is not read
SELECT x.* FROM people;

--- QUALIFY of a column
SELECT price FROM bids QUALIFY price > 1;

--- a UNION of a row and a string
SELECT customer FROM orders UNION ALL SELECT name FROM people;

--- two queries of one name
WITH x AS (SELECT price FROM bids), x AS (SELECT price FROM bids) SELECT * FROM x;

--- more names than columns
WITH x (a, b) AS (SELECT price FROM bids) SELECT * FROM x;

--- UNPIVOT
SELECT * FROM bids UNPIVOT (x FOR y IN (price));

--- TABLE of a function
SELECT * FROM TABLE(f(x));

--- a string in double quotes
SELECT bidder FROM bids WHERE bidder = "ann";

--- a string in double quotes that is like a column
SELECT bidder FROM bids WHERE "bidder" = "price2";

--- a STRING as event time
CREATE TABLE t (at STRING, WATERMARK FOR at AS at) WITH ('connector' = 'blackhole');

--- a DATE as event time
CREATE TABLE t (at DATE, WATERMARK FOR at AS at) WITH ('connector' = 'blackhole');

--- a first line that may be a header
CREATE TABLE scores (n INT, k INT) WITH ('connector' = 'file', 'path' = 'data/header.csv', 'on_error' = 'fail');
SELECT n FROM scores;

--- how expressions are shown
-- explain
EXPLAIN SELECT CAST(price AS DECIMAL(8, 2)) AS a, TRY_CAST(bidder AS INT) AS b, CAST(ts AS STRING) AS c, ts + INTERVAL '1' MONTH AS d, ts - ts > INTERVAL '1' DAY AS e,
  CASE WHEN price > 1 THEN 'it''s' ELSE NULL END AS f, bidder NOT LIKE 'a%' AS g, price - (price - 1) AS h, NOT (price > 1 AND auction IN (1, 2, 3, 4)) AS i, REGEXP_EXTRACT(bidder, '(a)', 1) AS j
FROM bids WHERE ts > TIMESTAMP '2024-01-01 00:00:00' AND bidder IS NOT NULL;

--- how fields and elements are shown
-- explain
EXPLAIN SELECT customer.address.city AS a, tags[1] AS b, day + INTERVAL '1 day 2 hours' AS c, total * 2 AS d, paid IS TRUE AS e FROM orders WHERE day < DATE '2024-02-29';

--- how conditions of joins are shown
-- explain
EXPLAIN SELECT b.price FROM bids b JOIN people p ON b.bidder = p.name AND b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts AND b.price > CAST(p.ms AS DOUBLE);
