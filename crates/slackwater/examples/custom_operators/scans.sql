-- A scan matcher of this example's own. Run it in this folder: the two files are beside it.
-- The odometry of r1 tells 3 degrees too much each second, that of r2 2.5 too little.

CREATE TABLE scans (
  ms BIGINT, robot STRING, ranges ARRAY<DOUBLE>,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'file', 'path' = 'scans.jsonl', 'format' = 'json');

CREATE TABLE odometry (
  ms BIGINT, robot STRING, turn DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'file', 'path' = 'odometry.jsonl', 'format' = 'json');

SELECT robot, ts, heading, drift
FROM match_scans(TABLE scans PARTITION BY robot ORDER BY ts, TABLE odometry PARTITION BY robot ORDER BY ts);
