//! The queries: at least one for each operator that keeps state, and for each of its forms.

/// A query over the streams `a` and `b` (ms, id, k, g, v, ts) and the table `t` (k, w).
#[derive(Clone, Copy)]
pub struct Query {
    /// Settings.
    pub set: &'static str,
    /// The columns of what it writes.
    pub columns: &'static str,
    pub sql: &'static str,
    /// To a table that keeps one row for each primary key; else to a changelog.
    pub is_printed: bool,
}

const fn query(columns: &'static str, sql: &'static str) -> Query {
    Query {
        set: "",
        columns,
        sql,
        is_printed: false,
    }
}

const fn set(set: &'static str, columns: &'static str, sql: &'static str) -> Query {
    Query {
        set,
        ..query(columns, sql)
    }
}

/// Windows, sessions, count windows, OVER, and the first rows of windows.
pub const WINDOWS: &[Query] = &[
    query(
        "w BIGINT, k INT, n BIGINT, s DOUBLE, x INT",
        "SELECT CAST(window_start AS BIGINT), k, COUNT(*), SUM(v), FIRST_VALUE(id)
         FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY window_start, window_end, k",
    ),
    query(
        "w BIGINT, n BIGINT, d BIGINT, s DOUBLE",
        "SELECT CAST(window_end AS BIGINT), COUNT(*), COUNT(DISTINCT g), SUM(DISTINCT v)
         FROM HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '3' SECOND) GROUP BY window_start, \
         window_end",
    ),
    query(
        "w BIGINT, g STRING, m DOUBLE, x DOUBLE",
        "SELECT CAST(window_end AS BIGINT), g, MAX(v), median(v)
         FROM CUMULATE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '4' SECOND)
         GROUP BY window_start, window_end, g",
    ),
    query(
        "w BIGINT, e BIGINT, k INT, n BIGINT, x INT",
        "SELECT CAST(window_start AS BIGINT), CAST(window_end AS BIGINT), k, COUNT(*), LAST_VALUE(id)
         FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY window_start, \
         window_end, k",
    ),
    query(
        "w BIGINT, n BIGINT, s BIGINT",
        "SELECT CAST(window_start AS BIGINT), COUNT(*), SUM(id)
         FROM SESSION(TABLE a, DESCRIPTOR(ts), INTERVAL '0.2' SECOND) GROUP BY window_start, window_end",
    ),
    query(
        "w BIGINT, e BIGINT, id INT",
        "SELECT CAST(window_start AS BIGINT), CAST(window_end AS BIGINT), id
         FROM SESSION(TABLE a PARTITION BY g, DESCRIPTOR(ts), INTERVAL '0.5' SECOND)",
    ),
    query(
        "w BIGINT, e BIGINT, id INT",
        "SELECT CAST(window_start AS BIGINT), CAST(window_end AS BIGINT), id
         FROM SESSION(TABLE a, DESCRIPTOR(ts), INTERVAL '0.2' SECOND)",
    ),
    query(
        "w BIGINT, k INT, n BIGINT, s BIGINT",
        "SELECT window_number, k, COUNT(*), SUM(id)
         FROM COUNT_WINDOW(TABLE a PARTITION BY k, DESCRIPTOR(ts), 3) GROUP BY window_start, window_end, \
         window_number, k",
    ),
    query(
        "w BIGINT, id INT",
        "SELECT window_number, id FROM COUNT_WINDOW(TABLE a, DESCRIPTOR(ts), 2, 3)",
    ),
    set(
        "SET 'emit' = 'every 5 ms';",
        "w BIGINT, k INT, n BIGINT, s DOUBLE",
        "SELECT CAST(window_start AS BIGINT), k, COUNT(*), SUM(v)
         FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '3' SECOND) GROUP BY window_start, window_end, k",
    ),
    set(
        "SET 'emit' = 'every 5 ms';",
        "w BIGINT, x DOUBLE",
        "SELECT CAST(window_start AS BIGINT), var_pop(v)
         FROM HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '4' SECOND) GROUP BY window_start, \
         window_end",
    ),
    query(
        "id INT, s BIGINT, l INT",
        "SELECT id, SUM(id) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW),
         LAG(id, 2) OVER (PARTITION BY k ORDER BY ts) FROM a",
    ),
    query(
        "id INT, n BIGINT, s DOUBLE",
        "SELECT id, COUNT(*) OVER (PARTITION BY g ORDER BY ts),
         SUM(v) OVER (PARTITION BY g ORDER BY ts RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT \
         ROW) FROM a",
    ),
    query(
        "id INT, n BIGINT, x DOUBLE",
        "SELECT id, ROW_NUMBER() OVER (ORDER BY ts), AVG(v) OVER (ORDER BY ts) FROM a",
    ),
    query(
        "w BIGINT, k INT, id INT, r BIGINT",
        "SELECT CAST(window_start AS BIGINT), k, id, CAST(r AS BIGINT) FROM (
           SELECT window_start, window_end, k, id,
             ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY v DESC) AS r
           FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '2' SECOND)) WHERE r <= 2",
    ),
    query(
        "w BIGINT, id INT",
        "SELECT CAST(window_start AS BIGINT), id FROM (
           SELECT window_start, window_end, id,
             ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v) AS r
           FROM HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '2' SECOND)) WHERE r <= 3",
    ),
];

/// Joins: in windows, in intervals, with versions, with tables, and of streams.
pub const JOINS: &[Query] = &[
    query(
        "x INT, y INT",
        "SELECT a.id, b.id FROM (SELECT * FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '2' SECOND)) a
         JOIN (SELECT * FROM TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '2' SECOND)) b
         ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.k = b.k",
    ),
    query(
        "x INT, y INT",
        "SELECT a.id, b.id FROM (SELECT * FROM HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL \
         '3' SECOND)) a
         JOIN (SELECT * FROM HOP(TABLE b, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '3' SECOND)) b
         ON a.window_start = b.window_start AND a.window_end = b.window_end",
    ),
    query(
        "x INT, y INT",
        "SELECT a.id, b.id FROM (SELECT * FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND)) a
         LEFT JOIN (SELECT * FROM TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '1' SECOND)) b
         ON a.window_start = b.window_start AND a.v < b.v",
    ),
    query(
        "x INT, y INT",
        "SELECT a.id, b.id
         FROM (SELECT * FROM CUMULATE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '3' SECOND)) a
         FULL JOIN (SELECT * FROM CUMULATE(TABLE b, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '3' \
         SECOND)) b
         ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.id < b.id",
    ),
    query(
        "x INT, y INT",
        "SELECT a.id, b.id FROM (SELECT * FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '2' SECOND)) a
         FULL JOIN (SELECT * FROM TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '2' SECOND)) b
         ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.k = b.k AND a.g = b.g",
    ),
    query(
        "x INT",
        "SELECT id FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND) AS a WHERE EXISTS (
           SELECT 1 FROM TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '1' SECOND) AS b
           WHERE a.window_start = b.window_start AND a.window_end = b.window_end AND b.v > a.v)",
    ),
    query(
        "x INT",
        "SELECT id FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '2' SECOND) AS a WHERE NOT EXISTS (
           SELECT 1 FROM TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '2' SECOND) AS b
           WHERE a.window_start = b.window_start AND a.window_end = b.window_end AND a.k = b.k)",
    ),
    query(
        "x INT, y INT",
        "SELECT a.id, b.id FROM a FULL JOIN b
         ON a.k = b.k AND b.ts > a.ts - INTERVAL '0.5' SECOND AND b.ts <= a.ts + INTERVAL '1' SECOND",
    ),
    query(
        "x INT, y INT",
        "SELECT a.id, b.id FROM a LEFT JOIN b
         ON b.ts BETWEEN a.ts - INTERVAL '0.2' SECOND AND a.ts + INTERVAL '0.2' SECOND AND a.v < b.v",
    ),
    set(
        "SET 'order' = 'none';",
        "x INT, y INT",
        "SELECT /*+ BROADCAST(b) */ a.id, b.id FROM a JOIN b
         ON b.ts BETWEEN a.ts - INTERVAL '0.2' SECOND AND a.ts + INTERVAL '0.2' SECOND AND a.v < b.v",
    ),
    query(
        "x INT, y INT",
        "SELECT /*+ BROADCAST(a) */ a.k, b.id FROM a JOIN b
         ON a.k = b.k AND b.ts > a.ts - INTERVAL '0.5' SECOND AND b.ts <= a.ts + INTERVAL '1' SECOND",
    ),
    query(
        "x INT",
        "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b
         WHERE a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts + INTERVAL '1' SECOND)",
    ),
    query(
        "x INT",
        "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b
         WHERE b.v > a.v AND b.ts BETWEEN a.ts - INTERVAL '0.5' SECOND AND a.ts + INTERVAL '0.5' SECOND)",
    ),
    query(
        "x INT, y INT",
        "SELECT a.id, b.id FROM a LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k",
    ),
    query("x INT, w INT", "SELECT a.id, t.w FROM a JOIN t ON a.k = t.k"),
    query(
        "x INT, n BIGINT",
        "SELECT id, COUNT(*) FROM (SELECT id, k FROM a UNION ALL SELECT id, k FROM b) GROUP BY id",
    ),
    query(
        "x INT, y INT",
        "SELECT a.id, b.id FROM a JOIN b ON a.k = b.k",
    ),
    query(
        "x INT, y INT",
        "SELECT a.id, b.id FROM a LEFT JOIN b ON a.k = b.k AND a.v < b.v",
    ),
    query(
        "x INT, y INT",
        "SELECT a.id, b.id FROM a RIGHT JOIN b ON a.k = b.k AND a.g = b.g",
    ),
    query(
        "x INT, y INT",
        "SELECT a.id, b.id FROM a FULL JOIN b ON a.k = b.k",
    ),
    query(
        "x INT, y INT",
        "SELECT a.id, b.id FROM a FULL JOIN b ON a.v < b.v",
    ),
    query(
        "x INT, y INT",
        "SELECT a.id, b.id FROM a FULL JOIN b ON a.v = b.v AND a.g = b.g",
    ),
    query(
        "x INT",
        "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k)",
    ),
    query(
        "x INT",
        "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND b.v > a.v)",
    ),
    query(
        "k INT, n BIGINT, m BIGINT",
        "SELECT COALESCE(x.k, y.k), x.n, y.n FROM (SELECT k, COUNT(*) AS n FROM a GROUP BY k) x
         FULL JOIN (SELECT k, COUNT(*) AS n FROM b WHERE v > 0 GROUP BY k) y ON x.k = y.k",
    ),
];

/// Running aggregates, top-N, and what makes of these rows that are taken back.
pub const CHANGELOGS: &[Query] = &[
    query(
        "k INT, n BIGINT, s DOUBLE, m DOUBLE",
        "SELECT k, COUNT(*), SUM(v), MAX(v) FROM a GROUP BY k",
    ),
    query(
        "n BIGINT, s BIGINT, d BIGINT",
        "SELECT COUNT(*), SUM(id), COUNT(DISTINCT k) FROM a",
    ),
    query("k INT, g STRING", "SELECT DISTINCT k, g FROM a"),
    set(
        "SET 'emit' = 'every_row';",
        "k INT, n BIGINT",
        "SELECT k, COUNT(*) FROM a GROUP BY k",
    ),
    query(
        "n BIGINT, c BIGINT, m INT, l INT",
        "SELECT n, COUNT(*), MIN(k), MAX(k) FROM (SELECT k, COUNT(*) AS n FROM a GROUP BY k) GROUP BY n",
    ),
    query(
        "n BIGINT, s DOUBLE",
        "SELECT COUNT(DISTINCT x), CAST(CAST(AVG(DISTINCT x) AS DECIMAL(12, 6)) AS DOUBLE)
         FROM (SELECT k, regr_avgx(v, id) AS x FROM a GROUP BY k)",
    ),
    query(
        "n BIGINT, m BIGINT, l BIGINT, o BIGINT",
        "SELECT COUNT(DISTINCT x), COUNT(DISTINCT y), COUNT(DISTINCT z), COUNT(DISTINCT w)
         FROM (SELECT k, stddev(v) AS x, corr(v, id) AS y, approx_percentile_cont(0.3) WITHIN GROUP (ORDER \
         BY v) AS z,
           SUM(DISTINCT v) AS w FROM a GROUP BY k)",
    ),
    query(
        "g STRING, n BIGINT",
        "SELECT g, COUNT(*) FROM a GROUP BY g HAVING COUNT(*) < 20",
    ),
    query(
        "k INT, id INT, r BIGINT",
        "SELECT k, id, CAST(r AS BIGINT) FROM (
           SELECT k, id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM a) WHERE r <= 2",
    ),
    query(
        "id INT",
        "SELECT id FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY v) AS r FROM a) WHERE r <= 5",
    ),
    query(
        "k INT, id INT, v DOUBLE",
        "SELECT k, id, v FROM (
           SELECT k, id, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS r FROM a) WHERE r = 1",
    ),
    query(
        "k INT, n BIGINT",
        "SELECT k, n FROM (SELECT k, n, ROW_NUMBER() OVER (ORDER BY n DESC) AS r
           FROM (SELECT k, COUNT(*) AS n FROM a GROUP BY k)) WHERE r <= 3",
    ),
    set(
        "SET 'state_ttl' = '1 h';",
        "k INT, n BIGINT",
        "SELECT k, COUNT(*) FROM a GROUP BY k",
    ),
    query(
        "k INT, n BIGINT",
        "SELECT k, COUNT(*) AS n FROM a GROUP BY k ORDER BY n DESC, k LIMIT 3",
    ),
    query(
        "id INT, v DOUBLE",
        "SELECT id, v FROM a ORDER BY v, id LIMIT 1000 OFFSET 3",
    ),
    set(
        "SET 'emit' = 'final';",
        "n BIGINT, c BIGINT",
        "SELECT n, COUNT(*) FROM (SELECT k, COUNT(*) AS n FROM a GROUP BY k) GROUP BY n",
    ),
    set(
        "SET 'emit' = 'final';",
        "x INT, y INT",
        "SELECT a.id, b.id FROM a FULL JOIN b ON a.k = b.k AND a.g = b.g",
    ),
    set(
        "SET 'emit' = 'final';",
        "n BIGINT, s BIGINT",
        "SELECT COUNT(*), SUM(x.id) FROM (SELECT a.id FROM a LEFT JOIN b ON a.id = b.k) AS x",
    ),
    Query {
        is_printed: true,
        ..query(
            "g STRING, n BIGINT, s BIGINT, PRIMARY KEY (g) NOT ENFORCED",
            "SELECT g, COUNT(*), SUM(id) FROM a GROUP BY g",
        )
    },
    Query {
        is_printed: true,
        ..query(
            "g STRING, id INT, PRIMARY KEY (g) NOT ENFORCED",
            "SELECT g, MAX(id) FROM a GROUP BY g, k",
        )
    },
    Query {
        is_printed: true,
        ..query(
            "n BIGINT, k INT, PRIMARY KEY (n) NOT ENFORCED",
            "SELECT COUNT(*), COALESCE(k, 0) FROM a GROUP BY k",
        )
    },
    // Their rows are compared, too.
    query(
        "k INT, n BIGINT",
        "SELECT k, COUNT(*) FROM a GROUP BY k;
         CREATE MATERIALIZED VIEW kept AS SELECT k, COUNT(*) AS n, MAX(v) AS m FROM a GROUP BY k",
    ),
    query(
        "id INT",
        "SELECT a.id FROM a JOIN b ON a.k = b.k;
         CREATE MATERIALIZED VIEW kept AS SELECT a.g, b.g AS h FROM a JOIN b ON a.k = b.k",
    ),
    query(
        "n BIGINT",
        "SELECT COUNT(*) FROM a;
         CREATE MATERIALIZED VIEW kept WITH ('retention' = '3 s') AS
           SELECT window_end, k, SUM(v) AS s FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND)
           GROUP BY window_start, window_end, k",
    ),
];

/// Operators of the example that a build adds.
pub const CUSTOM: &[Query] = &[
    query(
        "k INT, ms BIGINT, old DOUBLE, new DOUBLE",
        "SELECT k, CAST(ts AS BIGINT), old, new FROM changes(TABLE a PARTITION BY k ORDER BY ts, \
         DESCRIPTOR(v), 50, silence => INTERVAL '1.5' SECOND)",
    ),
    query(
        "ms BIGINT, old DOUBLE, new DOUBLE",
        "SELECT CAST(ts AS BIGINT), old, new FROM changes(TABLE a ORDER BY ts, DESCRIPTOR(v))",
    ),
    query(
        "w BIGINT, n BIGINT",
        "SELECT CAST(window_start AS BIGINT), COUNT(*) FROM TUMBLE(TABLE (SELECT * FROM changes(TABLE a \
         PARTITION BY (k, g) ORDER BY ts, DESCRIPTOR(v), 20)), DESCRIPTOR(ts), INTERVAL '1' SECOND)
         GROUP BY window_start, window_end",
    ),
    query(
        "g STRING, ms BIGINT, heading DOUBLE, drift DOUBLE",
        "SELECT g, CAST(ts AS BIGINT), heading, drift FROM match_scans(
           TABLE (SELECT g, ts, ARRAY[v, 1.0, CAST(id % 5 AS DOUBLE)] AS ranges FROM a)
           PARTITION BY g ORDER BY ts,
           TABLE (SELECT g, ts, CAST(id AS DOUBLE) AS turn FROM b) PARTITION BY g ORDER BY ts, 130)",
    ),
    query(
        "c BIGINT, n BIGINT, total BIGINT",
        "SELECT * FROM totals(TABLE (SELECT k, COUNT(*) AS c, SUM(id) AS s FROM a GROUP BY k) \
         PARTITION BY c, DESCRIPTOR(s))",
    ),
    query(
        "g STRING, largest DOUBLE",
        "SELECT * FROM largest(TABLE (SELECT k, g, COUNT(*) AS n FROM a GROUP BY k, g) PARTITION BY g, \
         DESCRIPTOR(n), 2)",
    ),
    query(
        "total BIGINT, c BIGINT",
        "SELECT total, COUNT(*) FROM totals(TABLE b PARTITION BY k ORDER BY ts, DESCRIPTOR(id)) \
         GROUP BY total",
    ),
    Query {
        is_printed: true,
        ..query(
            "g STRING, n BIGINT, total BIGINT, PRIMARY KEY (g) NOT ENFORCED",
            "SELECT * FROM totals(TABLE a PARTITION BY g, DESCRIPTOR(id))",
        )
    },
];
