import sys

import slackwater

session = slackwater.Session()
session.sql(f"""
    CREATE TABLE events (ts_ms BIGINT, k STRING, v BIGINT,
      ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND)
    WITH ('connector' = 'file', 'path' = '{sys.argv[1]}', 'csv.header' = 'true');
    CREATE TABLE sums (start TIMESTAMP(3), k STRING, n BIGINT, s BIGINT)
    WITH ('connector' = 'file', 'path' = '{sys.argv[2]}', 'overwrite' = 'true');
""")
session.execute("""
    INSERT INTO sums SELECT window_start, k, COUNT(*), SUM(v)
    FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, k
""")
