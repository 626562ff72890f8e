//! Operators that are stopped and go on.

use super::*;

/// Joins with a table that ends, with versions of one that changes, of two windowed streams and within an
/// interval; a UNION; and OVER: each stopped again and again, at another parallelism each time.
#[test]
fn joins_and_unions_go_on_where_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, rows: &mut dyn Iterator<Item = String>| {
        let text = rows.collect::<Vec<String>>().join("\n");
        std::fs::write(folder.path().join(name), text + "\n").unwrap();
    };
    let begin = 1_700_000_000_000u64;
    let ms = |row: u64, spread: u64| begin + row * 10 + (row * 7919) % spread;
    write(
        "a.csv",
        &mut (0..4000).map(|row| format!("{},k{},{row}", ms(row, 90), row * row % 41)),
    );
    write(
        "b.csv",
        &mut (0..2000).map(|row| format!("{},k{},{row}", ms(row * 2, 90), row * row % 37)),
    );
    write(
        "t.csv",
        &mut (0..30).map(|row| format!("k{row},{}", row * row)),
    );
    let tables = |folder: &Path, rates: (&str, &str)| {
        let folder = folder.display();
        format!(
            "CREATE TABLE a (ms BIGINT, k STRING, v BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
               WATERMARK FOR ts AS ts - INTERVAL '0.1' SECOND)
             WITH ('connector' = 'file', 'path' = '{folder}/a.csv' {});
             CREATE TABLE b (ms BIGINT, k STRING, v BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
               WATERMARK FOR ts AS ts - INTERVAL '0.1' SECOND)
             WITH ('connector' = 'file', 'path' = '{folder}/b.csv' {});
             CREATE TABLE t (k STRING, w BIGINT)
             WITH ('connector' = 'file', 'path' = '{folder}/t.csv');",
            rates.0, rates.1
        )
    };
    let queries = [
        "SELECT a.ms, a.k, a.v, t.w FROM a JOIN t ON a.k = t.k",
        "SELECT a.ms, a.k, a.v, b.v FROM a LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k",
        "SELECT CAST(x.window_start AS BIGINT), x.k, x.v, y.v
         FROM (SELECT * FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND)) x
         FULL JOIN (SELECT * FROM TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '1' SECOND)) y
         ON x.k = y.k AND x.window_start = y.window_start AND x.window_end = y.window_end",
        "SELECT ms, k, v, v FROM a UNION ALL SELECT ms, k, v, v FROM b",
        "SELECT COALESCE(a.ms, b.ms), COALESCE(a.k, b.k), a.v, b.v FROM a FULL JOIN b
         ON a.k = b.k AND b.ts > a.ts - INTERVAL '0.3' SECOND AND b.ts <= a.ts + INTERVAL '0.2' SECOND",
        "SELECT ms, k, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW),
         LAG(v, 5) OVER (PARTITION BY k ORDER BY ts) FROM a",
        "SELECT ms, k, COUNT(*) OVER (PARTITION BY k ORDER BY ts),
         SUM(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT \
         ROW) FROM a",
    ];
    let mut seeded = crate::support::Seeded(4711);
    for (nth, query) in queries.into_iter().enumerate() {
        let out = |name: String| folder.path().join(name);
        let sink = |out: &Path| {
            format!(
                "CREATE TABLE o (ms BIGINT, k STRING, v BIGINT, w BIGINT)
                 WITH ('connector' = 'file', 'path' = '{}');\nINSERT INTO o {query};",
                out.display()
            )
        };
        let rows_in = |out: &Path| {
            let parts = std::fs::read_dir(out).unwrap();
            let contents = parts.map(|part| std::fs::read_to_string(part.unwrap().path()).unwrap());
            let contents = contents.collect::<String>();
            let mut rows = contents
                .lines()
                .map(str::to_string)
                .collect::<Vec<String>>();
            rows.sort();
            rows
        };
        let whole = out(format!("whole{nth}"));
        let text = tables(folder.path(), ("", "")) + &sink(&whole);
        crate::support::run_text(&text, &[]).unwrap();
        let expected = rows_in(&whole);
        assert!(expected.len() > 1000);
        let saved = out(format!("saved{nth}"));
        let rates = (", 'replay_rate' = '4000'", ", 'replay_rate' = '2000'");
        let text = tables(folder.path(), rates) + &sink(&saved);
        for round in 0..5 {
            let parallelism = 1 + seeded.below(4);
            let processes = 1 + seeded.below(parallelism.min(2));
            let settings = [
                ("checkpoint_interval", "30 ms".to_string()),
                ("parallelism", parallelism.to_string()),
                ("workers", parallelism.to_string()),
                ("processes", processes.to_string()),
                ("chunk_rows", (10 + seeded.below(500)).to_string()),
                ("rebalance", "shuffle".to_string()),
            ];
            let settings = settings.map(|(key, value)| (key.to_string(), value));
            let options = RunOptions {
                settings: settings.to_vec(),
                duration: (round < 4).then(|| Duration::from_millis(100 + seeded.below(150))),
                program: Some(env!("CARGO_BIN_EXE_slackwater").into()),
                state: Some(StateOptions {
                    place: out(format!("state{nth}")).display().to_string(),
                    from_scratch: false,
                    accepts_duplicates: false,
                }),
                ..RunOptions::default()
            };
            match run("test.sql", &text, &options) {
                Ok(Outcome::Finished(_)) => {}
                // A busy host may take longer to store a last checkpoint than a stop may take. Then what came
                // after the one before is read again, and the rows are the same.
                Err(Failure::Query(reason, _))
                    if round < 4 && reason.starts_with("stopped before a last checkpoint") => {}
                other => panic!("{query}, {settings:?}: {other:?}"),
            }
        }
        let found = rows_in(&saved);
        assert!(
            found == expected,
            "{query}: {} rows, {} expected",
            found.len(),
            expected.len()
        );
    }
}
