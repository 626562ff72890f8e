//! Expressions and sums that fail, and keys that are NULL.

use crate::process::Folder;

use super::{EVENTS, reading, refused};

#[test]
fn an_expression_that_fails_rejects_its_row_only() {
    let lines = "2147483647,9223372036854775807,0,12\n-2147483648,-9223372036854775808,-1,300\n6,4,2,1\n8,2,4,x\n";
    let folder = Folder::with(&[("in.csv", lines)]);
    // What comes out, and the lines that are refused with what their reasons say.
    type Case<'a> = (&'a str, &'a str, &'a [(u32, &'a str)]);
    let cases: &[Case<'_>] = &[
        ("a + 1", "2147483648 -2147483647 7 9", &[]),
        ("b + a", "10 10", &[(1, "verflow"), (2, "verflow")]),
        ("a + a", "12 16", &[(1, "verflow"), (2, "verflow")]),
        ("b - 1", "9223372036854775806 3 1", &[(2, "verflow")]),
        ("b * a", "24 16", &[(1, "verflow"), (2, "verflow")]),
        ("-b", "-9223372036854775807 -4 -2", &[(2, "verflow")]),
        ("- a", "-2147483647 -6 -8", &[(2, "verflow")]),
        ("a / c", "3 2", &[(1, "zero"), (2, "verflow")]),
        ("b % c", "0 0 2", &[(1, "zero")]),
        (
            "a / 0",
            "",
            &[(1, "zero"), (2, "zero"), (3, "zero"), (4, "zero")],
        ),
        ("CAST(d AS INT)", "12 300 1", &[(4, "'x'")]),
        ("CAST(d AS TINYINT)", "12 1", &[(2, "'300'"), (4, "'x'")]),
        (
            "CAST(a AS SMALLINT)",
            "6 8",
            &[(1, "2147483647"), (2, "-2147483648")],
        ),
        (
            "CAST(b AS DECIMAL(3, 1))",
            "4.0 2.0",
            &[(1, "9223372036854775807"), (2, "-9223372036854775808")],
        ),
        (
            "CAST(CAST(b AS DOUBLE) AS INT)",
            "4 2",
            &[(1, "9.22337203"), (2, "-9.22337203")],
        ),
        ("ABS(a)", "2147483647 6 8", &[(2, "verflow")]),
        (
            "CAST(TO_TIMESTAMP_LTZ(b, 3) AS STRING) > ''",
            "true true",
            &[(1, "9223372036854775807"), (2, "-9223372036854775808")],
        ),
        (
            "COALESCE(CASE WHEN c > 0 THEN a / c END, 0)",
            "0 0 3 2",
            &[],
        ),
        // A function that panics where its argument is negative.
        (
            "CHAR_LENGTH(LPAD(d, c))",
            "0 2 4",
            &[(2, "can't be computed: capacity overflow")],
        ),
    ];
    for (expression, expected, expected_refused) in cases {
        let text = reading(
            "a INT, b BIGINT, c INT, d STRING",
            "",
            "x STRING",
            &format!("SELECT {expression} FROM t"),
        );
        for (parallelism, chunk_rows) in [("1", "8192"), ("2", "3")] {
            let set = format!("chunk_rows={chunk_rows}");
            folder
                .run(&text, &["--parallelism", parallelism, "--set", &set])
                .ok();
            let found = folder.read("out.csv").lines().collect::<Vec<_>>().join(" ");
            assert_eq!(&found, expected, "{expression}");
            let refused = if expected_refused.is_empty() {
                vec![]
            } else {
                refused(&folder)
            };
            assert_eq!(
                refused.len(),
                expected_refused.len(),
                "{expression}: {refused:?}"
            );
            let mut refused = refused;
            refused.sort();
            for (refused, (line, part)) in refused.iter().zip(*expected_refused) {
                assert!(
                    refused.starts_with(&format!("in.csv:{line}: ")),
                    "{expression}: {refused}"
                );
                assert!(refused.contains(part), "{expression}: {refused}");
                for internal in ["@", "Int64", "Int32", "Utf8", "Decimal128", "error: "] {
                    assert!(!refused.contains(internal), "{expression}: {refused}");
                }
            }
            let report = folder.json("report.json");
            assert_eq!(report["rows_bad"], expected_refused.len(), "{expression}");
            assert_eq!(report["rows_in"], 4);
            std::fs::remove_file(folder.path("out.csv")).unwrap();
            let _ = std::fs::remove_dir_all(folder.path("slackwater-dead-letter"));
        }
    }
}

#[test]
fn a_condition_that_fails_rejects_its_row_only() {
    let folder = Folder::with(&[("in.csv", "6,2\n1,0\n9,3\n2147483647,1\n")]);
    let text = reading(
        "a INT, b INT",
        "",
        "a INT",
        "SELECT a FROM t WHERE a / b >= 3 AND a * 2 < 100",
    );
    folder.run(&text, &[]).ok();
    assert_eq!(folder.read("out.csv"), "6\n9\n");
    let refused = refused(&folder);
    assert!(
        refused[0].starts_with("in.csv:2: ") && refused[0].contains("zero"),
        "{refused:?}"
    );
}

#[test]
fn constants_that_overflow_are_refused_before_anything_runs() {
    let folder = Folder::with(&[("in.csv", "1\n")]);
    for constant in [
        "9223372036854775807 + 1",
        "4611686018427387904 * 2",
        "-9223372036854775807 - 2",
        "2 * (9223372036854775807 + 1)",
    ] {
        for query in [
            format!("SELECT {constant} FROM t"),
            format!("SELECT n FROM t WHERE n < {constant}"),
        ] {
            let text = reading("n BIGINT", "", "n BIGINT", &query);
            folder
                .run(&text, &[])
                .fails(2, &["query.sql:3:", "verflow", "use a constant that fits"]);
        }
    }
    let text = reading(
        "n BIGINT",
        "",
        "n BIGINT",
        "SELECT n + 9223372036854775806 FROM t",
    );
    folder.run(&text, &[]).ok();
    assert_eq!(folder.read("out.csv"), "9223372036854775807\n");
}

#[test]
fn a_computed_column_that_fails_rejects_its_record() {
    let folder = Folder::with(&[("in.csv", "1,0\n6,2\n")]);
    folder
        .run(
            &reading("a INT, b INT, c AS a / b", "", "c INT", "SELECT c FROM t"),
            &[],
        )
        .ok();
    assert_eq!(folder.read("out.csv"), "3\n");
    assert!(refused(&folder)[0].starts_with("in.csv:1: "));
}

#[test]
fn a_sum_that_overflows_refuses_its_key_only() {
    let most = i64::MAX;
    // Over the limit and back again is no overflow: the order of rows must not matter.
    let lines =
        format!("{most},big\n1,small\n1,big\n{most},back\n{most},back\n-{most},back\n2,small\n");
    let folder = Folder::with(&[("in.csv", &lines.replace('\n', ",1000\n"))]);
    let columns =
        "n BIGINT, k STRING, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts";
    let query = "SELECT k, SUM(n) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
                 GROUP BY window_start, window_end, k";
    for parallelism in ["1", "2"] {
        let text = reading(columns, "", "k STRING, n BIGINT", query);
        let finished = folder.run(&text, &["--parallelism", parallelism]).ok();
        assert_eq!(
            folder.sorted("out.csv"),
            [format!("back,{most}"), "small,3".to_string()]
        );
        assert_eq!(folder.json("report.json")["rows_bad"], 1);
        let letters = folder.json_lines("slackwater-dead-letter/query.jsonl");
        let reason = letters[0]["reason"].as_str().unwrap();
        assert_eq!(
            reason,
            "SUM overflows: 9223372036854775808 needs more than 64 bits"
        );
        assert!(
            letters[0]["record"].as_str().unwrap().contains("k=big"),
            "{letters:?}"
        );
        assert!(
            finished
                .err
                .contains("1 kept in slackwater-dead-letter/query.jsonl")
        );
        std::fs::remove_file(folder.path("out.csv")).unwrap();
        std::fs::remove_dir_all(folder.path("slackwater-dead-letter")).unwrap();
    }
}

#[test]
fn rows_without_a_key_are_a_group_of_their_own_and_join_nothing() {
    let folder = Folder::with(&[("in.csv", "1000,a\n1100,\n1200,\n1300,\"\"\n1400,a\n")]);
    let windowed = "SELECT k, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
                    GROUP BY window_start, window_end, k";
    let running = "SELECT k, COUNT(*) FROM t GROUP BY k";
    let join = "SELECT l.k, l.ms * 10000 + r.ms
        FROM (SELECT * FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) l
        JOIN (SELECT * FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) r
        ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end
        WHERE l.ms < r.ms";
    for parallelism in ["1", "2", "4"] {
        let run = |query: &str| {
            let text = reading(EVENTS, "", "k STRING, n BIGINT", query);
            folder.run(&text, &["--parallelism", parallelism]).ok();
            let rows = folder.sorted("out.csv");
            std::fs::remove_file(folder.path("out.csv")).unwrap();
            rows
        };
        // The empty text is a value, and NULL is none.
        assert_eq!(run(windowed), ["\"\",1", ",2", "a,2"]);
        assert_eq!(run(running), ["\"\",1", ",2", "a,2"]);
        assert_eq!(run(join), ["a,10001400"]);
    }
}
