//! The query that `slackwater --help` shows.

pub(super) const EXAMPLE: &str = "\
A first query (hello.sql):

  CREATE TABLE visits (ts_ms BIGINT, ip STRING,
    ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
  WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '100000');

  SELECT window_start, COUNT(*) AS visits, COUNT(DISTINCT ip) AS visitors
  FROM TUMBLE(TABLE visits, DESCRIPTOR(ts), INTERVAL '10' SECOND)
  GROUP BY window_start, window_end;

  slackwater run hello.sql

Exit code: 0 when the query finished (or was stopped by Ctrl-C or --duration), 1 when it failed,
2 when the command line or the SQL is wrong.";
