-- New users: people who opened an auction in the 10 s in which they registered.
CREATE TABLE events (type STRING,
  e ROW<id BIGINT, name STRING, city STRING, state STRING, seller BIGINT, category BIGINT, auction BIGINT,
        bidder BIGINT, price BIGINT, date_time BIGINT>,
  ts AS TO_TIMESTAMP_LTZ(e.date_time, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = '${DATA}/nexmark_100k_1000ps_ooo500.jsonl.gz', 'format' = 'json');

CREATE TABLE answer (id BIGINT, name STRING, window_start_ms BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true');

CREATE VIEW person AS SELECT e.id AS id, e.name AS name, ts FROM events WHERE type = 'person';
CREATE VIEW auction AS SELECT e.seller AS seller, ts FROM events WHERE type = 'auction';

INSERT INTO answer
SELECT P.id, P.name, CAST(P.starttime AS BIGINT)
FROM (
  SELECT id, name, window_start AS starttime, window_end AS endtime
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(ts), INTERVAL '10' SECOND))
  GROUP BY id, name, window_start, window_end
) P
JOIN (
  SELECT seller, window_start AS starttime, window_end AS endtime
  FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(ts), INTERVAL '10' SECOND))
  GROUP BY seller, window_start, window_end
) A
ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime;
