-- Functions with arguments that they do not accept, and their messages.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE, ts AS TO_TIMESTAMP_LTZ(ms, 3)) WITH ('connector' = 'file', 'path' = 'data/bids.csv');

--- a string instead of a number
SELECT SPLIT_INDEX(bidder, ',', 'x') FROM bids;

--- too few arguments
SELECT LOCATE('x') FROM bids;

--- a field of an expression that is not a time
SELECT HOUR(price) FROM bids;

--- a letter that is not supported in a pattern
SELECT DATE_FORMAT(ts, 'yyyy-TT') FROM bids;

--- a pattern with a quote that is not closed
SELECT DATE_FORMAT(ts, 'yyyy ''x') FROM bids;

--- a number where a time belongs
SELECT DATE_FORMAT(ms, 'yyyy') FROM bids;

--- a regular expression that is not valid
SELECT REGEXP_EXTRACT(bidder, '(a', 1) FROM bids;

--- a regular expression that only Java knows
SELECT REGEXP_EXTRACT(bidder, '(?=a)', 0) FROM bids;

--- a path that is not valid
SELECT JSON_VALUE(bidder, 'a.b') FROM bids;

--- a path to several values
SELECT JSON_VALUE(bidder, '$.a[*]') FROM bids;

--- a clause of JSON_VALUE that is not known
SELECT JSON_VALUE(bidder, '$.a' EMPTY ARRAY ON EMPTY) FROM bids;

--- a clause of JSON_VALUE that does not end
SELECT JSON_VALUE(bidder, '$.a' NULL ON) FROM bids;

--- a default of another type
SELECT JSON_VALUE(bidder, '$.a' RETURNING INT DEFAULT 'x' ON EMPTY) FROM bids;

--- a wrapper that is not known
SELECT JSON_QUERY(bidder, '$.a' WITH PAPER WRAPPER) FROM bids;

--- no unit of time
SELECT TIMESTAMPDIFF(FORTNIGHT, ts, ts) FROM bids;

--- a unit of time, misspelt
SELECT TIMESTAMPADD(HUOR, 1, ts) FROM bids;

--- IF without its third argument
SELECT IF(price > 1, 'high') FROM bids;

--- IF with values that have no common type
SELECT IF(price > 1, ts, 1.5) FROM bids;

--- a misspelt function
SELECT SPLIT_INDX(bidder, ',', 0) FROM bids;

--- a column that is computed from another value each time
CREATE TABLE ids (ms BIGINT, id AS UUID(), twice AS id || id) WITH ('connector' = 'file', 'path' = 'data/bids.csv');
SELECT twice FROM ids;

--- windows by processing time need a WATERMARK
CREATE VIEW timed AS SELECT *, PROCTIME() AS p FROM bids;
SELECT COUNT(*) FROM TUMBLE(TABLE timed, DESCRIPTOR(p), INTERVAL '1' SECOND) GROUP BY window_start, window_end;

--- an hour added to a DATE rejects its row
SELECT TIMESTAMPADD(HOUR, auction, DATE '2024-02-29') FROM bids WHERE ms < 3000;

--- functions are not statements
CREATE FUNCTION count_char AS 'com.example.CountChar';
SELECT ms FROM bids;

--- LISTAGG
SELECT LISTAGG(bidder, ',') FROM bids;

--- a function that is like no other
SELECT CONVERT_TZ(bidder, 'UTC', 'CET') FROM bids;

--- a table function that is not known
SELECT price FROM WINDOWED(TABLE bids, DESCRIPTOR(ts));

--- LIKE with another ESCAPE
SELECT price FROM bids WHERE bidder LIKE 'a!%' ESCAPE '!';

--- a string with U&
SELECT price FROM bids WHERE bidder = U&'\0041';

--- a CAST of a constant that does not fit
SELECT price, CAST(1e20 AS BIGINT) FROM bids;
