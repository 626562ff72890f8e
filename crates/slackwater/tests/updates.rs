//! Running aggregates: updates per key, merged or one per row, and units of work.

use crate::support::{last_per_key, lines, run_text};

fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn counting(folder: &std::path::Path, options: &str) -> String {
    let path = folder.display();
    format!(
        "CREATE TABLE words (word STRING) WITH ('connector' = 'file', 'path' = '{path}/*.txt', 'format' = \
         'raw' {options});
         CREATE TABLE out (word STRING, n BIGINT)
         WITH ('connector' = 'file', 'path' = '{path}/out.csv', 'csv.header' = 'true', 'overwrite' = 'true');
         INSERT INTO out SELECT word, COUNT(*) FROM words GROUP BY word;"
    )
}

#[test]
fn every_row_gives_one_update_per_input_row_in_order() {
    let folder = folder_with(&[("a.txt", "x\ny\nx\nx\ny\n")]);
    for (parallelism, chunk_rows) in [("1", "8192"), ("1", "2"), ("2", "3")] {
        let settings = [
            ("emit", "every_row"),
            ("parallelism", parallelism),
            ("chunk_rows", chunk_rows),
        ];
        run_text(&counting(folder.path(), ""), &settings).unwrap();
        let found = lines(&folder.path().join("out.csv"));
        let rows_of = |word: &str| -> Vec<String> {
            found
                .iter()
                .filter(|row| row.starts_with(word))
                .cloned()
                .collect()
        };
        assert_eq!(rows_of("x"), ["x,1", "x,2", "x,3"]);
        assert_eq!(rows_of("y"), ["y,1", "y,2"]);
    }
}

#[test]
fn changes_within_a_chunk_are_merged() {
    let folder = folder_with(&[("a.txt", "x\ny\nx\nx\ny\n")]);
    run_text(&counting(folder.path(), ""), &[]).unwrap();
    assert_eq!(lines(&folder.path().join("out.csv")), ["x,3", "y,2"]);
    run_text(&counting(folder.path(), ""), &[("chunk_rows", "2")]).unwrap();
    let found = lines(&folder.path().join("out.csv"));
    assert_eq!(last_per_key(&found, ','), ["x,3", "y,2"]);
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn a_unit_of_work_begins_with_empty_state() {
    let folder = folder_with(&[
        ("a.txt", "x\nx\ny\n"),
        ("b.txt", "x\n"),
        ("c.txt", ""),
        ("d.txt", "y\ny\n"),
    ]);
    for parallelism in ["1", "3"] {
        let settings = [("parallelism", parallelism)];
        run_text(
            &counting(folder.path(), ", 'unit_of_work' = 'file'"),
            &settings,
        )
        .unwrap();
        let mut found = lines(&folder.path().join("out.csv"));
        found.sort();
        assert_eq!(found, ["x,1", "x,2", "y,1", "y,2"]);
    }
}

#[test]
fn a_unit_of_work_closes_its_windows_and_resets_watermarks() {
    // The second file is older than the first: nothing in it is late.
    let folder = folder_with(&[
        ("a.csv", "20000,x\n21000,x\n"),
        ("b.csv", "1000,x\n2000,y\n"),
    ]);
    let path = folder.path().display();
    let text = format!(
        "CREATE TABLE events (ms BIGINT, k STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
         WITH ('connector' = 'file', 'path' = '{path}/?.csv', 'unit_of_work' = 'file');
         CREATE TABLE out (start BIGINT, n BIGINT)
         WITH ('connector' = 'file', 'path' = '{path}/result.csv', 'csv.header' = 'true', 'overwrite' = \
         'true');
         INSERT INTO out SELECT CAST(window_start AS BIGINT), COUNT(*)
         FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;"
    );
    for parallelism in ["1", "2"] {
        let report = run_text(&text, &[("parallelism", parallelism)]).unwrap();
        assert_eq!(report.rows_late, 0);
        assert_eq!(lines(&folder.path().join("result.csv")), ["20000,2", "0,2"]);
    }
}

#[test]
fn statements_of_one_file_share_their_source() {
    let folder = folder_with(&[("a.txt", "x\ny\nx\n")]);
    let path = folder.path().display();
    let text = format!(
        "CREATE TABLE words (word STRING) WITH ('connector' = 'file', 'path' = '{path}/a.txt', 'format' = \
         'raw');
         CREATE TABLE xs (word STRING) WITH ('connector' = 'file', 'path' = '{path}/xs.csv', 'csv.header' = \
         'true');
         CREATE TABLE ys (word STRING) WITH ('connector' = 'file', 'path' = '{path}/ys.csv', 'csv.header' = \
         'true');
         CREATE TABLE counts (word STRING, n BIGINT) WITH ('connector' = 'file', 'path' = '{path}/n.csv', \
         'csv.header' = 'true');
         INSERT INTO xs SELECT word FROM words WHERE word = 'x';
         INSERT INTO ys SELECT word FROM words WHERE word = 'y';
         INSERT INTO counts SELECT word, COUNT(*) FROM words GROUP BY word;"
    );
    let report = run_text(&text, &[]).unwrap();
    assert_eq!(report.rows_in, 3, "the file is read once");
    assert_eq!(report.sources.len(), 1);
    assert_eq!(
        report
            .sinks
            .iter()
            .map(|sink| sink.rows_out)
            .collect::<Vec<_>>(),
        [2, 1, 2]
    );
    assert_eq!(lines(&folder.path().join("ys.csv")), ["y"]);
}

#[test]
fn a_running_distinct_emits_each_value_once() {
    let folder = folder_with(&[("a.txt", "x\ny\nx\nx\ny\nz\n")]);
    let path = folder.path().display();
    let text = format!(
        "CREATE TABLE words (word STRING) WITH ('connector' = 'file', 'path' = '{path}/a.txt', 'format' = \
         'raw');
         CREATE TABLE out (word STRING)
         WITH ('connector' = 'file', 'path' = '{path}/out.csv', 'csv.header' = 'true', 'overwrite' = 'true');
         INSERT INTO out SELECT DISTINCT word FROM words;"
    );
    for emit in ["changes", "every_row"] {
        run_text(&text, &[("chunk_rows", "2"), ("emit", emit)]).unwrap();
        assert_eq!(lines(&folder.path().join("out.csv")), ["x", "y", "z"]);
    }
}

#[test]
fn a_row_column_that_is_selected_whole_keeps_all_its_fields() {
    let folder = folder_with(&[(
        "a.jsonl",
        "{\"a\":{\"x\":1,\"y\":\"p\"}}\n{\"a\":{\"x\":0,\"y\":\"q\"}}\n",
    )]);
    let path = folder.path().display();
    let declared = format!(
        "CREATE TABLE j (a ROW<x INT, y STRING>, x2 AS a.x * 2)
         WITH ('connector' = 'file', 'path' = '{path}/a.jsonl', 'format' = 'json');
         CREATE TABLE out (a ROW<x INT, y STRING>)
         WITH ('connector' = 'file', 'path' = '{path}/out.jsonl', 'format' = 'json', 'overwrite' = 'true');"
    );
    for query in [
        "SELECT a FROM j WHERE a.x > 0",
        "SELECT a FROM j WHERE x2 > 0",
        "SELECT a FROM (SELECT a FROM j WHERE a.x > 0) UNION ALL SELECT a FROM j WHERE a.x > 5",
    ] {
        run_text(&format!("{declared} INSERT INTO out {query};"), &[]).unwrap();
        let found = std::fs::read_to_string(folder.path().join("out.jsonl")).unwrap();
        assert_eq!(found, "{\"a\":{\"x\":1,\"y\":\"p\"}}\n", "{query}");
    }
}

#[test]
fn what_keeps_rows_for_ever_says_so_and_state_ttl_ends_it() {
    let tables = "CREATE TABLE l (ts TIMESTAMP(3), k STRING, v INT, WATERMARK FOR ts AS ts)
                    WITH ('connector' = 'stdin', 'format' = 'csv');
                  CREATE TABLE r (ts TIMESTAMP(3), k STRING, v INT, WATERMARK FOR ts AS ts)
                    WITH ('connector' = 'file', 'path' = 'tests/sql/data/people.csv');
                  CREATE TABLE by_n (n BIGINT PRIMARY KEY NOT ENFORCED) WITH ('connector' = 'blackhole');";
    let in_an_interval = "EXISTS (SELECT 1 FROM r WHERE r.k = l.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL \
                          '1' HOUR)";
    let cases = [
        (
            "SELECT v FROM l WHERE k IN (SELECT k FROM r)".to_string(),
            Some("all different rows of the right side, forever (semi: k = k)"),
        ),
        (
            "SELECT v FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k AND r.v > l.v)"
                .to_string(),
            Some("keeps all rows of both sides forever (anti: k = k and v > v)"),
        ),
        (format!("SELECT v FROM l WHERE {in_an_interval}"), None),
        (format!("SELECT v FROM l WHERE NOT {in_an_interval}"), None),
        (
            "INSERT INTO by_n SELECT n FROM (SELECT v, COUNT(*) AS n FROM l GROUP BY v)"
                .to_string(),
            Some("by other columns than PRIMARY KEY (n)"),
        ),
    ];
    for (query, expected) in cases {
        let warnings = |settings: &str| {
            let text = format!("{tables}{settings}{query};");
            slackwater_sql::compile(&text, &[], &slackwater::catalog::BuiltIn)
                .map(|compiled| compiled.run.warnings)
                .unwrap_or_else(|error| panic!("{}", error.render("query", &text)))
        };
        let said = warnings("").join("\n");
        match expected {
            Some(expected) => assert!(said.contains(expected), "{query}: {said}"),
            None => assert_eq!(said, "", "{query}"),
        }
        assert_eq!(warnings("SET 'state_ttl' = '1 d';"), [""; 0], "{query}");
    }
}
