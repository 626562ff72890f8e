-- Event times of different precisions in one query.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms * 1000 + 1, 6), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

CREATE VIEW b AS SELECT * FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND);
CREATE VIEW p AS SELECT * FROM TUMBLE(TABLE people, DESCRIPTOR(ts), INTERVAL '10' SECOND);

--- a union next to a statement that needs event times
CREATE TABLE names (k STRING, ms BIGINT) WITH ('connector' = 'file', 'path' = 'out/names.csv');
CREATE TABLE first (k STRING, ms BIGINT) WITH ('connector' = 'file', 'path' = 'out/first.csv');
INSERT INTO names SELECT bidder, ms FROM bids UNION ALL SELECT name, ms FROM people;
INSERT INTO first SELECT name, FIRST_VALUE(ms) FROM TUMBLE(TABLE people, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
GROUP BY window_start, window_end, name;

--- windows of a union have the finer precision
SELECT window_start, window_end, window_time, COUNT(*) AS n, FIRST_VALUE(k) AS first
FROM TUMBLE(TABLE (SELECT bidder AS k, ts FROM bids UNION ALL SELECT name, ts FROM people), DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, window_time;

--- a union of windows
SELECT window_start, COUNT(*) AS n FROM (SELECT window_start FROM b UNION ALL SELECT window_start FROM p) GROUP BY window_start;

--- OVER a union
SELECT k, ts, COUNT(*) OVER (ORDER BY ts) AS n FROM (SELECT bidder AS k, ts FROM bids UNION ALL SELECT name, ts FROM people);

--- a join over the same window
SELECT b.bidder, b.ms, p.city FROM b LEFT JOIN p
ON b.bidder = p.name AND b.window_start = p.window_start AND b.window_end = p.window_end;

--- a join over the same window alone, by USING
SELECT b.ms AS bid, p.ms AS person FROM b JOIN p USING (window_start, window_end);

--- a join over the same window keeps it
-- explain
EXPLAIN SELECT b.window_end, COUNT(*) AS n FROM b JOIN p ON b.window_end = p.window_end AND b.bidder = p.name
GROUP BY b.window_start, b.window_end;

--- EXISTS and NOT EXISTS in the same window
SELECT ms, bidder, 'yes' AS is_known FROM b WHERE EXISTS (SELECT 1 FROM p WHERE p.window_end = b.window_end AND p.name = b.bidder)
UNION ALL
SELECT ms, bidder, 'no' FROM b WHERE NOT EXISTS (SELECT 1 FROM p WHERE p.window_end = b.window_end AND p.name = b.bidder);

--- edges in two precisions
SELECT s, window_end, COUNT(*) AS n FROM (SELECT CAST(window_start AS TIMESTAMP(6)) AS s, window_end FROM b) GROUP BY s, window_end;

--- a join in an interval: a microsecond counts
SELECT b.ms AS bid, p.ms AS person FROM bids AS b JOIN people AS p ON b.ts BETWEEN p.ts AND p.ts + INTERVAL '0.5' SECOND
WHERE b.bidder IS NOT NULL;

--- a time that is cast to a coarser one is another time, and no bound of an interval
SELECT b.ms AS bid, p.ms AS person FROM bids AS b JOIN people AS p
ON CAST(p.ts AS TIMESTAMP(0)) BETWEEN b.ts - INTERVAL '1' SECOND AND b.ts;

--- a version as of a coarser time
CREATE TABLE cities (ms BIGINT, name STRING, city STRING, ts AS TO_TIMESTAMP_LTZ(ms * 1000 + 1, 6),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND, PRIMARY KEY (name) NOT ENFORCED)
WITH ('connector' = 'file', 'path' = 'data/people.csv');
SELECT b.ms, b.bidder, c.city FROM bids AS b LEFT JOIN cities FOR SYSTEM_TIME AS OF b.ts AS c ON b.bidder = c.name;
