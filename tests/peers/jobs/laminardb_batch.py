import csv
import sys
from datetime import datetime

import laminardb

EPOCH = datetime(1970, 1, 1)
ROWS, QUIET_MS = 1000, 3000
# The watermark counts before the rows of its batch, so the delay has to be longer than a batch is: 10 s.
connection = laminardb.open(":memory:")
connection.execute("""
    CREATE SOURCE events (ts_ms BIGINT, k VARCHAR, v BIGINT,
      WATERMARK FOR ts_ms AS ts_ms - INTERVAL '20' SECOND)
""")
connection.execute("""
    CREATE STREAM sums AS
    SELECT TUMBLE(ts_ms, INTERVAL '10' SECOND) AS start, k, COUNT(*) AS n, SUM(v) AS s
    FROM events GROUP BY k, TUMBLE(ts_ms, INTERVAL '10' SECOND) EMIT ON WINDOW CLOSE
""")
connection.start()
results = connection.subscribe_stream("sums")
out = open(sys.argv[2], "w", encoding="utf-8")


def read(wait_ms):
    """Writes the results that come until there was none for so long."""
    while True:
        try:
            found = results.next_timeout(wait_ms)
        except laminardb.SubscriptionError:
            return
        for start, k, n, s in found.fetchall() if found else ():
            out.write(f"{round((start - EPOCH).total_seconds() * 1000)},{k},{n},{s}\n")


with open(sys.argv[1], encoding="utf-8") as file, connection.writer("events") as writer:
    rows, newest = [], 0
    for row in csv.DictReader(file):
        rows.append({"ts_ms": int(row["ts_ms"]), "k": row["k"], "v": int(row["v"])})
        if len(rows) == ROWS:
            writer.insert(rows)
            writer.flush()
            newest = max(newest, max(one["ts_ms"] for one in rows))
            rows = []
            read(1)
    if rows:
        writer.insert(rows)
        writer.flush()
        newest = max(newest, max(one["ts_ms"] for one in rows))
        read(QUIET_MS)
    # A row that is later than all windows closes them; its own is not closed.
    writer.insert([{"ts_ms": newest + 3_600_000, "k": "", "v": 0}])
    writer.flush()
    read(QUIET_MS)
out.close()
connection.close()
