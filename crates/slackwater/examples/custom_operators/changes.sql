-- Operators of this example's own, over generated visits: those of a rectangle, and when the duration of an
-- address's visits changes by more than five minutes.

CREATE TABLE visits (
  ts_ms BIGINT, ip STRING, url STRING, duration INT,
  ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '20000');

CREATE VIEW changed AS
SELECT * FROM changes(TABLE visits PARTITION BY ip ORDER BY ts, DESCRIPTOR(duration), least => 5);

-- Event time goes on: windows come after the operator.
SELECT window_start, COUNT(*) AS changes
FROM TUMBLE(TABLE changed, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end;
