//! Records: wrong fields, huge lines, bytes that are no text, and where refused ones go.

use std::io::Write;

use crate::process::Folder;

use super::{reading, refused};

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
        // An expression that fails rejects its row, which ends the query in the same way.
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
fn a_line_of_150_megabytes_is_refused_in_bounded_memory() {
    const LINE_BYTES: usize = 150_000_000;
    let folder = Folder::new();
    let peak = |folder: &Folder| {
        let peak = folder.json("report.json")["peak_rss_bytes"].as_u64();
        peak.unwrap()
    };
    folder.write("in.csv", b"1,a\n2,b\n");
    let text = reading("n INT, k STRING", "", "n INT", "SELECT n FROM t");
    folder.run(&text, &[]).ok();
    std::fs::remove_file(folder.path("out.csv")).unwrap();
    let of_program = peak(&folder);
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
        let of_line = peak(&folder) - of_program;
        // A block of 32 MiB, and those that the record outgrew, given back by the allocator a moment later.
        assert!(of_line < LINE_BYTES as u64 / 2, "{format}: {of_line} bytes");
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
    let print = "CREATE TABLE t (k STRING) WITH ('connector' = 'file', 'path' = 'in.csv', 'format' = \
                 'raw'); SELECT k FROM t;";
    let finished = folder.run(print, &[]).ok();
    assert!(finished.out.contains("1,a\\u{0}b"), "{}", finished.out);
}
