-- The hint BROADCAST: every instance of an interval join gets all rows of one side.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');

CREATE TABLE ends (ms BIGINT, name STRING, town STRING) WITH ('connector' = 'file', 'path' = 'data/people.csv');

--- the right side, with equal keys
SELECT /*+ BROADCAST(p) */ b.ms, b.bidder, p.ms, p.city FROM bids AS b JOIN people AS p
ON b.bidder = p.name AND b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND;

--- the left side, without equal keys, by demand
SET 'order' = 'none';
SELECT /*+ BROADCAST(people) */ b.ms, b.bidder, people.ms, people.city FROM people JOIN bids AS b
ON b.ts BETWEEN people.ts - INTERVAL '5' SECOND AND people.ts + INTERVAL '10' SECOND AND b.bidder <> people.name;

--- a table with itself, with equal times
SELECT /*+ broadcast('o') */ b.ms, o.ms, o.bidder FROM bids AS b JOIN bids AS o
ON b.auction = o.auction AND b.ts = o.ts;

--- a subquery, in a view, and the first table of three
CREATE VIEW near AS SELECT /*+ BROADCAST(n) */ n.ms AS of_person, b.ms AS of_bid, b.bidder, b.ts
FROM (SELECT ms, name, ts FROM people WHERE city = 'Oslo') AS n
JOIN bids AS b ON b.ts BETWEEN n.ts - INTERVAL '5' SECOND AND n.ts + INTERVAL '10' SECOND
JOIN ends AS e ON e.name = b.bidder;
SELECT of_person, of_bid, bidder FROM near WHERE bidder <> 'carol';

--- in a windowed aggregate
SELECT window_end, COUNT(*) AS n FROM TUMBLE((SELECT /*+ BROADCAST(p) */ b.ts FROM bids AS b JOIN people AS p
  ON b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND), DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end;

--- a table that ends is in every instance anyway
SELECT /*+ BROADCAST(e) */ b.ms, e.town FROM bids AS b JOIN ends AS e ON b.bidder = e.name;

--- it is explained
-- explain
EXPLAIN SELECT /*+ BROADCAST(p) */ b.ms, p.city FROM bids AS b JOIN people AS p
ON b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND;

--- the side beside a table that ends
SELECT /*+ BROADCAST(b) */ b.ms, e.town FROM bids AS b JOIN ends AS e ON b.bidder = e.name;

--- rows of the other side without a partner
SELECT /*+ BROADCAST(p) */ b.ms, b.bidder, p.ms, p.city FROM bids AS b LEFT JOIN people AS p
ON b.bidder = p.name AND b.ts BETWEEN p.ts - INTERVAL '1' SECOND AND p.ts + INTERVAL '2' SECOND;

--- rows of the right side without a partner
SELECT /*+ BROADCAST(b) */ b.ms, p.ms, p.city FROM bids AS b RIGHT JOIN people AS p
ON b.bidder = p.name AND b.ts BETWEEN p.ts - INTERVAL '1' SECOND AND p.ts + INTERVAL '2' SECOND;

--- rows that have a partner
SELECT /*+ BROADCAST(p) */ b.ms, b.bidder FROM bids AS b LEFT SEMI JOIN people AS p
ON b.bidder = p.name AND b.ts BETWEEN p.ts - INTERVAL '1' SECOND AND p.ts + INTERVAL '2' SECOND;

--- rows that have none
SELECT /*+ BROADCAST(p) */ b.ms, b.bidder FROM bids AS b LEFT ANTI JOIN people AS p
ON b.bidder = p.name AND b.price > 3 AND b.ts BETWEEN p.ts - INTERVAL '1' SECOND AND p.ts + INTERVAL '2' SECOND;

--- the side that is padded
SELECT /*+ BROADCAST(b) */ b.ms, p.city FROM bids AS b LEFT JOIN people AS p
ON b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND;

--- both sides are padded
SELECT /*+ BROADCAST(p) */ b.ms, p.city FROM bids AS b FULL JOIN people AS p
ON b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND;

--- the side of which rows are emitted if they have a partner
SELECT /*+ BROADCAST(b) */ b.ms FROM bids AS b LEFT SEMI JOIN people AS p
ON b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND;

--- no interval
SELECT /*+ BROADCAST(p) */ b.ms, p.city FROM bids AS b JOIN people AS p ON b.bidder = p.name;

--- a join of windows
SELECT /*+ BROADCAST(q) */ b.ms, q.city FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) AS b
JOIN TUMBLE(TABLE people, DESCRIPTOR(ts), INTERVAL '10' SECOND) AS q
ON b.window_start = q.window_start AND b.window_end = q.window_end;

--- both sides
SELECT /*+ BROADCAST(b, p) */ b.ms, p.city FROM bids AS b JOIN people AS p
ON b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND;

--- an unknown table
SELECT /*+ BROADCAST(people) */ b.ms, p.city FROM bids AS b JOIN people AS p
ON b.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts + INTERVAL '10' SECOND;

--- no join
SELECT /*+ BROADCAST(bids) */ ms FROM bids;

--- no ON
SELECT /*+ BROADCAST(p) */ b.ms, p.city FROM bids AS b CROSS JOIN people AS p;

--- ON of one side
SELECT /*+ BROADCAST(p) */ b.ms, p.city FROM bids AS b JOIN people AS p ON b.price > 3;

--- no name
SELECT /*+ BROADCAST */ b.ms FROM bids AS b;

--- with another hint in one comment
SELECT /*+ BROADCAST(p), OPTIONS('path' = 'x') */ b.ms FROM bids AS b;

--- not after SELECT
SELECT b.ms FROM bids /*+ BROADCAST(bids) */ AS b;

--- the function that stands for it
SELECT b.ms FROM bids AS b WHERE broadcasts_side('b', '1:1 1:1', b.ms);

--- of a table with options
SELECT /*+ BROADCAST(people) */ b.ms, people.ms FROM bids AS b JOIN people /*+ OPTIONS('on_error' = 'fail') */
ON b.bidder = people.name AND b.ts = people.ts + INTERVAL '0.5' SECOND;

--- a hint in a subquery in a condition
SELECT ms FROM bids WHERE auction IN (SELECT /*+ BROADCAST(p) */ b.auction FROM bids AS b JOIN people AS p
ON b.ts BETWEEN p.ts - INTERVAL '1' SECOND AND p.ts + INTERVAL '1' SECOND);
