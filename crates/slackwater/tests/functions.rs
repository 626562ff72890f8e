//! Functions that a build adds: those of the example, in this process and in worker processes of the
//! example's own program.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Once;

use crate::process::Folder;
use crate::support::run_text;

#[path = "../examples/custom_functions/functions.rs"]
mod example;

/// Adds them to this process; the other tests are none the worse for it.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut functions = slackwater::functions::Functions::default();
        example::add(&mut functions);
        slackwater::functions::install(functions).unwrap();
    });
}

/// Rows with keys, words and numbers, so many that several chunks have each key.
fn folder() -> Folder {
    let words = ["cache", "coach", "a", "ccc", "", "stock"];
    let lines = (0..3000_usize).map(|row| {
        let word = words[row * 7 % words.len()];
        let points = if row % 500 == 499 { 999 } else { row % 100 };
        format!("{},{},{word},{points}\n", row * 10, row * 13 % 5)
    });
    Folder::with(&[("in.csv", &lines.collect::<String>())])
}

const QUERY: &str = "
CREATE TABLE t (ms BIGINT, k INT, word STRING, points INT,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = '${IN}', 'dead_letter' = '${DEAD}');
CREATE TABLE o (start TIMESTAMP(3), k INT, cs BIGINT, average DOUBLE, longest STRING, grades BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'overwrite' = 'true');
INSERT INTO o SELECT window_start, k, SUM(count_char(word, 'c')), WEIGHTED_AVERAGE(points, \
CHAR_LENGTH(word)), LONGEST(word),
  COUNT(DISTINCT grade(points, NULL))
FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, k;";

#[test]
fn the_same_answer_however_they_are_run() {
    install();
    let folder = folder();
    let path = |name: &str| folder.path(name).display().to_string();
    let text = QUERY
        .replace("${IN}", &path("in.csv"))
        .replace("${OUT}", &path("out.csv"));
    let text = text.replace("${DEAD}", &path("dead.jsonl"));
    let mut expected: Option<Vec<String>> = None;
    for (parallelism, chunk_rows, two_phase) in [
        ("1", "8192", "off"),
        ("1", "1", "off"),
        ("3", "100", "on"),
        ("3", "7", "auto"),
        ("2", "8192", "on"),
    ] {
        let settings = [
            ("parallelism", parallelism),
            ("chunk_rows", chunk_rows),
            ("two_phase", two_phase),
        ];
        let report = run_text(&text, &settings).unwrap();
        assert_eq!(report.rows_bad, 6, "rows whose grade fails");
        let found = folder.sorted("out.csv");
        assert_eq!(found.len(), 15);
        match &expected {
            None => expected = Some(found),
            Some(expected) => assert_eq!(&found, expected, "{settings:?}"),
        }
    }
    let first = expected.unwrap().remove(0);
    assert!(first.starts_with("1970-01-01 00:00:00.000,0,"), "{first}");
    assert!(first.contains(",cache,"), "{first}");
}

#[test]
fn what_they_do_not_take_is_said() {
    install();
    let table = "CREATE TABLE t (n INT) WITH ('connector' = 'file', 'path' = 'in.csv');\n";
    let error = |select: &str| run_text(&format!("{table}{select}"), &[]).unwrap_err();
    let shown = error("SELECT count_char(n, 'c') FROM t");
    assert!(
        shown.starts_with("test.sql:2:8: function 'count_char' does not accept (INT, STRING)"),
        "{shown}"
    );
    assert!(shown.ends_with("= COUNT_CHAR(STRING, STRING)"), "{shown}");
    let shown = error("SELECT longest(n) FROM t");
    assert!(
        shown.starts_with("test.sql:2:8: aggregate 'longest' does not accept (INT)"),
        "{shown}"
    );
    let shown = error("SELECT count_chars('a', 'c') FROM t");
    assert!(shown.contains("did you mean 'count_char'?"), "{shown}");
}

/// The program with the example's functions.
pub(crate) fn example_program() -> Option<PathBuf> {
    example("custom_functions")
}

/// The program of an example. `cargo test` builds it; a single test binary does not.
pub(crate) fn example(name: &str) -> Option<PathBuf> {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_slackwater"));
    let program = program.with_file_name("examples").join(name);
    if program.is_file() {
        return Some(program);
    }
    eprintln!(
        "skipped: no {} (cargo build -p slackwater --examples)",
        program.display()
    );
    None
}

#[test]
fn worker_processes_know_them_and_checkpoints_keep_them() {
    let Some(program) = example_program() else {
        return;
    };
    let folder = folder();
    let text = QUERY
        .replace("${IN}", "in.csv")
        .replace("${OUT}", "out.csv");
    let text = text.replace("${DEAD}", "dead.jsonl");
    folder.write("query.sql", text.as_bytes());
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command
            .args(["run", "query.sql", "--quiet"])
            .args(arguments)
            .current_dir(folder.path(""));
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        folder.sorted("out.csv")
    };
    let expected = run(&[]);
    assert_eq!(run(&["--processes", "2", "--parallelism", "2"]), expected);
    std::fs::remove_file(folder.path("out.csv")).unwrap();
    let saved = [
        "--state",
        "state",
        "--set",
        "checkpoint_interval=1ms",
        "--set",
        "chunk_rows=10",
    ];
    assert_eq!(run(&saved), expected);
}
