-- Window table functions: TUMBLE and HOP over tables, views and subqueries.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

CREATE VIEW priced AS SELECT auction, price, ts FROM bids WHERE price IS NOT NULL;

--- TUMBLE
SELECT window_start, window_end, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end;

--- TUMBLE inside TABLE
SELECT window_start, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

--- the short form without TABLE and DESCRIPTOR
SELECT window_start, window_end, COUNT(*) AS n FROM TUMBLE(bids, ts, INTERVAL '10 SECONDS') GROUP BY window_start, window_end;

--- in any case, over several lines
select window_start, count(*) as n
from table( tumble( table bids,
                    descriptor( ts ),
                    interval '10' second ) )
group by window_start, window_end;

--- HOP has the slide first
SELECT window_start, window_end, COUNT(*) AS n
FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY window_start, window_end;

--- HOP with a slide that does not divide the size
SELECT window_start, window_end, COUNT(*) AS n
FROM HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- HOP with gaps between its windows
SELECT window_start, window_end, COUNT(*) AS n
FROM HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '2' SECOND) GROUP BY window_start, window_end;

--- GROUP BY window_start only
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start;

--- GROUP BY window_end only
SELECT window_end, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_end;

--- GROUP BY window_start, window_end and window_time
SELECT window_start, window_end, window_time, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, window_time;

--- GROUP BY in another order than SELECT, by position, and by name of the output
SELECT auction AS item, COUNT(*) AS n, window_end FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_end, 1;

--- a window's edges need not be selected
SELECT COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- rows with their windows, not aggregated
SELECT window_start, window_end, window_time, ts, bidder FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND);

--- SELECT * has the window's columns last
SELECT * FROM HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND) WHERE auction = 3;

--- with an alias
SELECT w.window_start, w.auction, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS w
GROUP BY w.window_start, w.window_end, w.auction;

--- an alias that is a function of a window
SELECT CAST(window_start AS BIGINT) / 1000 AS start_s, EXTRACT(SECOND FROM window_end) AS end_second, COUNT(*) AS n
FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- over a view
SELECT window_start, SUM(price) AS total FROM TUMBLE(TABLE priced, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start;

--- over a view with a renamed event time
CREATE VIEW renamed (item, at) AS SELECT auction, ts FROM bids;
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE renamed, DESCRIPTOR(at), INTERVAL '10' SECOND) GROUP BY window_start;

--- over a subquery
SELECT window_start, MAX(price) AS highest
FROM TUMBLE((SELECT price, ts FROM bids WHERE auction = 1), DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start;

--- inside a subquery with an alias
SELECT w.window_start, MAX(w.price) AS highest
FROM (SELECT * FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) WHERE auction = 1) AS w GROUP BY w.window_start, w.window_end;

--- in a WITH query
WITH w AS (SELECT window_start AS s, window_end AS e, price FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND))
SELECT s, e, MIN(price) AS lowest FROM w GROUP BY s, e;

--- a condition on the window
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
WHERE window_start >= TIMESTAMP '1970-01-01 00:00:10' GROUP BY window_start, window_end;

--- HAVING
SELECT window_start, auction, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, auction HAVING COUNT(*) > 1 AND MAX(price) < 100;

--- DISTINCT of windows
SELECT DISTINCT window_start, auction FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND);

--- windows of minutes, hours and days
SELECT window_start, window_end, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' MINUTE) GROUP BY window_start, window_end
UNION ALL
SELECT window_start, window_end, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, window_end
UNION ALL
SELECT window_start, window_end, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' DAY) GROUP BY window_start, window_end;

--- a window of fractions of a second
SELECT window_start, window_end, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1500' MILLISECOND)
GROUP BY window_start, window_end;

--- intervals in words and in several units
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1 minute 30 seconds') GROUP BY window_start;

--- late rows are dropped and counted
CREATE TABLE strict (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE strict, DESCRIPTOR(ts), INTERVAL '5' SECOND) GROUP BY window_start, window_end;

--- a condition does not change what is late
CREATE TABLE strict (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');
SELECT window_start, COUNT(*) AS n FROM TUMBLE((SELECT * FROM strict WHERE bidder = 'dave'), DESCRIPTOR(ts), INTERVAL '5' SECOND)
GROUP BY window_start, window_end;

--- a row that is late for one of its windows joins the others
CREATE TABLE strict (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');
SELECT window_start, COUNT(*) AS n FROM HOP(TABLE strict, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- a window before 1970
CREATE TABLE old (flag STRING, a STRING, b STRING, c STRING, d STRING, e STRING, f STRING, g STRING, h DATE, i STRING, at TIMESTAMP(3), j STRING, k STRING,
  WATERMARK FOR at AS at - INTERVAL '100000' DAY)
WITH ('connector' = 'file', 'path' = 'data/types.csv');
SELECT window_start, window_end, COUNT(*) AS n FROM TUMBLE(TABLE old, DESCRIPTOR(at), INTERVAL '7' SECOND) GROUP BY window_start, window_end;
