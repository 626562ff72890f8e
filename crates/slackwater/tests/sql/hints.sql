-- Hints: OPTIONS after the name of a table is obeyed, others are refused.

CREATE TABLE v (id INT, d DECIMAL(12, 3), i INT, b BIGINT, s STRING, x DOUBLE) WITH ('connector' = 'file', 'path' = 'data/empty.csv');
CREATE VIEW w AS SELECT id FROM v;

--- OPTIONS of a table that is read, twice with the same and once with others
SELECT v.id, n.s, o.s AS other FROM v /*+ OPTIONS('path' = 'data/edges.csv') */ JOIN v /*+ OPTIONS('path'='data/edges.csv') */ AS n ON v.id = n.id
  LEFT JOIN v /*+ OPTIONS('path' = 'data/edges.csv', 'csv.null' = 'x') */ o ON o.id = v.id WHERE v.id < 3;

--- in a view and in a window function
CREATE VIEW far AS SELECT id, TO_TIMESTAMP_LTZ(id, 0) AS ts FROM v /*+ OPTIONS('path' = 'data/edges.csv') */;
CREATE TABLE e (id INT, w STRING, ts AS TO_TIMESTAMP_LTZ(id, 3), WATERMARK FOR ts AS ts) WITH ('connector' = 'file', 'path' = 'data/empty.csv');
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE e /*+ OPTIONS('path' = 'data/short.csv', 'on_error' = 'fail') */, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end
UNION ALL SELECT ts, id FROM far WHERE id = 4;

--- of a table that is written
CREATE TABLE o (id INT) WITH ('connector' = 'file', 'path' = 'out/o.csv');
INSERT INTO o /*+ OPTIONS('path' = 'out/p.csv', 'csv.header' = 'true') */ SELECT id FROM v /*+ OPTIONS('path' = 'data/edges.csv') */;

--- an ordinary comment is one
SELECT /* STATE_TTL('v' = '1 d') */ id FROM v /* + OPTIONS('path' = 'data/edges.csv') */ WHERE id > 0;

--- state_ttl
SELECT /*+ STATE_TTL('v' = '1d') */ id, COUNT(*) FROM v GROUP BY id;

--- how to join
SELECT /*+ SHUFFLE_HASH(v) */ id FROM v;

--- how to look up
SELECT id FROM v /*+ LOOKUP('table' = 'v', 'async' = 'true') */;

--- an unknown hint
SELECT id FROM v /*+ FAST */;

--- an option that is not known
SELECT id FROM v /*+ OPTIONS('pathh' = 'data/edges.csv') */;

--- another connector
SELECT id FROM v /*+ OPTIONS('connector' = 'tcp') */;

--- no pairs
SELECT id FROM v /*+ OPTIONS('path') */;

--- after the alias
SELECT id FROM v AS n /*+ OPTIONS('path' = 'data/edges.csv') */;

--- of a view
SELECT id FROM w /*+ OPTIONS('path' = 'data/edges.csv') */;

--- after SELECT
SELECT /*+ OPTIONS('path' = 'data/edges.csv') */ id FROM v;

--- a subquery of its own
SELECT /*+ SUBQUERY */ id, id * 2 AS twice FROM v /*+ OPTIONS('path' = 'data/edges.csv') */ WHERE id > 0;

--- of an alias, with a name, before and after what keeps state
SELECT /*+ SUBQUERY('counted') */ c.twice, c.n FROM (SELECT /*+ SUBQUERY */ n.id * 2 AS twice, COUNT(*) AS n
  FROM v /*+ OPTIONS('path' = 'data/edges.csv') */ AS n GROUP BY n.id) AS c WHERE c.twice > 2;

--- of windows
CREATE TABLE e (id INT, w STRING, ts AS TO_TIMESTAMP_LTZ(id, 3), WATERMARK FOR ts AS ts) WITH ('connector' = 'file', 'path' = 'data/short.csv');
SELECT /*+ SUBQUERY('windows') */ window_start, COUNT(*) AS n FROM TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end;

--- of the first rows of each key
SELECT /*+ SUBQUERY */ id, s FROM (SELECT id, s, ROW_NUMBER() OVER (PARTITION BY id ORDER BY s) AS n FROM v /*+ OPTIONS('path' = 'data/edges.csv') */) WHERE n <= 1;

--- beside options
SELECT /*+ subquery */ v.id FROM v /*+ OPTIONS('path' = 'data/edges.csv') */ WHERE v.id < 3;

--- a subquery in the middle of a SELECT
SELECT id, /*+ SUBQUERY */ s FROM v;

--- a subquery after a table
SELECT id FROM v /*+ SUBQUERY */;

--- a subquery with two names
SELECT /*+ SUBQUERY('a', 'b') */ id FROM v;

--- a join is a subquery
SELECT /*+ SUBQUERY */ a.id FROM v AS a JOIN v AS b ON a.id = b.id;

--- nothing to begin with
SELECT /*+ SUBQUERY */ 1;
