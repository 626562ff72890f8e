//! Files: missing, unreadable, truncated, empty, many, packed, paced.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::process::{Folder, gunzip, gzip};

use super::{COUNT_BY_10_S, EVENTS, reading, refused};

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
            "the gzip data ends early, after line ",
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
    folder.run(&text, &[]).fails(
        1,
        &["error: in.csv.gz:", "can't read on after line ", "corrupt"],
    );
}

/// The formats of columns that this build has.
const COLUMNS: &[&str] = match cfg!(feature = "parquet") {
    true => &["arrow", "parquet"],
    false => &["arrow"],
};

#[test]
fn files_of_columns_that_are_none_are_named_and_leave_no_output() {
    for format in COLUMNS {
        let folder = Folder::with(&[("in.csv", &"1,a\n2,b\n".repeat(500))]);
        let copy = format!(
            "CREATE TABLE i (n INT, s STRING) WITH ('connector' = 'file', 'path' = 'in.csv');
             CREATE TABLE w (n INT, s STRING) WITH ('connector' = 'file', 'path' = 'in.{format}', 'format' \
             = '{format}');
             INSERT INTO w SELECT n, s FROM i;"
        );
        folder.run(&copy, &[]).ok();
        let whole = std::fs::read(folder.path(&format!("in.{format}"))).unwrap();
        let options = format!(", 'path' = 'in.{format}', 'format' = '{format}'");
        let text = reading("n INT, s STRING", &options, "n INT", "SELECT n FROM t");
        let error = format!("error: in.{format}: is not a readable {format} file: ");
        for wrong in [
            &b""[..],
            b"n,s\n1,a\n",
            &[0; 4096],
            &whole[..whole.len() / 2],
            &whole[..whole.len() - 3],
            &whole[whole.len() / 2..],
        ] {
            folder.write(&format!("in.{format}"), wrong);
            for parallelism in ["1", "2"] {
                let finished = folder.run(&text, &["--parallelism", parallelism]);
                finished.fails(1, &[&error, "create or fetch it again"]);
                assert!(!folder.path("out.csv").exists(), "no half output");
            }
        }
        std::fs::create_dir(folder.path("folder")).unwrap();
        let of_folder = text.replace(&format!("'in.{format}'"), "'folder'");
        folder
            .run(&of_folder, &[])
            .fails(2, &["folder is a folder", "'folder/*'"]);
        // Among several files the broken one is named.
        folder.write(&format!("in.{format}"), &whole);
        folder.write(&format!("jn.{format}"), b"");
        let both = text.replace(&format!("'in.{format}'"), &format!("'?n.{format}'"));
        let error = format!("error: jn.{format}: is not a readable {format} file");
        folder.run(&both, &[]).fails(1, &[&error]);
    }
}

#[test]
fn a_file_that_breaks_off_is_read_on_when_it_is_whole() {
    let rows = (0..30_000).map(|row| format!("{row},text of row {row}\n"));
    let rows = rows.collect::<Vec<String>>();
    let packed = gzip(rows.concat().as_bytes());
    let folder = Folder::new();
    folder.write("in.csv.gz", &packed[..packed.len() / 2]);
    let text =
        "CREATE TABLE t (n INT, s STRING) WITH ('connector' = 'file', 'path' = 'in.csv.gz', \
                'replay_rate' = '60000/s');
         CREATE TABLE o (n INT, s STRING) WITH ('connector' = 'file', 'path' = 'out');
         INSERT INTO o SELECT n, s FROM t;";
    let saved = ["--state", "state", "--set", "checkpoint_interval=20 ms"];
    let said = ["the gzip data ends early, after line ", "fetch it again"];
    folder.run(text, &saved).fails(1, &said);
    let written = |folder: &Folder| {
        let parts = crate::crash::parts(&folder.path("out"));
        let contents = parts
            .iter()
            .map(|part| std::fs::read_to_string(part).unwrap());
        crate::process::sorted(&contents.collect::<String>())
    };
    let before = written(&folder);
    assert!((1..30_000).contains(&before.len()), "{} rows", before.len());
    folder.write("in.csv.gz", &packed);
    folder.run(text, &saved).ok();
    assert!(
        written(&folder) == crate::process::sorted(&rows.concat()),
        "lost or doubled"
    );
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
    read("[")
        .fails(2, &place)
        .fails(2, &["'[' is not a valid pattern"]);
    read("").fails(2, &["option 'path': is missing"]);
    read("/dev/null").fails(2, &["not a regular file", "stdin"]);
    assert!(!folder.path("out.csv").exists());
}

#[test]
fn what_may_not_be_read_is_named() {
    let folder = Folder::with(&[("in.csv", "1\n")]);
    std::fs::create_dir(folder.path("closed")).unwrap();
    folder.write("closed/in.csv", b"1\n");
    for name in ["in.csv", "closed"] {
        let nobody = std::fs::Permissions::from_mode(0o000);
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
