import threading
from datetime import datetime

import laminardb
from pace import Pace

EPOCH = datetime(1970, 1, 1)
pace = Pace()
connection = laminardb.open(":memory:")
connection.execute("""
    CREATE SOURCE events (ts_ms BIGINT, k VARCHAR, v BIGINT,
      WATERMARK FOR ts_ms AS ts_ms - INTERVAL '0' SECOND)
""")
connection.execute("""
    CREATE STREAM sums AS
    SELECT TUMBLE(ts_ms, INTERVAL '10' SECOND) AS start, k, COUNT(*) AS n, SUM(v) AS s
    FROM events GROUP BY k, TUMBLE(ts_ms, INTERVAL '10' SECOND) EMIT ON WINDOW CLOSE
""")
connection.start()
results = connection.subscribe_stream("sums")


def push():
    with connection.writer("events") as writer:
        for rows in pace.rows():
            writer.insert([{"ts_ms": at, "k": key, "v": value} for at, key, value in rows])
            writer.flush()


pusher = threading.Thread(target=push)
pusher.start()
while True:
    try:
        found = results.next_timeout(1000)
    except laminardb.SubscriptionError:
        if not pusher.is_alive():
            break
        continue
    for row in found.fetchall() if found else ():
        pace.result((row[0] - EPOCH).total_seconds() * 1000)
pusher.join()
pace.report()
connection.close()
