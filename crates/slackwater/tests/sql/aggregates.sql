-- Aggregates in windows. The window holds all rows, so that the answers are easy to check.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

CREATE TABLE all_types (flag BOOLEAN, tiny TINYINT, small SMALLINT, number INT, big BIGINT, single FLOAT,
  real_number DOUBLE, amount DECIMAL(10, 2), day DATE, clock STRING, at TIMESTAMP(9), note STRING, last STRING,
  ts AS TO_TIMESTAMP_LTZ(0, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/types.csv');

CREATE VIEW w AS SELECT * FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' HOUR);
CREATE VIEW t AS SELECT * FROM TUMBLE(TABLE all_types, DESCRIPTOR(ts), INTERVAL '1' HOUR);

--- COUNT of rows and of values that are not NULL
SELECT COUNT(*) AS row_count, COUNT(1) AS ones, COUNT(price) AS prices, COUNT(bidder) AS bidders, COUNT(NULL) AS nothing FROM w GROUP BY window_start;

--- COUNT DISTINCT
SELECT COUNT(DISTINCT bidder) AS bidders, COUNT(DISTINCT auction) AS auctions, COUNT(DISTINCT price) AS prices FROM w GROUP BY window_start;

--- SUM, AVG, MIN and MAX of integers and doubles
SELECT SUM(auction) AS s, AVG(auction) AS a, MIN(auction) AS least, MAX(auction) AS most,
  SUM(price) AS sp, AVG(price) AS ap, MIN(price) AS lp, MAX(price) AS mp FROM w GROUP BY window_start;

--- MIN and MAX of every type
SELECT MIN(flag) AS flag, MIN(tiny) AS tiny, MIN(small) AS small, MIN(number) AS number, MIN(big) AS big, MIN(single) AS single,
  MIN(real_number) AS real_number, MIN(amount) AS amount, MIN(day) AS day, MIN(at) AS at, MIN(note) AS note FROM t GROUP BY window_start
UNION ALL
SELECT MAX(flag), MAX(tiny), MAX(small), MAX(number), MAX(big), MAX(single), MAX(real_number), MAX(amount), MAX(day), MAX(at), MAX(note) FROM t GROUP BY window_start;

--- SUM and AVG of other numbers
SELECT SUM(tiny) AS tiny, SUM(small) AS small, SUM(number) AS number, SUM(single) AS single, SUM(amount) AS amount,
  AVG(tiny) AS avg_tiny, AVG(amount) AS avg_amount, AVG(single) AS avg_single FROM t GROUP BY window_start;

--- SUM and AVG DISTINCT
SELECT SUM(DISTINCT auction) AS s, AVG(DISTINCT auction) AS a FROM w GROUP BY window_start;

--- FILTER
SELECT COUNT(*) FILTER (WHERE price > 10) AS high, SUM(price) FILTER (WHERE bidder = 'alice') AS of_alice,
  MAX(price) FILTER (WHERE FALSE) AS nothing, COUNT(DISTINCT bidder) FILTER (WHERE auction = 1) AS bidders FROM w GROUP BY window_start;

--- FIRST_VALUE and LAST_VALUE go by event time
SELECT auction, FIRST_VALUE(bidder) AS first_bidder, LAST_VALUE(bidder) AS last_bidder, FIRST_VALUE(price) AS first_price, LAST_VALUE(ms) AS last_ms
FROM w GROUP BY window_start, auction;

--- FIRST_VALUE and LAST_VALUE IGNORE NULLS
SELECT FIRST_VALUE(price) IGNORE NULLS AS first_price, LAST_VALUE(bidder) IGNORE NULLS AS last_bidder, FIRST_VALUE(price) RESPECT NULLS AS r
FROM w WHERE auction = 1 AND ms >= 3000 GROUP BY window_start;

--- FIRST_VALUE of a row that is late within the delay
SELECT window_start, FIRST_VALUE(bidder) AS first_bidder, LAST_VALUE(bidder) AS last_bidder
FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND) GROUP BY window_start, window_end;

--- aggregates over nothing but NULL
SELECT auction, SUM(price) AS s, AVG(price) AS a, MIN(price) AS least, COUNT(price) AS n, FIRST_VALUE(bidder) AS f FROM w
WHERE price IS NULL OR bidder IS NULL GROUP BY window_start, auction;

--- standard deviation, variance, median, correlation
SELECT stddev(auction) AS stddev_sample, stddev_pop(auction) AS stddev_all, var(auction) AS variance, median(auction) AS median,
  corr(auction, auction * 2) AS correlation, covar_samp(auction, auction) AS covariance FROM w GROUP BY window_start;

--- approximations
SELECT approx_distinct(bidder) AS bidders, approx_median(auction) AS median, approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY auction) AS half FROM w GROUP BY window_start;

--- percentile_cont
SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY auction) AS quarter FROM w GROUP BY window_start;

--- booleans and bits
SELECT bool_and(auction < 4) AS all_small, bool_or(auction = 3) AS one_is_three, bit_and(auction) AS b_and, bit_or(auction) AS b_or, bit_xor(auction) AS b_xor FROM w GROUP BY window_start;

--- regression
SELECT regr_slope(auction * 3.0 + 1, auction) AS slope, regr_count(auction, auction) AS n FROM w GROUP BY window_start;

--- expressions of aggregates
SELECT SUM(price) / COUNT(*) AS per_row, ROUND(AVG(price), 2) AS average, MAX(price) - MIN(price) AS span, COALESCE(SUM(price), 0) + 1 AS s FROM w GROUP BY window_start;

--- aggregates of expressions
SELECT SUM(price * 2 + 1) AS s, MAX(char_length(bidder)) AS longest, COUNT(CASE WHEN price > 10 THEN 1 END) AS high FROM w GROUP BY window_start;

--- the same aggregate twice
SELECT SUM(price) AS a, SUM(price) AS b, SUM(price) + SUM(price) AS c FROM w GROUP BY window_start;

--- keys of several types
SELECT flag, day, amount, tiny, COUNT(*) AS n FROM t GROUP BY window_start, flag, day, amount, tiny;

--- keys that are time stamps and doubles
SELECT at, real_number, COUNT(*) AS n FROM t GROUP BY window_start, at, real_number;

--- NULL is a key
SELECT bidder, COUNT(*) AS n FROM w GROUP BY window_start, bidder;

--- keys that are expressions
SELECT upper(bidder) AS bidder, price > 10 AS high, COUNT(*) AS n FROM w GROUP BY window_start, upper(bidder), price > 10;

--- keys by number and by alias
SELECT substr(bidder, 1, 1) AS initial, auction % 2 AS odd, COUNT(*) AS n FROM w GROUP BY window_start, 1, odd;

--- a constant key
SELECT 'all' AS what, COUNT(*) AS n FROM w GROUP BY window_start, 'all';

--- DISTINCT of values in a window
SELECT DISTINCT window_start, window_end, bidder FROM w;

--- HAVING on an aggregate that is not selected
SELECT auction FROM w GROUP BY window_start, auction HAVING COUNT(DISTINCT bidder) > 2;

--- a key of a nested field
CREATE TABLE orders (id BIGINT, at TIMESTAMP(0), customer ROW<name STRING, address ROW<city STRING>>, total DECIMAL(8, 2), WATERMARK FOR at AS at)
WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');
SELECT customer.address.city AS city, SUM(total) AS total FROM TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' DAY)
GROUP BY window_start, customer.address.city;

--- a whole ROW as key
CREATE TABLE orders (id BIGINT, at TIMESTAMP(0), customer ROW<name STRING, address ROW<city STRING>>, WATERMARK FOR at AS at)
WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');
SELECT customer, COUNT(*) AS n FROM TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' DAY) GROUP BY window_start, customer;

--- aggregates of rows, arrays and booleans
CREATE TABLE orders (id BIGINT, at TIMESTAMP(0), customer ROW<name STRING>, tags ARRAY<STRING>, paid BOOLEAN, WATERMARK FOR at AS at)
WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');
SELECT COUNT(DISTINCT customer) AS customers, FIRST_VALUE(tags) AS tags, LAST_VALUE(customer) AS last_customer, MAX(paid) AS paid
FROM TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' DAY) GROUP BY window_start;

--- COUNT DISTINCT of several columns
SELECT COUNT(DISTINCT auction, bidder) AS pairs FROM w GROUP BY window_start;

--- totals of which no value is read have one row, also over no rows
-- table
SELECT 1 AS x FROM (SELECT COUNT(*) AS n FROM bids)
UNION ALL SELECT 2 FROM (SELECT MAX(price) AS n FROM bids)
UNION ALL SELECT 3 FROM (SELECT COUNT(*) AS n FROM bids WHERE price < 0)
UNION ALL SELECT 4 FROM (SELECT COUNT(*) AS n FROM bids) AS a CROSS JOIN (SELECT MAX(ms) AS m FROM bids) AS b;

--- a total meets a condition that is never true as little as a row does
-- table
SELECT 1 AS x FROM (SELECT COUNT(*) AS n FROM bids) WHERE IS_DIGIT('Z')
UNION ALL SELECT 2 FROM (SELECT MAX(price) AS n FROM bids) WHERE 1 = 0
UNION ALL SELECT 3 FROM bids HAVING COUNT(*) < 0 AND MAX(price) IS NULL
UNION ALL SELECT CAST(COUNT(*) AS INT) FROM bids HAVING 'a' = 'b';

--- FIRST_VALUE and LAST_VALUE go by event time over UNION ALL too
SET 'emit' = 'final';
CREATE TABLE disorder (ms BIGINT, k STRING, v BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE)
WITH ('connector' = 'file', 'path' = 'data/disorder.csv', 'format' = 'csv');
SELECT k, FIRST_VALUE(v) AS f, LAST_VALUE(v) AS l
FROM (SELECT k, v FROM disorder WHERE v > 0 UNION ALL SELECT k, v FROM disorder WHERE v < 0) GROUP BY k;

--- a key that GROUP BY names twice is one key
SELECT window_end, bidder, COUNT(*) AS n, SUM(price) AS total FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, window_start, bidder, window_end, bids.bidder HAVING COUNT(*) > 0;

--- keys that are named twice, without an aggregate
SELECT auction FROM bids GROUP BY auction, 1;

--- keys that are equal in other words
-- last per 1
SELECT MOD(auction, 2) AS odd, COUNT(*) AS n FROM bids GROUP BY MOD(auction, 2), auction % 2;
