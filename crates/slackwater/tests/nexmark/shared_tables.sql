-- The tables of the reference data, as those of the examples.
CREATE TABLE events (
  type STRING,
  e ROW<id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING,
        item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, expires BIGINT, seller BIGINT,
        category BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time BIGINT,
        extra STRING>,
  dateTime AS TO_TIMESTAMP_LTZ(e.date_time, 3),
  WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND
) WITH (${OPTIONS});

CREATE VIEW person AS
SELECT e.id AS id, e.name AS name, e.email_address AS emailAddress, e.credit_card AS creditCard, e.city AS city,
       e.state AS state, dateTime, e.extra AS extra
FROM events WHERE type = 'person';

CREATE VIEW auction AS
SELECT e.id AS id, e.item_name AS itemName, e.description AS description, e.initial_bid AS initialBid,
       e.reserve AS reserve, dateTime, TO_TIMESTAMP_LTZ(e.expires, 3) AS expires, e.seller AS seller,
       e.category AS category, e.extra AS extra
FROM events WHERE type = 'auction';

CREATE VIEW bid AS
SELECT e.auction AS auction, e.bidder AS bidder, e.price AS price, e.channel AS channel, e.url AS url, dateTime,
       e.extra AS extra
FROM events WHERE type = 'bid';
