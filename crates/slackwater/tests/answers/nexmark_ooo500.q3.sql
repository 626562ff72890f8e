-- Local item suggestion: who sells in three states in category 10, and which auctions.
CREATE TABLE events (type STRING,
  e ROW<id BIGINT, name STRING, city STRING, state STRING, seller BIGINT, category BIGINT, auction BIGINT,
        bidder BIGINT, price BIGINT, expires BIGINT, date_time BIGINT>,
  ts AS TO_TIMESTAMP_LTZ(e.date_time, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = '${DATA}/nexmark_100k_1000ps_ooo500.jsonl.gz', 'format' = 'json');

CREATE TABLE answer (name STRING, city STRING, state STRING, auction BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true');

CREATE VIEW person AS SELECT e.id AS id, e.name AS name, e.city AS city, e.state AS state FROM events WHERE type = 'person';
CREATE VIEW auction AS SELECT e.id AS id, e.seller AS seller, e.category AS category, ts, TO_TIMESTAMP_LTZ(e.expires, 3) AS expires
FROM events WHERE type = 'auction';

INSERT INTO answer
SELECT P.name, P.city, P.state, A.id
FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'or' OR P.state = 'id' OR P.state = 'ca');
