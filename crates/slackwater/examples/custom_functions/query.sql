-- Functions of this example's own, over generated visits.

CREATE TABLE visits (
  ts_ms BIGINT, ip STRING, url STRING, duration INT,
  ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '100000');

SELECT window_start, COUNT(*) AS visits, SUM(count_char(url, 'a')) AS letters_a,
  WEIGHTED_AVERAGE(duration, CHAR_LENGTH(url)) AS duration, LONGEST(url) AS longest
FROM TUMBLE(TABLE visits, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end;
