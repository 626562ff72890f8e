-- Expressions: one row of values each, so that the answers are easy to check.

CREATE TABLE one (ms BIGINT, auction INT, bidder STRING, price DOUBLE, ts AS TO_TIMESTAMP_LTZ(ms, 3))
WITH ('connector' = 'file', 'path' = 'data/bids.csv');
CREATE VIEW bid AS SELECT * FROM one WHERE ms = 1000;
CREATE TABLE types (flag BOOLEAN, tiny TINYINT, small SMALLINT, number INT, big BIGINT, single FLOAT,
  real_number DOUBLE, amount DECIMAL(10, 2), day DATE, clock STRING, at TIMESTAMP(9), note STRING, last STRING)
WITH ('connector' = 'file', 'path' = 'data/types.csv');
CREATE VIEW x AS SELECT * FROM types WHERE last = 'x';

--- arithmetic
SELECT 7 + 2 AS a, 7 - 2 AS b, 7 * 2 AS c, 7 / 2 AS d, 7 % 2 AS e, -ms AS f, 7.0 / 2 AS g, ms / 3 AS h, price / 4 AS i, 2 + 3 * 4 AS j, (2 + 3) * 4 AS k FROM bid;

--- arithmetic of mixed types
SELECT tiny + big AS a, small * 2 AS b, amount + number AS c, amount * 2 AS d, single + 0.5 AS e, amount / 3 AS f, number - amount AS g FROM x;

--- comparisons
SELECT 1 < 2 AS a, 2 <= 2 AS b, 1 > 2 AS c, 1 >= 2 AS d, 1 = 1 AS e, 1 <> 1 AS f, 1 != 2 AS g, 'a' < 'b' AS h, price BETWEEN 10 AND 11 AS i,
  auction NOT BETWEEN 2 AND 3 AS j, auction IN (1, 2) AS k, bidder NOT IN ('bob', 'carol') AS l FROM bid;

--- logic with NULL
SELECT NULL AND FALSE AS a, NULL AND TRUE AS b, NULL OR TRUE AS c, NOT NULL AS d, NULL = NULL AS e, NULL IS NULL AS f, 1 IS NOT NULL AS g,
  (1 = 2) IS FALSE AS h, (NULL = 1) IS UNKNOWN AS i, 1 IS DISTINCT FROM NULL AS j, NULL IS NOT DISTINCT FROM NULL AS k FROM bid;

--- NULL in arithmetic, strings and conditions
SELECT price + 1 AS a, bidder || '!' AS b, price > 1 AS c, COALESCE(price, -1) AS d, NULLIF(auction, 1) AS e, bidder IN ('x', NULL) AS f FROM one WHERE price IS NULL OR bidder IS NULL;

--- a condition that is NULL keeps no row
SELECT ms FROM one WHERE price > 10;

--- conditions that are always or never true
SELECT 'always' AS what, ms FROM one WHERE TRUE AND auction = 3 UNION ALL SELECT 'never', ms FROM one WHERE FALSE
UNION ALL SELECT 'null', ms FROM one WHERE NULL UNION ALL SELECT 'one', ms FROM one WHERE 1 = 1 AND auction = 3;

--- CASE
SELECT ms, CASE WHEN price > 20 THEN 'high' WHEN price > 5 THEN 'middle' ELSE 'low' END AS level, CASE auction WHEN 1 THEN 'one' WHEN 2 THEN 'two' END AS word FROM one;

--- CASE evaluates nothing after the branch that applies
SELECT ms, CASE WHEN auction = 3 THEN 0 ELSE 10 / (auction - 3) END AS safe FROM one;

--- LIKE, ILIKE and regular expressions
SELECT bidder, bidder LIKE 'a%' AS a, bidder LIKE '_ob' AS b, bidder NOT LIKE '%o%' AS c, bidder ILIKE 'ALICE' AS d, bidder ~ '^[ab]' AS e, bidder !~ 'e$' AS f, 'a%b' LIKE 'a\%b' AS g FROM one WHERE ms < 3000;

--- strings
SELECT upper(bidder) AS u, lower('ABC') AS l, initcap('two words') AS i, char_length('grüße') AS n, octet_length('grüße') AS o, substr('slack', 2, 3) AS s,
  substring('slack' FROM 2 FOR 2) AS s2, position('a' IN 'slack') AS p, replace('aXa', 'X', '-') AS r, reverse('abc') AS v, repeat('ab', 2) AS rep FROM bid;

--- more strings
SELECT trim('  a ') || '.' AS t, ltrim('xxa', 'x') AS l, rtrim('axx', 'x') AS r, btrim('xax', 'x') AS b, TRIM(LEADING 'x' FROM 'xax') AS tl, lpad('7', 3, '0') AS lp, rpad('7', 3, '.') AS rp,
  left('slack', 2) AS le, right('slack', 2) AS ri, split_part('a,b,c', ',', 2) AS sp, strpos('slack', 'ck') AS po, starts_with('slack', 'sl') AS sw, concat('a', 1, NULL, 'b') AS c, concat_ws('-', 'a', NULL, 'b') AS cw FROM bid;

--- even more strings
SELECT ascii('a') AS a, chr(97) AS c, to_hex(255) AS h, encode('ab', 'hex') AS e, regexp_replace('2024-01', '[0-9]+', 'N') AS rr, regexp_like('abc', 'b') AS rl,
  translate('abc', 'ab', 'xy') AS t, overlay('slack' PLACING 'LA' FROM 2 FOR 2) AS o, levenshtein('kitten', 'sitting') AS d FROM bid;

--- numbers
SELECT abs(-2) AS a, ceil(1.2) AS c, floor(-1.2) AS f, round(2.567, 1) AS r, round(2.5) AS r0, trunc(2.9) AS t, sqrt(16) AS s, power(2, 10) AS p, exp(0) AS e, ln(1) AS l, log10(1000) AS l10, log2(8) AS l2, signum(-3) AS g,
  pi() AS pi, sin(0) AS sn, degrees(pi()) AS d, greatest(1, 3, 2) AS gr, least(1, 3, 2) AS le, gcd(12, 18) AS gcd FROM bid;

--- the parts of a time
SELECT EXTRACT(YEAR FROM at) AS y, EXTRACT(MONTH FROM at) AS mo, EXTRACT(DAY FROM at) AS d, EXTRACT(HOUR FROM at) AS h, EXTRACT(MINUTE FROM at) AS mi, EXTRACT(SECOND FROM at) AS s,
  EXTRACT(DOW FROM at) AS w, EXTRACT(DOY FROM at) AS doy, EXTRACT(QUARTER FROM at) AS q, EXTRACT(WEEK FROM at) AS wk, EXTRACT(EPOCH FROM at) AS e, date_part('millisecond', at) AS ms FROM x;

--- rounded times
SELECT date_trunc('hour', at) AS h, date_trunc('day', at) AS d, date_trunc('month', at) AS m, date_bin(INTERVAL '15' MINUTE, at, TIMESTAMP '1970-01-01 00:00:00') AS b FROM x;

--- times and intervals
SELECT at + INTERVAL '1' DAY AS a, at - INTERVAL '90' MINUTE AS b, at + INTERVAL '1' MONTH AS c, at + INTERVAL '1 day 2 hours' AS d, day + INTERVAL '1' DAY AS e, at - TIMESTAMP '2024-02-29 12:00:00' AS f FROM x;

--- INTERVAL in all units
SELECT ts + INTERVAL '1' SECOND AS s, ts + INTERVAL '1.5' SECOND AS s15, ts + INTERVAL '2' HOUR AS h, ts + INTERVAL '1' WEEK AS w, ts + INTERVAL '1' YEAR AS y, ts + INTERVAL '250' MILLISECOND AS ms FROM bid;

--- times from numbers and strings
SELECT TO_TIMESTAMP_LTZ(1, 0) AS s, TO_TIMESTAMP_LTZ(1, 3) AS ms, TO_TIMESTAMP_LTZ(1, 6) AS us, TO_TIMESTAMP_LTZ(1, 9) AS ns, TO_TIMESTAMP('2024-01-02T03:04:05') AS t, TO_TIMESTAMP_MILLIS(1500) AS tm,
  TO_TIMESTAMP('03/04/2024 05:06', '%d/%m/%Y %H:%M') AS f, TO_DATE('2024-01-02') AS d, CAST('2024-01-02 03:04:05.678' AS TIMESTAMP(3)) AS c, from_unixtime(86400) AS u FROM bid;

--- times as strings and numbers
SELECT to_char(at, '%Y/%m/%d %H:%M:%S') AS t, CAST(at AS BIGINT) AS ns, CAST(CAST(at AS TIMESTAMP(0)) AS BIGINT) AS s, CAST(at AS STRING) AS st, CAST(at AS DATE) AS d, CAST(day AS STRING) AS ds, to_unixtime(at) AS u FROM x;

--- dates
SELECT day, DATE '2024-03-01' - day AS days, day > DATE '2024-01-01' AS later, EXTRACT(MONTH FROM day) AS m, CAST(day AS TIMESTAMP(0)) AS t, make_date(2024, 2, 29) AS d FROM x;

--- literals of times
SELECT TIMESTAMP '2024-01-02 03:04:05' AS t, DATE '2024-01-02' AS d, TIMESTAMP '2024-01-02 03:04:05' < TIMESTAMP '2024-01-02 03:04:05.001' AS less, DATE '2024-01-02' = TIMESTAMP '2024-01-02 00:00:00' AS same FROM bid;

--- CAST
SELECT CAST('12' AS INT) AS i, CAST(12.7 AS INT) AS t, CAST('1.5' AS DOUBLE) AS d, CAST(1 AS BOOLEAN) AS b, CAST('true' AS BOOLEAN) AS bt, CAST(1.005 AS DECIMAL(5, 2)) AS de, CAST(12 AS STRING) AS s, CAST(12 AS VARCHAR(5)) AS v,
  '5'::INT + 1 AS p, TRY_CAST('x' AS INT) AS n, CAST(TRUE AS INT) AS one, CAST(1.0 AS STRING) AS f FROM bid;

--- DECIMAL keeps its decimals
SELECT amount, amount + 0.01 AS a, amount * amount AS b, CAST(amount AS DECIMAL(20, 4)) AS c, round(amount, 1) AS d, CAST(amount AS INT) AS e, amount > 123.44 AS f FROM x;

--- BOOLEAN
SELECT flag, NOT flag AS n, flag AND tiny = 1 AS a, flag IS TRUE AS t, CAST(flag AS STRING) AS s, CASE WHEN flag THEN 'yes' ELSE 'no' END AS c FROM types;

--- strings with quotes, lines and other characters
SELECT 'it''s' AS a, "bidder" AS b, 'grüße 世界' AS c, '' = '' AS d, 'a' || CAST(NULL AS STRING) AS e, E'tab\there' AS f FROM bid;

--- nested fields
CREATE TABLE orders (id BIGINT, customer ROW<name STRING, address ROW<city STRING, zip STRING>>)
WITH ('connector' = 'file', 'path' = 'data/orders.jsonl', 'format' = 'json');
SELECT id, o.customer.name AS name, upper(o.customer.address.city) AS city, o.customer IS NULL AS nobody, o.customer.address AS address FROM orders AS o;

--- rows and their fields, made in the query
SELECT struct(1 AS a, 'x' AS b) AS r, named_struct('a', auction, 'b', bidder) AS n FROM bid;

--- the type of a value
SELECT arrow_typeof(ts) AS t, arrow_typeof(bidder) AS b FROM bid;

--- a column that is selected twice
SELECT ms, ms, ms + 1, ms + 1 FROM bid;

--- names of columns without AS
SELECT ms, upper(bidder), COALESCE(price, 0), 1 + 1, CASE WHEN TRUE THEN 1 END, COUNT(*) FROM bid GROUP BY ms, bidder, price;

--- an expression that fails rejects its row
SELECT ms, 100 / (ms - 3000) AS a FROM one;

--- an overflow rejects its row
SELECT ms, ms * 9000000000000000 AS a FROM one WHERE ms < 4000;

--- a string that is not a number rejects its row
SELECT ms, CAST(CASE WHEN auction = 3 THEN 'three' ELSE '7' END AS INT) AS a FROM one;
