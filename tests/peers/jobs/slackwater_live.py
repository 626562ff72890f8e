import os
import threading
from datetime import datetime, timedelta

import slackwater
from pace import Pace

EPOCH = datetime(1970, 1, 1)
pace = Pace()
session = slackwater.Session(latency_target=os.environ.get("LATENCY_TARGET"))
events = session.table("events", {"ts": "TIMESTAMP(3)", "k": "STRING", "v": "BIGINT"}, event_time="ts")
query = session.sql("""
    SELECT window_start, k, COUNT(*) AS n, SUM(v) AS s
    FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, k
""")


def push():
    for rows in pace.rows():
        events.push([(EPOCH + timedelta(milliseconds=at), key, value) for at, key, value in rows])
    events.close()


pusher = threading.Thread(target=push)
with query.start() as run:
    pusher.start()
    for batch in run:
        for start in set(batch["window_start"].to_pylist()):
            pace.result((start - EPOCH) / timedelta(milliseconds=1))
pusher.join()
pace.report()
