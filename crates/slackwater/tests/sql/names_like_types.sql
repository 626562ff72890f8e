-- Columns that are called like types of Arrow, or like functions, keep their names and mean nothing else.

CREATE TABLE t (ms BIGINT, "Boolean" STRING, "Binary" BIGINT, "first_value_of" BIGINT,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv', 'format' = 'csv');

--- an aggregation names them as they are
-- explain
EXPLAIN SELECT "Boolean", SUM("Binary"), MAX(ABS("Binary")), MIN(CAST("Boolean" AS BIGINT)) FROM t GROUP BY "Boolean";

--- rows don't bring their event time for a column that is called like a function
-- explain
EXPLAIN SELECT "Boolean", COUNT("first_value_of") FROM (SELECT * FROM t WHERE "Binary" > 5 UNION ALL SELECT * FROM t)
GROUP BY "Boolean";

--- they do for FIRST_VALUE
-- explain
EXPLAIN SELECT "Boolean", FIRST_VALUE("Binary") FROM (SELECT * FROM t WHERE "Binary" > 5 UNION ALL SELECT * FROM t)
GROUP BY "Boolean";

--- messages contain the names of SQL types
SELECT "Binary" + "Boolean" * INTERVAL '1' DAY FROM t;

--- and columns where columns are
SELECT t."Binary"."Boolean" FROM t;

--- a condition is of a type
SELECT "Boolean" FROM t WHERE "Binary" + 1;

--- user is a column after a table, in hints, too
SELECT /*+ BROADCAST(b) */ a.user FROM (SELECT "Boolean" AS user, ts FROM t) AS a
JOIN (SELECT "Boolean" AS user, ts FROM t) AS b ON a.user = b.user;

--- and its name is that of the column
-- explain
EXPLAIN SELECT t.user FROM (SELECT "Boolean" AS user FROM t) AS t;
