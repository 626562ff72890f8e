-- Flink's functions: values that are easy to check, from one row.

CREATE TABLE one (ms BIGINT, auction INT, bidder STRING, price DOUBLE, ts AS TO_TIMESTAMP_LTZ(ms, 3),
  hour_of_row AS HOUR(TO_TIMESTAMP_LTZ(ms, 3)), kind AS IF(auction = 1, 'first', 'other'), digest AS SHA256(bidder))
WITH ('connector' = 'file', 'path' = 'data/bids.csv');
CREATE VIEW bid AS SELECT * FROM one WHERE ms = 1000;
CREATE TABLE types (flag BOOLEAN, tiny TINYINT, small SMALLINT, number INT, big BIGINT, single FLOAT,
  real_number DOUBLE, amount DECIMAL(10, 2), day DATE, clock STRING, at TIMESTAMP(9), note STRING, last STRING)
WITH ('connector' = 'file', 'path' = 'data/types.csv');
CREATE VIEW x AS SELECT * FROM types WHERE last = 'x';
CREATE TABLE orders (id BIGINT, at TIMESTAMP(3), tags ARRAY<STRING>) WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');

--- DATE_FORMAT
SELECT DATE_FORMAT(at, 'yyyy-MM-dd HH:mm:ss.SSSSSS') AS a, DATE_FORMAT(at, 'yy/M/d h:m a') AS b, DATE_FORMAT(at, 'EEEE, dd MMMM uuuu') AS c, DATE_FORMAT(at, 'EEE d. MMM') AS d,
  DATE_FORMAT(at, '''at'' HH ''o''''clock''') AS e, DATE_FORMAT(day, 'yyyyMMdd') AS f, DATE_FORMAT('2024-02-03 04:05:06', 'HH:mm') AS g, DATE_FORMAT(NULL, 'yyyy') AS h, DATE_FORMAT(at, 'DDD Q kk KK X') AS i FROM x;

--- DATE_FORMAT of each row
SELECT ms, DATE_FORMAT(ts, 'mm:ss') AS t, hour_of_row FROM one;

--- DATE_FORMAT with a pattern from a column
SELECT ms, DATE_FORMAT(ts, CASE WHEN auction = 1 THEN 'ss' ELSE 'mm''m''' END) AS t FROM one WHERE ms < 3000;

--- the parts of a time
SELECT YEAR(at) AS y, QUARTER(at) AS q, MONTH(at) AS mo, WEEK(at) AS w, DAYOFYEAR(at) AS dy, DAYOFMONTH(at) AS dm, DAY(at) AS d, DAYOFWEEK(at) AS dw, HOUR(at) AS h, MINUTE(at) AS mi, SECOND(at) AS s,
  YEAR(day) AS dyr, DAYOFWEEK(DATE '2024-03-03') AS sunday, HOUR(NULL) AS n FROM x;

--- TIMESTAMPDIFF and TIMESTAMPADD
SELECT TIMESTAMPDIFF(DAY, TIMESTAMP '2024-02-28 12:00:00', TIMESTAMP '2024-03-01 11:59:59') AS d, TIMESTAMPDIFF(MONTH, TIMESTAMP '2024-01-31 00:00:00', TIMESTAMP '2024-02-29 00:00:00') AS m,
  TIMESTAMPDIFF(SECOND, at, TIMESTAMP '2024-02-29 12:00:00') AS s, TIMESTAMPDIFF(year, DATE '2020-03-01', day) AS y, TIMESTAMPADD(HOUR, 30, at) AS h, TIMESTAMPADD(MONTH, 12, at) AS mo,
  TIMESTAMPADD(DAY, -1, day) AS dd, TIMESTAMPADD(QUARTER, 1, TIMESTAMP '2024-11-30 00:00:00') AS q, TIMESTAMPDIFF(WEEK, at, NULL) AS n FROM x;

--- times rounded down
SELECT FLOOR(at TO HOUR) AS h, FLOOR(at TO MONTH) AS m, FLOOR(2.7) AS n FROM x;

--- times from strings and counts
SELECT TO_TIMESTAMP('24.12.2023 17:05', 'dd.MM.yyyy HH:mm') AS a, TO_TIMESTAMP('20231224170501123', 'yyyyMMddHHmmssSSS') AS b, TO_DATE('12/24/23', 'MM/dd/yy') AS c, TO_TIMESTAMP('03/04/2024 05:06', '%d/%m/%Y %H:%M') AS d,
  UNIX_TIMESTAMP('1970-01-02 00:00:01') AS e, UNIX_TIMESTAMP('02 Jan 1970', 'dd MMM yyyy') AS f, FROM_UNIXTIME(86401) AS g, FROM_UNIXTIME(0, 'yyyyMMdd') AS h FROM bid;

--- a string that does not match its pattern rejects its row
SELECT ms, TO_TIMESTAMP(bidder, 'yyyy') AS t FROM one WHERE ms < 3000;

--- strings
SELECT SPLIT_INDEX('a/b//d', '/', 0) AS a, SPLIT_INDEX('a/b//d', '/', 2) AS b, SPLIT_INDEX('a/b//d', '/', 4) AS c, SPLIT_INDEX('a/b', '/', -1) AS d, SPLIT_INDEX('a/b', 47, 1) AS e,
  LOCATE('b', 'abcb') AS f, LOCATE('b', 'abcb', 3) AS g, LOCATE('x', 'abc') AS h, INSTR('abcb', 'b') AS i, CHAR_LENGTH('grüße') AS j, CHARACTER_LENGTH('ab') AS k, SPLIT_INDEX(NULL, '/', 0) AS l FROM bid;

--- more strings
SELECT IS_ALPHA('abc') AS a, IS_ALPHA('a1') AS b, IS_DIGIT('12') AS c, IS_DIGIT('') AS d, IS_DECIMAL('1.5') AS e, IS_DECIMAL('x') AS f, BIN(5) AS g, TO_BASE64('hello') AS h, FROM_BASE64('aGVsbG8=') AS i, MD5('a') AS j FROM bid;

--- regular expressions
SELECT REGEXP_EXTRACT('a=1&channel_id=22', '(&|^)channel_id=([^&]*)', 2) AS a, REGEXP_EXTRACT('channel_id=', '(&|^)channel_id=([^&]*)', 2) AS b, REGEXP_EXTRACT('abc', 'x') AS c,
  REGEXP_EXTRACT('abc123', '[0-9]+') AS d, REGEXP_EXTRACT('abc', '(a)', 7) AS e, REGEXP('abc', '^a.c$') AS f, REGEXP('abc', 'd') AS g FROM bid;

--- a regular expression from a column
SELECT bidder, REGEXP_EXTRACT('alice and bob', bidder || '.?') AS found FROM one WHERE ms < 3000;

--- IF evaluates only the branch that applies
SELECT ms, IF(auction = 3, 0, 10 / (auction - 3)) AS safe, kind FROM one;

--- IF with values of two types, and NULL
SELECT IF(NULL, 1, 2.5) AS a, IF(TRUE, NULL, 'x') AS b, IF(flag, tiny, big) AS c FROM x;

--- numbers
SELECT MOD(7, 3) AS a, MOD(-7, 3) AS b, MOD(amount, 10) AS c, TRUNCATE(2.567, 1) AS d, SIGN(-2) AS e, CEILING(1.2) AS f, POWER(2, 3) AS g FROM x;

--- hashes
SELECT SHA256('abc') AS a, SHA224('') AS b, digest = SHA256(bidder) AS c FROM bid;

--- JSON_VALUE
SELECT JSON_VALUE('{"a": {"b": [1, "two", null, 1.5, true]}}', '$.a.b[0]') AS a, JSON_VALUE('{"a": {"b": [1, "two"]}}', 'lax $.a.b[1]') AS b, JSON_VALUE('{"a b": "x\"y"}', '$[''a b'']') AS c,
  JSON_VALUE('{"a": null}', '$.a') AS d, JSON_VALUE('{}', '$.a') AS e, JSON_VALUE('{"a": {}}', '$.a') AS f, JSON_VALUE('no json', '$.a') AS g, JSON_VALUE(NULL, '$.a') AS h FROM bid;

--- JSON_VALUE RETURNING
SELECT JSON_VALUE('{"a": 7}', '$.a' RETURNING INT) AS a, JSON_VALUE('{"a": "7.5"}', '$.a' RETURNING DOUBLE) + 1 AS b, JSON_VALUE('{"a": true}', '$.a' RETURNING BOOLEAN) AS c,
  JSON_VALUE('{"a": "x"}', '$.a' RETURNING INT) AS d, JSON_VALUE('{"a": "2024-02-29 12:00:00"}', '$.a' RETURNING TIMESTAMP(3)) AS e, JSON_VALUE('{"a": "1.25"}', '$.a' RETURNING DECIMAL(5, 2)) AS f FROM bid;

--- JSON_VALUE with defaults
SELECT JSON_VALUE('{}', '$.a' DEFAULT 'none' ON EMPTY) AS a, JSON_VALUE('{', '$.a' NULL ON EMPTY DEFAULT 'bad' ON ERROR) AS b, JSON_VALUE('{"a": "x"}', '$.a' RETURNING INT DEFAULT 1 + 1 ON ERROR) AS c,
  JSON_VALUE('{}', 'strict $.a' DEFAULT 'empty' ON EMPTY DEFAULT 'error' ON ERROR) AS d, JSON_VALUE('{"a": 1}', '$.a' DEFAULT 'none' ON EMPTY) AS e, JSON_VALUE('{}', '$.a' RETURNING BIGINT DEFAULT ms ON EMPTY) AS f FROM bid;

--- JSON_VALUE with ERROR rejects its row
SELECT ms, JSON_VALUE('{"alice": 1}', '$.' || bidder ERROR ON EMPTY) AS v FROM one WHERE ms < 3000;

--- JSON_EXISTS and JSON_QUERY
SELECT JSON_EXISTS('{"a": null}', '$.a') AS a, JSON_EXISTS('{}', '$.a') AS b, JSON_EXISTS('{', '$.a' UNKNOWN ON ERROR) AS c, JSON_EXISTS('{', '$' TRUE ON ERROR) AS d,
  JSON_QUERY('{"b": {"z": 1, "a": 2}}', '$.b') AS e, JSON_QUERY('{"b": 3}', '$.b') AS f, JSON_QUERY('{"b": 3}', '$.b' WITH WRAPPER) AS g, JSON_QUERY('{"b": [3]}', '$.b' WITH CONDITIONAL ARRAY WRAPPER) AS h,
  JSON_QUERY('{}', '$.b' EMPTY ARRAY ON EMPTY) AS i, JSON_QUERY('{', '$.b' WITHOUT WRAPPER EMPTY OBJECT ON ERROR) AS j FROM bid;

--- arrays
SELECT id, tags[1] AS first, CARDINALITY(tags) AS n, ARRAY_CONTAINS(tags, 'gift') AS gift, ARRAY_TO_STRING(tags, '+') AS t, ARRAY_LENGTH(ARRAY[1, 2, 3]) AS three FROM orders;

--- the clock moves
-- last per 1
SELECT 'rows' AS what, COUNT(*) AS n FROM one WHERE CURRENT_TIMESTAMP >= TIMESTAMP '2024-01-01 00:00:00' AND PROCTIME() >= TIMESTAMP '2024-01-01 00:00:00' AND LOCALTIMESTAMP > ts AND UNIX_TIMESTAMP() > 1700000000 AND CURRENT_DATE > DATE '2024-01-01';

--- what is another value each time is computed once
-- last per 1
SELECT 'rows' AS what, COUNT(*) AS n FROM (SELECT a FROM (SELECT UUID() AS a, RAND() AS r FROM one) WHERE a = a AND r < 2) WHERE CHAR_LENGTH(a) = 36;

--- windows by processing time: a table's column
-- last per 1
CREATE TABLE timed (ms BIGINT, auction INT, bidder STRING, price DOUBLE, p AS PROCTIME(), WATERMARK FOR p AS p) WITH ('connector' = 'file', 'path' = 'data/bids.csv');
SELECT 'rows' AS what, SUM(n) AS n FROM (SELECT window_end AS e, window_time AS t, COUNT(*) AS n FROM TUMBLE(TABLE timed, DESCRIPTOR(p), INTERVAL '1' SECOND) GROUP BY window_start, window_end, window_time);
