-- The events of an auction site, generated (Nexmark).
SET 'latency_target' = '5 ms';
SET 'checkpoint_interval' = '500 ms';

CREATE TABLE events (
  event_type INT,
  person ROW<dateTime TIMESTAMP(3)>,
  auction ROW<dateTime TIMESTAMP(3)>,
  bid ROW<auction BIGINT, price BIGINT, dateTime TIMESTAMP(3)>,
  ts AS COALESCE(bid.dateTime, auction.dateTime, person.dateTime),
  WATERMARK FOR ts AS ts - INTERVAL '500' MILLISECOND
) WITH ('connector' = 'datagen', 'generator' = 'nexmark', 'disorder' = '500 ms', ${EVENTS});
