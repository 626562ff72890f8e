-- Direct grouping: a part of the key says where its rows are processed, and changes no answer.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');
CREATE TABLE people (ms BIGINT, name STRING, city STRING,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'data/people.csv');
CREATE VIEW placed AS SELECT DIRECT(auction) AS place, * FROM bids;

--- the number of a place
SELECT DIRECT(7) AS a, DIRECT(4096) AS b, DIRECT(-1) AS c, DIRECT(CAST(NULL AS INT)) AS d, DIRECT(ms) + 1 AS e FROM bids WHERE ms = 1000;

--- GROUP BY with a window
SELECT window_end, auction, COUNT(*) AS n, SUM(price) AS total FROM TUMBLE(TABLE placed, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, place, auction;

--- GROUP BY without a window
-- last per 1
SELECT auction, COUNT(*) AS n FROM bids GROUP BY DIRECT(auction), auction;

--- as the only column of a key
-- last per 1
SELECT DIRECT(auction) AS place, COUNT(*) AS n FROM bids GROUP BY DIRECT(auction);

--- PARTITION BY
SELECT place, auction, ms, COUNT(*) OVER (PARTITION BY place, auction ORDER BY ts) AS n FROM placed;

--- a session
SELECT window_start, window_end, auction, COUNT(*) AS n
FROM SESSION(TABLE placed PARTITION BY (place, auction), DESCRIPTOR(ts), INTERVAL '3' SECOND)
GROUP BY window_start, window_end, place, auction;

--- DISTINCT
SELECT DISTINCT window_end, place FROM TUMBLE(TABLE placed, DESCRIPTOR(ts), INTERVAL '10' SECOND);

--- an interval join
SELECT b.ms, b.bidder, p.city FROM bids AS b JOIN people AS p
ON b.bidder = p.name AND DIRECT(CHAR_LENGTH(b.bidder)) = DIRECT(CHAR_LENGTH(p.name))
AND b.ts BETWEEN p.ts - INTERVAL '1' HOUR AND p.ts + INTERVAL '1' HOUR;

--- arithmetic with the numbers of places is that of BIGINT
SELECT ms, DIRECT(auction) - DIRECT(5) AS below, DIRECT(-1) * DIRECT(-1) AS product, MIN(DIRECT(auction)) OVER w - MAX(DIRECT(auction)) OVER w AS spread, DIRECT(2) / 4 AS zero
FROM bids WINDOW w AS (ORDER BY ts);

--- a number that is none
SELECT DIRECT('alice') FROM bids;

--- no number
SELECT DIRECT() FROM bids;

--- a fraction
SELECT DIRECT(1.5) FROM bids;
