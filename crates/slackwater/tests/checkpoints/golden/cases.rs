//! The queries: at least one for each kind of state, and for each way of reading and writing files.

use super::{Case, End};

/// One file that grows, of rows with what each does.
const CHANGES: &str = "'connector' = 'file', 'path' = 'out.csv', 'changelog' = 'op'";

/// A folder of parts.
const PARTS: &str = "'connector' = 'file', 'path' = 'out'";

/// Rows by primary key.
const PRINT: &str = "'connector' = 'print'";

const fn case(name: &'static str, columns: &'static str, sql: &'static str) -> Case {
    Case {
        name,
        set: "",
        columns,
        sink: CHANGES,
        sql,
        end: End::Stopped,
    }
}

pub const CASES: &[Case] = &[
    case(
        "window-aggregate",
        "w BIGINT, k INT, n BIGINT, s DOUBLE, x INT",
        "SELECT CAST(window_start AS BIGINT), k, COUNT(*), SUM(v), FIRST_VALUE(id)
FROM HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '4' SECOND)
GROUP BY window_start, window_end, k",
    ),
    Case {
        end: End::StoppedLater,
        ..case(
        "window-functions",
        "w BIGINT, u STRING, a DOUBLE, m DOUBLE, x DOUBLE, y DOUBLE, d BIGINT, l INT, p DOUBLE,
  r DOUBLE, f BIGINT",
        "SELECT CAST(window_end AS BIGINT), UPPER(g), AVG(v), MIN(v), MAX(v), stddev(v), COUNT(DISTINCT k),
  LAST_VALUE(id) IGNORE NULLS, median(v), corr(v, id), COUNT(*) FILTER (WHERE v + 1 > 2)
FROM CUMULATE(TABLE a, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' SECOND)
GROUP BY window_start, window_end, UPPER(g)",
    )
    },
    Case {
        set: "SET 'emit' = 'every 5 ms';",
        ..case(
            "refiring-aggregate",
            "w BIGINT, k INT, n BIGINT, s DOUBLE",
            "SELECT CAST(window_start AS BIGINT), k, COUNT(*), SUM(v)
FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '4' SECOND) GROUP BY window_start, window_end, k",
        )
    },
    case(
        "aggregate-with-before",
        "k INT, n BIGINT, s DOUBLE, m DOUBLE",
        "SELECT k, COUNT(*), SUM(v), MAX(v) FROM a GROUP BY k",
    ),
    Case {
        sink: PRINT,
        ..case(
            "running-aggregate",
            "g STRING, n BIGINT, s BIGINT, PRIMARY KEY (g) NOT ENFORCED",
            "SELECT g, COUNT(*), SUM(id) FROM a GROUP BY g",
        )
    },
    Case {
        end: End::StoppedLater,
        ..case(
        "updating-aggregate",
        "n BIGINT, c BIGINT, m INT, l INT, d BIGINT",
        "SELECT n, COUNT(*), MIN(k), MAX(k), COUNT(DISTINCT k)
FROM (SELECT k, COUNT(*) AS n FROM a GROUP BY k) GROUP BY n",
    )
    },
    Case {
        set: "SET 'state_ttl' = '1 h';",
        ..case(
            "aggregate-with-retention",
            "k INT, n BIGINT",
            "SELECT k, COUNT(*) FROM a GROUP BY k",
        )
    },
    case(
        "session-aggregate",
        "w BIGINT, e BIGINT, k INT, n BIGINT, x INT",
        "SELECT CAST(window_start AS BIGINT), CAST(window_end AS BIGINT), k, COUNT(*), LAST_VALUE(id)
FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '2' SECOND)
GROUP BY window_start, window_end, k",
    ),
    case(
        "session-rows",
        "w BIGINT, e BIGINT, id INT",
        "SELECT CAST(window_start AS BIGINT), CAST(window_end AS BIGINT), id
FROM SESSION(TABLE a PARTITION BY g, DESCRIPTOR(ts), INTERVAL '1' SECOND)",
    ),
    case(
        "count-window",
        "w BIGINT, k INT, n BIGINT, s BIGINT",
        "SELECT window_number, k, COUNT(*), SUM(id)
FROM COUNT_WINDOW(TABLE a PARTITION BY k, DESCRIPTOR(ts), 3, 4)
GROUP BY window_start, window_end, window_number, k",
    ),
    case(
        "window-join",
        "x INT, y INT",
        "SELECT a.id, b.id FROM (SELECT * FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '2' SECOND)) a
FULL JOIN (SELECT * FROM TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '2' SECOND)) b
ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.k = b.k",
    ),
    case(
        "window-join-without-keys",
        "x INT, y INT",
        "SELECT a.id, b.id FROM (SELECT * FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '2' SECOND)) a
JOIN (SELECT * FROM TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '2' SECOND)) b
ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.v < b.v - 40",
    ),
    case(
        "interval-join",
        "x INT, y INT",
        "SELECT a.id, b.id FROM a FULL JOIN b
ON a.k = b.k AND b.ts > a.ts - INTERVAL '0.5' SECOND AND b.ts <= a.ts + INTERVAL '1' SECOND",
    ),
    Case {
        end: End::StoppedLater,
        ..case(
            "interval-join-with-broadcast",
            "x INT, y INT",
            "SELECT /*+ BROADCAST(b) */ a.id, b.id FROM a LEFT JOIN b
ON a.k = b.k AND b.ts > a.ts - INTERVAL '0.5' SECOND AND b.ts <= a.ts + INTERVAL '1' SECOND",
        )
    },
    case(
        "temporal-join",
        "x INT, y INT",
        "SELECT a.id, b.id FROM a LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k",
    ),
    Case {
        end: End::StoppedLater,
        ..case(
        "stream-join",
        "x INT, y INT",
        "SELECT a.id, b.id FROM a FULL JOIN b ON a.k = b.k AND a.g = b.g",
    )
    },
    case(
        "stream-semi-join",
        "x INT",
        "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND a.g = b.g)",
    ),
    case(
        "over",
        "id INT, s BIGINT, n BIGINT, r BIGINT, l INT",
        "SELECT id, SUM(id) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW),
  COUNT(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW),
  ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts), LAG(id, 2) OVER (PARTITION BY k ORDER BY ts) FROM a",
    ),
    case(
        "top",
        "k INT, id INT, r BIGINT",
        "SELECT k, id, CAST(r AS BIGINT) FROM (
  SELECT k, id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, id) AS r FROM a) WHERE r <= 2",
    ),
    case(
        "top-of-updates",
        "k INT, n BIGINT",
        "SELECT k, n FROM (SELECT k, n, ROW_NUMBER() OVER (ORDER BY n DESC, k) AS r
  FROM (SELECT k, COUNT(*) AS n FROM a GROUP BY k)) WHERE r <= 3",
    ),
    case(
        "window-top",
        "w BIGINT, k INT, id INT",
        "SELECT CAST(window_start AS BIGINT), k, id FROM (
  SELECT window_start, window_end, k, id,
    ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY v DESC, id) AS r
  FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '4' SECOND)) WHERE r <= 2",
    ),
    Case {
        sink: PRINT,
        ..case(
            "primary-key",
            "g STRING, id INT, PRIMARY KEY (g) NOT ENFORCED",
            "SELECT g, MAX(id) FROM a GROUP BY g, k",
        )
    },
    Case {
        set: "SET 'emit' = 'final';",
        ..case(
            "final-aggregate",
            "k INT, n BIGINT",
            "SELECT k, COUNT(*) FROM a GROUP BY k",
        )
    },
    case(
        "final-rows",
        "id INT, v DOUBLE",
        "SELECT id, v FROM a ORDER BY v, id LIMIT 30 OFFSET 3",
    ),
    Case {
        sink: PARTS,
        ..case(
            "folder-of-parts",
            "id INT, k INT, w INT",
            "SELECT both.id, both.k, t.w FROM both JOIN t ON both.k = t.k",
        )
    },
    Case {
        sink: PARTS,
        end: End::Killed,
        ..case(
            "uncommitted-part",
            "id INT, k INT",
            "SELECT id, k FROM a WHERE k IS NOT NULL",
        )
    },
    Case {
        sink: "'connector' = 'file', 'path' = 'out.csv'",
        ..case(
            "growing-file",
            "id INT, k INT, v DOUBLE",
            "SELECT id, k, v FROM both",
        )
    },
    Case {
        set: "CREATE AGGREGATE FUNCTION total(n INT) RETURNS BIGINT LANGUAGE python AS $$
class total:
    def __init__(self):
        self.sum = 0
    def accumulate(self, n):
        self.sum += n
    def merge(self, other):
        self.sum += other.sum
    def finish(self):
        return self.sum
$$;",
        ..case(
            "python-aggregate",
            "k INT, s BIGINT",
            "SELECT k, total(id) FROM a GROUP BY k",
        )
    },
    Case {
        end: End::StoppedLater,
        ..case(
            "custom-operator",
            "k INT, ms BIGINT, old DOUBLE, new DOUBLE",
            "SELECT k, CAST(ts AS BIGINT), old, new FROM changes(TABLE a PARTITION BY k ORDER BY ts,
DESCRIPTOR(v), 5, silence => INTERVAL '1.5' SECOND)",
        )
    },
    Case {
        end: End::StoppedLater,
        ..case(
            "custom-operator-of-updates",
            "c BIGINT, n BIGINT, total BIGINT",
            "SELECT c, n, total FROM totals(TABLE (SELECT k, COUNT(*) AS c, SUM(id) AS s FROM a GROUP BY k)
PARTITION BY c, DESCRIPTOR(s))",
        )
    },
    Case {
        end: End::StoppedLater,
        sink: PRINT,
        ..case(
            "view",
            "k INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED",
            "SELECT COALESCE(k, 0), COUNT(*) FROM a GROUP BY COALESCE(k, 0);
CREATE MATERIALIZED VIEW kept AS SELECT k, COUNT(*) AS n, MAX(v) AS m FROM a GROUP BY k",
        )
    },
];
