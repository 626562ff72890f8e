-- A source and an operator of this example's own: the ticks of three partitions, and where they change.

CREATE TABLE ticks (part INT, n BIGINT, ms BIGINT,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'custom', 'name' = 'ticks');

SELECT part, ts, old, new
FROM changes(TABLE (SELECT part, n / 250 AS quarter, ts FROM ticks) PARTITION BY part ORDER BY ts,
  DESCRIPTOR(quarter));
