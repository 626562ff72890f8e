//! What comes from outside and is wrong, missing, huge or late: a clear message or a refused row,
//! and never a panic (I4).

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::process::{Folder, PATIENCE, eventually, free_address, gunzip, gzip};

/// `t` reads `in.csv` (or what `options` say), `o` writes `out.csv`.
fn reading(columns: &str, options: &str, written: &str, query: &str) -> String {
    let path = if options.contains("'path'") {
        ""
    } else {
        ", 'path' = 'in.csv'"
    };
    format!(
        "CREATE TABLE t ({columns}) WITH ('connector' = 'file'{path}{options});
         CREATE TABLE o ({written}) WITH ('connector' = 'file', 'path' = 'out.csv');
         INSERT INTO o {query};"
    )
}

const EVENTS: &str = "ms BIGINT, k STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts";

const COUNT_BY_10_S: &str = "SELECT CAST(window_start AS BIGINT), COUNT(*)
    FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end";

/// Reasons of the dead letters of `t`, as `place: reason`.
fn refused(folder: &Folder) -> Vec<String> {
    let letters = folder.json_lines("slackwater-dead-letter/t.jsonl");
    let text = |letter: &serde_json::Value, name: &str| letter[name].as_str().unwrap().to_string();
    letters
        .iter()
        .map(|l| format!("{}: {}", text(l, "place"), text(l, "reason")))
        .collect()
}

// Files

#[test]
fn a_truncated_gzip_file_is_named_with_the_last_line() {
    let lines = (0..50_000).map(|line| format!("{line},text of line {line}\n"));
    let mut packed = gzip(lines.collect::<String>().as_bytes());
    packed.truncate(packed.len() / 2);
    let folder = Folder::new();
    folder.write("in.csv.gz", &packed);
    let text = reading(
        "n INT, s STRING",
        ", 'path' = 'in.csv.gz'",
        "n INT",
        "SELECT n FROM t",
    );
    for parallelism in ["1", "2"] {
        let finished = folder.run(&text, &["--parallelism", parallelism]);
        let parts = [
            "error: in.csv.gz:",
            "the gzip data breaks off after line ",
            "fetch it again",
        ];
        let finished = finished.fails(1, &parts);
        assert!(
            !finished.err.contains("line 0"),
            "what could be read was read: {}",
            finished.err
        );
        assert_eq!(
            folder.names(),
            ["in.csv.gz", "query.sql", "report.json"],
            "no half output"
        );
    }
}

#[test]
fn a_file_that_is_no_gzip_is_named() {
    let folder = Folder::with(&[("in.csv.gz", "1,a\n2,b\n")]);
    let text = reading(
        "n INT, s STRING",
        ", 'path' = 'in.csv.gz'",
        "n INT",
        "SELECT n FROM t",
    );
    folder.run(&text, &[]).fails(1, &["in.csv.gz", "gzip"]);
    // Damaged in the midst.
    let mut packed = gzip("1,a\n".repeat(100_000).as_bytes());
    let middle = packed.len() / 2;
    packed[middle..middle + 8].fill(0xff);
    folder.write("in.csv.gz", &packed);
    folder
        .run(&text, &[])
        .fails(1, &["error: in.csv.gz:", "gzip data"]);
}

#[test]
fn files_that_can_not_be_read_are_named_before_anything_runs() {
    let folder = Folder::with(&[("some.csv", "1,a\n")]);
    std::fs::create_dir(folder.path("folder")).unwrap();
    let read = |path: &str| {
        let options = format!(", 'path' = '{path}'");
        folder.run(
            &reading("n INT, s STRING", &options, "n INT", "SELECT n FROM t"),
            &[],
        )
    };
    let place = ["query.sql:1:", "table 't', option 'path'", "^^^^"];
    let begins = "relative paths begin in ";
    read("some.cvs")
        .fails(2, &place)
        .fails(2, &["some.cvs: No such file", begins]);
    read("no/where.csv")
        .fails(2, &place)
        .fails(2, &["no/where.csv: No such file", begins]);
    read("folder")
        .fails(2, &place)
        .fails(2, &["folder is a folder", "'folder/*'"]);
    read("folder/*.csv")
        .fails(2, &place)
        .fails(2, &["no file matches 'folder/*.csv'", begins]);
    read("some.csv/x")
        .fails(2, &place)
        .fails(2, &["some.csv/x: Not a directory"]);
    read("[").fails(2, &place).fails(2, &["'[' is no pattern"]);
    read("").fails(2, &["option 'path': is missing"]);
    read("/dev/null").fails(2, &["no regular file", "stdin"]);
    assert!(!folder.path("out.csv").exists());
}

#[test]
fn what_may_not_be_read_is_named() {
    let folder = Folder::with(&[("in.csv", "1\n")]);
    std::fs::create_dir(folder.path("closed")).unwrap();
    folder.write("closed/in.csv", b"1\n");
    for name in ["in.csv", "closed"] {
        let nobody = std::fs::Permissions::from_mode(0);
        std::fs::set_permissions(folder.path(name), nobody).unwrap();
    }
    if std::fs::read(folder.path("in.csv")).is_ok() {
        eprintln!("skipped: this user may read everything");
        return;
    }
    let read = |path: &str| {
        let options = format!(", 'path' = '{path}'");
        folder.run(&reading("n INT", &options, "n INT", "SELECT n FROM t"), &[])
    };
    read("in.csv").fails(
        1,
        &[
            "in.csv: can't open the file: Permission denied",
            "permissions",
        ],
    );
    read("closed/in.csv").fails(2, &["closed/in.csv: Permission denied", "permissions"]);
    read("closed/*").fails(2, &["closed"]);
    // The folder can be removed again.
    let open = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(folder.path("closed"), open).unwrap();
}

#[test]
fn an_empty_file_has_no_rows_and_is_no_error() {
    for text in ["", "\n\n", "\r\n", "\u{feff}", "# only a comment\n"] {
        let folder = Folder::with(&[("in.csv", text)]);
        let options = ", 'csv.comment' = '#'";
        folder
            .run(
                &reading(EVENTS, options, "s BIGINT, n BIGINT", COUNT_BY_10_S),
                &[],
            )
            .ok();
        assert_eq!(folder.read("out.csv"), "", "{text:?}");
        let report = folder.json("report.json");
        assert_eq!(
            (&report["rows_in"], &report["rows_bad"]),
            (&0.into(), &0.into()),
            "{text:?}"
        );
    }
    let folder = Folder::with(&[("in.csv", "ms,k\n")]);
    folder.write("empty.csv.gz", &gzip(b""));
    let options = ", 'path' = '*.csv*', 'csv.header' = 'true'";
    folder
        .run(
            &reading(EVENTS, options, "k STRING", "SELECT k FROM t"),
            &[],
        )
        .ok();
    assert_eq!(folder.json("report.json")["rows_in"], 0);
}

#[test]
fn a_glob_reads_all_its_files_and_names_each() {
    let folder = Folder::with(&[
        ("a-1.csv", "1,a\nx,a\n"),
        ("a-2.csv", "\n2,a\ny,a\n"),
        ("b.csv", "3,b\n"),
    ]);
    let text = reading(
        "n INT, k STRING",
        ", 'path' = 'a-?.csv'",
        "n INT, k STRING",
        "SELECT n, k FROM t",
    );
    for parallelism in ["1", "2", "5"] {
        folder.run(&text, &["--parallelism", parallelism]).ok();
        assert_eq!(folder.sorted("out.csv"), ["1,a", "2,a"]);
        let report = folder.json("report.json");
        assert_eq!(
            (&report["rows_in"], &report["rows_bad"]),
            (&4.into(), &2.into())
        );
        let mut refused = refused(&folder);
        refused.sort();
        assert!(
            refused[0].starts_with("a-1.csv:2: column 'n' (INT)"),
            "{refused:?}"
        );
        assert!(
            refused[1].starts_with("a-2.csv:3: column 'n' (INT)"),
            "{refused:?}"
        );
        std::fs::remove_file(folder.path("out.csv")).unwrap();
        std::fs::remove_dir_all(folder.path("slackwater-dead-letter")).unwrap();
    }
    // In braces there is nothing special, and a file may have a name like a pattern.
    folder.write("[a].csv", b"7,c\n");
    folder.run(&text.replace("a-?.csv", "[a].csv"), &[]).ok();
    assert_eq!(folder.sorted("out.csv"), ["7,c"]);
}

#[test]
fn gzip_is_read_and_written() {
    let folder = Folder::new();
    // Two members, as `cat a.gz b.gz` makes them, with a line across.
    let both = [gzip(b"1,a\n2,"), gzip(b"b\n3,c\n")].concat();
    folder.write("in.csv.gz", &both);
    let text = reading(
        "n INT, k STRING",
        ", 'path' = 'in.csv.gz'",
        "k STRING",
        "SELECT k FROM t",
    );
    folder
        .run(&text.replace("'out.csv'", "'out.csv.gz'"), &[])
        .ok();
    assert_eq!(gunzip(&folder.path("out.csv.gz")), "a\nb\nc\n");
    let report = folder.json("report.json");
    assert_eq!(report["sources"][0]["bytes_read"], both.len());
    let again = reading(
        "k STRING",
        ", 'path' = 'out.csv.gz'",
        "k STRING",
        "SELECT k FROM t",
    );
    folder.run(&again, &[]).ok();
    assert_eq!(folder.read("out.csv"), "a\nb\nc\n");
}

#[test]
fn a_paced_file_gives_all_its_rows() {
    let folder = Folder::with(&[("in.csv", &"1,a\nx,b\n2,c\n".repeat(30))]);
    let options = ", 'replay_rate' = '600/s'";
    let finished = folder
        .run(
            &reading(
                "n INT, k STRING",
                options,
                "k STRING",
                "SELECT k FROM t WHERE n > 0",
            ),
            &[],
        )
        .ok();
    assert_eq!(folder.read("out.csv").lines().count(), 60);
    let report = folder.json("report.json");
    assert_eq!(
        (&report["rows_in"], &report["rows_bad"]),
        (&90.into(), &30.into())
    );
    // The last of 60 rows is due 59/600 s after the first.
    assert!(
        finished.took > Duration::from_millis(98),
        "{:?}",
        finished.took
    );
    let wrong = reading(
        "n INT",
        ", 'replay_rate' = 'fast'",
        "n INT",
        "SELECT n FROM t",
    );
    folder.run(&wrong, &[]).fails(
        2,
        &["option 'replay_rate': 'fast' is not a rate", "'10000/s'"],
    );
}

// Records

#[test]
fn a_record_that_does_not_match_the_schema_is_refused_alone() {
    let text = "1,a\n2\n3,c,d\nx,e\n,f\n99999999999,g\n\n4,\"h\ni\"\n5,j";
    let folder = Folder::with(&[("in.csv", text)]);
    let query = reading(
        "n INT, k STRING",
        "",
        "n INT, k STRING",
        "SELECT n, k FROM t",
    );
    for (parallelism, chunk_rows) in [("1", "8192"), ("2", "1")] {
        let set = format!("chunk_rows={chunk_rows}");
        let finished = folder
            .run(&query, &["--parallelism", parallelism, "--set", &set])
            .ok();
        assert_eq!(folder.read("out.csv"), "1,a\n,f\n4,\"h\ni\"\n5,j\n");
        let expected = [
            "in.csv:2: 1 field where 2 are declared",
            "in.csv:3: 3 fields where 2 are declared",
            "in.csv:4: column 'n' (INT): can't read 'x'",
            "in.csv:6: column 'n' (INT): ",
        ];
        for (refused, expected) in refused(&folder).iter().zip(expected) {
            assert!(refused.starts_with(expected), "{refused}");
        }
        let report = folder.json("report.json");
        assert_eq!(
            (&report["rows_in"], &report["rows_bad"]),
            (&8.into(), &4.into())
        );
        let kept = "bad rows   4 kept in slackwater-dead-letter/t.jsonl";
        assert!(finished.err.contains(kept), "{}", finished.err);
        std::fs::remove_file(folder.path("out.csv")).unwrap();
        std::fs::remove_dir_all(folder.path("slackwater-dead-letter")).unwrap();
    }
    // A column that the query does not read need not make sense.
    folder
        .run(
            &reading("n INT, k STRING", "", "k STRING", "SELECT k FROM t"),
            &[],
        )
        .ok();
    assert_eq!(folder.json("report.json")["rows_bad"], 2);
}

#[test]
fn a_json_record_that_does_not_match_the_schema_is_refused_alone() {
    let lines = [
        r#"{"e": {"price": 1, "k": "a"}}"#,
        r#"{"e": {"price": "x", "k": "b"}}"#,
        r#"{"e": 3}"#,
        r#"{"e": {"price": 4"#,
        r#"[1]"#,
        r#"{"e": {"k": "no price"}}"#,
        r#"{}"#,
    ];
    let folder = Folder::with(&[("in.csv", &lines.join("\n"))]);
    let options = ", 'format' = 'json'";
    let columns = "e ROW<price INT, k STRING>";
    let query = "SELECT t.e.price, t.e.k FROM t";
    folder
        .run(&reading(columns, options, "p INT, k STRING", query), &[])
        .ok();
    assert_eq!(folder.read("out.csv"), "1,a\n,no price\n,\n");
    let refused = refused(&folder);
    assert_eq!(refused.len(), 4, "{refused:?}");
    assert!(
        refused[0].starts_with("in.csv:2: ") && refused[0].contains("e.price"),
        "{refused:?}"
    );
    assert!(
        refused[1].starts_with("in.csv:3: ") && refused[1].contains("'e'"),
        "{refused:?}"
    );
    assert!(refused[2].starts_with("in.csv:4: ") && refused[3].starts_with("in.csv:5: "));
}

#[test]
fn a_record_can_be_told_to_end_the_query() {
    let folder = Folder::with(&[("in.csv", "1,a\n2,b\nx,c\n4,d\n")]);
    let fail = ", 'on_error' = 'fail'";
    let run = |query: &str, parallelism: &str| {
        let text = reading("n INT, k STRING", fail, "n INT, k STRING", query);
        folder.run(&text, &["--parallelism", parallelism])
    };
    for parallelism in ["1", "2"] {
        let parts = [
            "error: in.csv:3: column 'n' (INT): can't read 'x'",
            "'on_error' = 'skip'",
        ];
        run("SELECT n, k FROM t", parallelism).fails(1, &parts);
        // An expression that fails condemns its row, which ends the query in the same way.
        folder.write("in.csv", b"1,a\n0,b\n");
        let parts = ["error: in.csv:2: ", "zero", "'on_error' = 'skip'"];
        run("SELECT 8 / n, k FROM t", parallelism).fails(1, &parts);
        run("SELECT n, k FROM t WHERE 8 / n > 0", parallelism).fails(1, &parts);
        folder.write("in.csv", b"1,a\n2,b\nx,c\n4,d\n");
        assert_eq!(
            folder.names(),
            ["in.csv", "query.sql", "report.json"],
            "nothing half-done"
        );
    }
}

#[test]
fn dead_letters_go_where_they_are_told() {
    let folder = Folder::with(&[("in.csv", "1\nx\n")]);
    let query = "SELECT n FROM t";
    let named = reading(
        "n INT",
        ", 'dead_letter' = 'bad/of t.jsonl'",
        "n INT",
        query,
    );
    let finished = folder.run(&named, &[]).ok();
    assert!(
        finished.err.contains("1 kept in bad/of t.jsonl"),
        "{}",
        finished.err
    );
    let letter = &folder.json_lines("bad/of t.jsonl")[0];
    let expected = [("table", "t"), ("place", "in.csv:2"), ("record", "x")];
    for (name, value) in expected {
        assert_eq!(letter[name], value);
    }
    assert_eq!(
        folder.json("report.json")["sources"][0]["dead_letter"],
        "bad/of t.jsonl"
    );
    assert!(
        !folder
            .names()
            .contains(&"slackwater-dead-letter".to_string())
    );
    // Without bad records there is no file, and nobody speaks of one.
    let folder = Folder::with(&[("in.csv", "1\n")]);
    let finished = folder.run(&named, &[]).ok();
    assert!(!finished.err.contains("bad rows"), "{}", finished.err);
    assert_eq!(
        folder.names(),
        ["in.csv", "out.csv", "query.sql", "report.json"]
    );
    assert!(folder.json("report.json")["sources"][0]["dead_letter"].is_null());
    // A place that can't be written ends the query: nothing is lost in silence.
    let folder = Folder::with(&[("in.csv", "1\nx\n"), ("bad", "a file")]);
    folder.run(&named, &[]).fails(
        1,
        &["bad/of t.jsonl: can't keep a bad record", "'dead_letter'"],
    );
}

#[test]
fn a_line_of_100_megabytes_is_refused_in_bounded_memory() {
    const LINE_BYTES: usize = 100_000_000;
    let folder = Folder::new();
    for (format, first, last) in [
        ("csv", "1,a\n", "\n2,b\n"),
        ("csv", "1,a\n\"", "\"\n2,b\n"),
        ("json", "{\"n\": 1}\n{\"k\": \"", "\"}\n{\"n\": 2}\n"),
    ] {
        let mut file = std::fs::File::create(folder.path("in.csv")).unwrap();
        file.write_all(first.as_bytes()).unwrap();
        let megabyte = vec![b'x'; 1_000_000];
        for _ in 0..LINE_BYTES / megabyte.len() {
            file.write_all(&megabyte).unwrap();
        }
        file.write_all(last.as_bytes()).unwrap();
        drop(file);
        let options = format!(", 'format' = '{format}'");
        let text = reading("n INT, k STRING", &options, "n INT", "SELECT n FROM t");
        folder.run(&text, &[]).ok();
        assert_eq!(folder.read("out.csv"), "1\n2\n", "{format}");
        assert_eq!(
            refused(&folder),
            ["in.csv:2: longer than 16 MiB"],
            "{format}"
        );
        let report = folder.json("report.json");
        assert_eq!(
            (&report["rows_in"], &report["rows_bad"]),
            (&3.into(), &1.into())
        );
        let peak = report["peak_rss_bytes"].as_u64().unwrap();
        // 35 MB for the program itself, 16 MiB of the record, and the block that it outgrew.
        assert!(peak < LINE_BYTES as u64 * 9 / 10, "{format}: {peak} bytes");
        std::fs::remove_file(folder.path("out.csv")).unwrap();
        std::fs::remove_dir_all(folder.path("slackwater-dead-letter")).unwrap();
    }
}

#[test]
fn invalid_utf8_is_refused_where_it_is_read() {
    let folder = Folder::new();
    folder.write("in.csv", b"1,good\n2,b\xffd\n3,\xc3\xa9\n\xff,bad\n");
    let text = reading(
        "n INT, k STRING",
        "",
        "k STRING, n INT",
        "SELECT k, n FROM t",
    );
    folder.run(&text, &[]).ok();
    assert_eq!(folder.read("out.csv"), "good,1\né,3\n");
    let refused = refused(&folder);
    assert!(
        refused[0].starts_with("in.csv:2: column 'k' (STRING)"),
        "{refused:?}"
    );
    assert!(refused[0].contains("UTF-8"), "{refused:?}");
    assert!(
        refused[1].starts_with("in.csv:4: column 'n' (INT)"),
        "{refused:?}"
    );
    let letters = folder.json_lines("slackwater-dead-letter/t.jsonl");
    assert_eq!(letters[0]["record"], "2,b\u{fffd}d");
    std::fs::remove_file(folder.path("out.csv")).unwrap();
    // Not read, not looked at.
    folder
        .run(
            &reading("n STRING, k STRING", "", "n INT", "SELECT 1 FROM t"),
            &[],
        )
        .ok();
    assert_eq!(folder.json("report.json")["rows_bad"], 0);
    for (format, line) in [
        ("json", &b"{\"k\": \"b\xffd\"}\n"[..]),
        ("raw", b"b\xffd\n"),
    ] {
        let folder = Folder::new();
        folder.write("in.csv", line);
        let options = format!(", 'format' = '{format}'");
        folder
            .run(
                &reading("k STRING", &options, "k STRING", "SELECT k FROM t"),
                &[],
            )
            .ok();
        assert_eq!(folder.json("report.json")["rows_bad"], 1, "{format}");
    }
}

#[test]
fn nul_bytes_are_data() {
    let folder = Folder::new();
    folder.write("in.csv", b"1,a\0b\n\0,c\n\0\n2,\0\n");
    let text = reading(
        "n INT, k STRING",
        "",
        "k STRING, length BIGINT",
        "SELECT k, CHAR_LENGTH(k) FROM t WHERE n > 0",
    );
    folder.run(&text, &[]).ok();
    assert_eq!(folder.read("out.csv"), "a\0b,3\n\0,1\n");
    assert_eq!(folder.json("report.json")["rows_bad"], 2);
    // On a terminal they are shown, not sent.
    let print = "CREATE TABLE t (k STRING) WITH ('connector' = 'file', 'path' = 'in.csv', 'format' = 'raw'); SELECT k FROM t;";
    let finished = folder.run(print, &[]).ok();
    assert!(finished.out.contains("1,a\\u{0}b"), "{}", finished.out);
}

// Expressions

#[test]
fn an_expression_that_fails_condemns_its_row_only() {
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
            &[(1, "922337203"), (2, "-922337203")],
        ),
        ("ABS(a)", "2147483647 6 8", &[(2, "verflow")]),
        (
            "TO_TIMESTAMP_LTZ(b, 3) IS NULL",
            "false false",
            &[(1, "9223372036854775807"), (2, "-9223372036854775808")],
        ),
        ("CASE WHEN c > 0 THEN a / c END", "  3 2", &[]),
        // A function that panics.
        (
            "CHAR_LENGTH(LPAD(d, 9223372036854775807 - b + 5, 'x'))",
            "5",
            &[(2, ""), (3, ""), (4, "")],
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
                for internal in ["@", "Int64", "Int32", "Utf8"] {
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
fn a_condition_that_fails_condemns_its_row_only() {
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
                .fails(2, &["query.sql:3:", "verflow", "9223372036854775807"]);
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
fn a_computed_column_that_fails_condemns_its_record() {
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
        assert!(
            reason.contains("SUM overflows BIGINT: 9223372036854775808"),
            "{reason}"
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

// Event time

#[test]
fn a_bad_event_time_moves_no_watermark() {
    // The bad ones would make everything after them late: they have no time, one that can't be
    // read, one far in the future in a record with a bad column, and one out of all range.
    let lines = [
        "1000,1",
        ",1",
        "soon,1",
        "99999999,x",
        "9223372036854775807,1",
        "99999999,1,1",
        "2000,1",
        "12000,1",
        "3000,1",
    ];
    let folder = Folder::with(&[("in.csv", &lines.join("\n"))]);
    let columns = "ms BIGINT, n INT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts";
    let query = "SELECT CAST(window_start AS BIGINT), SUM(n)
        FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end";
    for (parallelism, chunk_rows) in [("1", "8192"), ("2", "1")] {
        let set = format!("chunk_rows={chunk_rows}");
        let text = reading(columns, "", "s BIGINT, n BIGINT", query);
        folder
            .run(&text, &["--parallelism", parallelism, "--set", &set])
            .ok();
        assert_eq!(folder.sorted("out.csv"), ["0,2", "10000,1"]);
        let report = folder.json("report.json");
        assert_eq!(
            (&report["rows_in"], &report["rows_bad"]),
            (&9.into(), &5.into())
        );
        assert_eq!(report["rows_late"], 1, "the last: its window ended at 12 s");
        let mut refused = refused(&folder);
        refused.sort();
        assert!(
            refused[0].starts_with("in.csv:2: event time ts is NULL"),
            "{refused:?}"
        );
        assert!(
            refused[1].starts_with("in.csv:3: column 'ms' (BIGINT)"),
            "{refused:?}"
        );
        assert!(
            refused[2].starts_with("in.csv:4: column 'n' (INT)"),
            "{refused:?}"
        );
        assert!(refused[3].starts_with("in.csv:5: "), "{refused:?}");
        assert!(refused[4].starts_with("in.csv:6: 3 fields"), "{refused:?}");
        std::fs::remove_file(folder.path("out.csv")).unwrap();
        std::fs::remove_dir_all(folder.path("slackwater-dead-letter")).unwrap();
    }
}

#[test]
fn rows_that_a_condition_drops_move_the_watermark() {
    let folder = Folder::with(&[("in.csv", "1000,a\n50000,b\n2000,a\n")]);
    let query = "SELECT CAST(window_start AS BIGINT), COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
        WHERE k = 'a' GROUP BY window_start, window_end";
    folder
        .run(&reading(EVENTS, "", "s BIGINT, n BIGINT", query), &[])
        .ok();
    assert_eq!(folder.read("out.csv"), "0,1\n");
    assert_eq!(folder.json("report.json")["rows_late"], 1);
}

#[test]
fn a_silent_connection_holds_nobody_back_after_its_timeout() {
    for (timeout, parallelism) in [
        (", 'idle_timeout' = '100 ms'", "1"),
        (", 'idle_timeout' = '100 ms'", "2"),
        ("", "1"),
    ] {
        let folder = Folder::new();
        let address = free_address();
        let text = format!(
            "CREATE TABLE t ({EVENTS}) WITH ('connector' = 'tcp', 'address' = '{address}', 'mode' = 'listen'{timeout});
             SELECT k, COUNT(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
             GROUP BY window_start, window_end, k;"
        );
        let running = folder.start(&text, &["--parallelism", parallelism]);
        let connect = || eventually("listener", || TcpStream::connect(&address).ok());
        let mut silent = connect();
        silent.write_all(b"1000,a\n").unwrap();
        let mut busy = connect();
        // Both are partitions before time goes on.
        busy.write_all(b"1500,a\n").unwrap();
        std::thread::sleep(Duration::from_millis(300));
        busy.write_all(b"2000,a\n25000,b\n").unwrap();
        if timeout.is_empty() {
            std::thread::sleep(Duration::from_millis(500));
            running.interrupt();
            assert_eq!(
                running.finish(PATIENCE).ok().out,
                "",
                "it waits for the silent one"
            );
            continue;
        }
        assert_eq!(running.line(), "k  n");
        assert_eq!(running.line(), "a  3");
        // It resumes at the source's watermark: what lies behind that is late.
        silent.write_all(b"3000,late\n26000,b\n").unwrap();
        busy.write_all(b"45000,c\n").unwrap();
        assert_eq!(running.line(), "b  2");
        running.interrupt();
        let finished = running.finish(PATIENCE).ok();
        assert!(finished.err.contains("1 late"), "{}", finished.err);
    }
}

#[test]
fn a_silent_table_does_not_hold_back_the_files_beside_it() {
    let folder = Folder::with(&[
        ("a.csv", "1000,a\n15000,a\n"),
        ("b.csv", "2000,b\n25000,b\n"),
    ]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let text = format!(
        "CREATE TABLE f ({EVENTS}) WITH ('connector' = 'file', 'path' = '?.csv');
         CREATE TABLE s ({EVENTS}) WITH ('connector' = 'tcp', 'address' = '{address}', 'idle_timeout' = '100 ms');
         CREATE VIEW t AS SELECT ts, k FROM f UNION ALL SELECT ts, k FROM s;
         SELECT COUNT(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
         GROUP BY window_start, window_end;"
    );
    for parallelism in ["1", "2"] {
        let running = folder.start(&text, &["--parallelism", parallelism]);
        let (mut peer, _) = listener.accept().unwrap();
        assert_eq!(running.line(), "n");
        // The files have ended long before the socket counts as idle.
        assert_eq!(running.line(), "2", "the window from 0 to 10 s");
        assert_eq!(running.line(), "1", "the window from 10 to 20 s");
        peer.write_all(b"31000,s\n").unwrap();
        assert_eq!(running.line(), "1", "the window from 20 to 30 s");
        drop(peer);
        let finished = running.finish(PATIENCE).ok();
        assert_eq!(finished.out, "1\n", "the end closes the last window");
    }
}

// Sockets

#[test]
fn sockets_are_read_and_written_in_both_modes() {
    let folder = Folder::new();
    for (source_mode, sink_mode) in [
        ("connect", "connect"),
        ("listen", "connect"),
        ("connect", "listen"),
        ("listen", "listen"),
    ] {
        let source = TcpListener::bind("127.0.0.1:0").unwrap();
        let sink = TcpListener::bind("127.0.0.1:0").unwrap();
        let source_address = source.local_addr().unwrap();
        let sink_address = sink.local_addr().unwrap();
        // Where the program listens, the address must be free again.
        let source = Some(source).filter(|_| source_mode == "connect");
        let sink = Some(sink).filter(|_| sink_mode == "connect");
        let text = format!(
            "CREATE TABLE t (n INT, k STRING)
             WITH ('connector' = 'tcp', 'address' = '{source_address}', 'mode' = '{source_mode}');
             CREATE TABLE o (k STRING, n INT)
             WITH ('connector' = 'tcp', 'address' = '{sink_address}', 'mode' = '{sink_mode}', 'format' = 'json');
             INSERT INTO o SELECT k, n + 1 FROM t;"
        );
        let running = folder.start(&text, &[]);
        let connect = |address| eventually("listener", || TcpStream::connect(address).ok());
        let output = match &sink {
            Some(sink) => sink.accept().unwrap().0,
            None => connect(sink_address),
        };
        let mut input = match &source {
            Some(source) => source.accept().unwrap().0,
            None => connect(source_address),
        };
        input.write_all(b"1,a\nx,bad\n2,\"b").unwrap();
        input.write_all(b"\"\n3,the last has no line end").unwrap();
        drop(input);
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(output));
        let mut line = || lines.next().map(Result::unwrap);
        assert_eq!(line().as_deref(), Some(r#"{"k":"a","n":2}"#));
        assert_eq!(line().as_deref(), Some(r#"{"k":"b","n":3}"#));
        assert_eq!(
            line().as_deref(),
            Some(r#"{"k":"the last has no line end","n":4}"#)
        );
        if source_mode == "listen" {
            // It waits for the next caller, until it is stopped.
            running.interrupt();
        }
        assert_eq!(line(), None);
        let finished = running.finish(PATIENCE).ok();
        assert!(
            finished.err.contains("4 in, 3 out, 0 late, 1 bad"),
            "{}",
            finished.err
        );
    }
    let place = folder.json_lines("slackwater-dead-letter/t.jsonl")[0]["place"].clone();
    assert!(
        place.as_str().unwrap().starts_with("127.0.0.1:"),
        "the peer and the line: {place}"
    );
    assert!(place.as_str().unwrap().ends_with(":2"), "{place}");
}

#[test]
fn sockets_that_do_not_work_are_named() {
    let folder = Folder::with(&[("in.csv", "1\n")]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let listener = TcpListener::bind(&taken).map(drop);
    let free = free_address();
    let source = |options: &str| {
        let text =
            format!("CREATE TABLE t (n INT) WITH ('connector' = 'tcp'{options}); SELECT n FROM t;");
        folder.run(&text, &[])
    };
    source(&format!(", 'address' = '{free}'")).fails(1, &[&free, "refused", "'mode' = 'listen'"]);
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    let listening = source(&format!(", 'address' = '{address}', 'mode' = 'listen'"));
    listening.fails(1, &[&address, "can't listen", "already in use"]);
    source(", 'address' = 'nowhere'")
        .fails(2, &["'nowhere' is no host and port", "127.0.0.1:9000"]);
    source("").fails(2, &["option 'address': is missing"]);
    source(", 'address' = 'a:1', 'mode' = 'call'")
        .fails(2, &["'call' is not a choice", "'listen'"]);
    // A peer that hangs up on the sink.
    let text = format!(
        "CREATE TABLE v (ts_ms BIGINT, ip STRING) WITH ('connector' = 'datagen', 'generator' = 'uservisits');
         CREATE TABLE o (ip STRING) WITH ('connector' = 'tcp', 'address' = '{address}');
         INSERT INTO o SELECT ip FROM v;"
    );
    let running = folder.start(&text, &[]);
    drop(busy.accept().unwrap());
    running
        .finish(PATIENCE)
        .fails(1, &[&address, "can't send", "did the peer close?"]);
    drop(listener);
}

// Options

#[test]
fn options_that_are_wrong_are_told_what_is_right() {
    let folder = Folder::with(&[("in.csv", "1\n")]);
    let with =
        |options: &str| folder.run(&reading("n INT", options, "n INT", "SELECT n FROM t"), &[]);
    let place = ["query.sql:1:", "^"];
    let known = "a file source with format csv knows: connector, csv.comment, csv.delimiter, csv.header, \
                 csv.null, dead_letter, format, idle_timeout, on_error, path, replay_rate, unit_of_work";
    with(", 'colour' = 'red'")
        .fails(2, &place)
        .fails(2, &["'colour'", "is not known", known]);
    with(", 'csv.delimeter' = ';'").fails(2, &["did you mean 'csv.delimiter'?", known]);
    with(", 'address' = 'a:1'").fails(2, &["does not belong to a file source", known]);
    with(", 'csv.delimiter' = ';;'").fails(2, &["';;' is not one byte"]);
    with(", 'csv.header' = 'yes'").fails(2, &["'yes' is not a choice", "'true' or 'false'"]);
    with(", 'format' = 'xml'").fails(2, &["'xml'", "csv", "json", "combined_log", "raw"]);
    with(", 'on_error' = 'stop'").fails(2, &["'stop' is not a choice", "'skip' or 'fail'"]);
    with(", 'idle_timeout' = '5'").fails(2, &["'5' is not a duration", "'5 s'"]);
    let connector = |name: &str| {
        let text =
            format!("CREATE TABLE t (n INT) WITH ('connector' = '{name}'); SELECT n FROM t;");
        folder.run(&text, &[])
    };
    connector("fiel").fails(
        2,
        &["'fiel' is not a choice", "did you mean 'file'?", "datagen"],
    );
    connector("kafka").fails(
        2,
        &[
            "'kafka' is not a choice",
            "'file'",
            "'stdin'",
            "'tcp'",
            "'datagen'",
        ],
    );
    connector("print").fails(2, &["print can only be written", "read from file"]);
    folder
        .run("CREATE TABLE t (n INT); SELECT n FROM t;", &[])
        .fails(2, &["does not say what it is connected to"]);
}

#[test]
fn options_in_the_wrong_place_are_told_where_they_go() {
    let folder = Folder::with(&[("in.csv", "1\n")]);
    let text = reading("n INT", ", 'parallelism' = '2'", "n INT", "SELECT n FROM t");
    let parts = [
        "query.sql:1:",
        "'parallelism' belongs to the query, not to a table",
        "SET 'parallelism' = '2'",
    ];
    folder.run(&text, &[]).fails(2, &parts);
    let text = format!(
        "SET 'on_error' = 'fail';\n{}",
        reading("n INT", "", "n INT", "SELECT n FROM t")
    );
    let parts = [
        "query.sql:1:",
        "there is no setting 'on_error'",
        "WITH ('on_error' = 'fail')",
    ];
    folder.run(&text, &[]).fails(2, &parts);
    let text = "SET 'emti' = 'every_row';";
    folder
        .run(text, &[])
        .fails(2, &["there is no setting 'emti'", "did you mean 'emit'?"]);
    let text = "SET 'colour' = 'red';";
    folder.run(text, &[]).fails(
        2,
        &["the settings are: balancer, chunk_rows, emit, latency_target"],
    );
}

// Output

#[test]
fn existing_output_is_not_overwritten_unasked() {
    let folder = Folder::with(&[("in.csv", "1\n"), ("out.csv", "mine\n")]);
    std::fs::create_dir(folder.path("parts")).unwrap();
    folder.write("parts/mine.txt", b"mine");
    let to = |path: &str, more: &str| {
        reading("n INT", "", "n INT", "SELECT n FROM t")
            .replace("'out.csv'", &format!("'{path}'{more}"))
    };
    let mend = "'overwrite' = 'true'";
    folder
        .run(&to("out.csv", ""), &[])
        .fails(2, &["query.sql:2:", "out.csv exists already", mend]);
    folder
        .run(&to("parts", ""), &[])
        .fails(2, &["folder parts is not empty", mend]);
    assert_eq!(
        (folder.read("out.csv"), folder.read("parts/mine.txt")),
        ("mine\n".into(), "mine".into())
    );
    folder
        .run(&to("out.csv", ", 'overwrite' = 'true'"), &[])
        .ok();
    assert_eq!(folder.read("out.csv"), "1\n");
    folder
        .run(
            &to("parts", ", 'overwrite' = 'true'"),
            &["--parallelism", "2"],
        )
        .ok();
    assert_eq!(
        (
            folder.read("parts/part-0.csv"),
            folder.read("parts/mine.txt")
        ),
        ("1\n".into(), "mine".into())
    );
    folder
        .run(&to("none/out.csv", ""), &[])
        .fails(1, &["none/out.csv: can't write in none", "make the folder"]);
    folder.run(&to("new", ""), &[]).ok();
    assert_eq!(folder.read("new/part-0.csv"), "1\n");
}

#[test]
fn a_query_that_fails_leaves_no_half_output() {
    let lines = (0..100_000).map(|n| format!("{n}\n")).collect::<String>() + "x\n";
    let folder = Folder::with(&[("in.csv", &lines), ("out.csv", "of yesterday\n")]);
    let fail = ", 'on_error' = 'fail'";
    let to = |path: &str| {
        let text = reading("n INT", fail, "n INT", "SELECT n FROM t");
        text.replace("'out.csv'", &format!("'{path}', 'overwrite' = 'true'"))
    };
    for parallelism in ["1", "2"] {
        let run = |path: &str| {
            let arguments = ["--parallelism", parallelism, "--set", "chunk_rows=100"];
            folder
                .run(&to(path), &arguments)
                .fails(1, &["in.csv:100001: "]);
        };
        run("out.csv");
        assert_eq!(folder.read("out.csv"), "of yesterday\n");
        run("new.csv");
        run("packed.csv.gz");
        assert_eq!(
            folder.names(),
            ["in.csv", "out.csv", "query.sql", "report.json"]
        );
        run("parts");
        assert_eq!(std::fs::read_dir(folder.path("parts")).unwrap().count(), 0);
        std::fs::remove_dir(folder.path("parts")).unwrap();
    }
}
