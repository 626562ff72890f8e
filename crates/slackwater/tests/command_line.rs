//! The command line, run as users run it.

mod bench;
mod endings;
mod report;

use std::io::Write;

use crate::process::{Folder, PATIENCE, Running};

/// A file that is read, a file that is written, one window a second.
const COUNTING: &str = "
CREATE TABLE t (ms BIGINT, k STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'in.csv');
CREATE TABLE o (k STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'out.csv', 'overwrite' = 'true');
INSERT INTO o SELECT k, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)
GROUP BY window_start, window_end, k;";

/// Rows without end, 1,000 a second of event time.
const ENDLESS: &str = "
CREATE TABLE v (ts_ms BIGINT, ip STRING, ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'datagen', 'generator' = 'uservisits' ${OPTIONS});\n";

fn endless(options: &str) -> String {
    ENDLESS.replace("${OPTIONS}", options)
}

fn counted() -> Folder {
    Folder::with(&[("in.csv", "100,a\n200,b\n300,a\n1100,a\nx,a\n")])
}

#[test]
fn exit_codes_tell_failure_from_wrong_usage() {
    let folder = counted();
    folder.run(COUNTING, &[]).ok();
    let failing = COUNTING.replace("'in.csv'", "'in.csv', 'on_error' = 'fail'");
    folder
        .run(&failing, &[])
        .fails(1, &["error: in.csv:5: ", "'x'", "'on_error' = 'skip'"]);
    folder
        .run("SELEKT 1;", &[])
        .fails(2, &["query.sql:1:1", "SELEKT 1;\n", "^^^^^^"]);
    folder
        .run("", &[])
        .fails(2, &["query.sql: nothing to run", "SELECT or INSERT INTO"]);
    folder
        .run("SELECT 1 FROM nowhere;", &[])
        .fails(2, &["query.sql:1:", "'nowhere'"]);
    folder
        .slackwater(&["run", "nowhere.sql"])
        .fails(2, &["nowhere.sql: No such file"]);
    folder
        .slackwater(&["run", "."])
        .fails(2, &[".: Is a directory"]);
    folder.write("bytes.sql", b"SELECT '\xff';");
    folder
        .slackwater(&["run", "bytes.sql"])
        .fails(2, &["bytes.sql: ", "utf-8"]);
    folder
        .slackwater(&[])
        .fails(2, &["Usage:", "run", "explain", "topology"]);
    folder
        .slackwater(&["walk"])
        .fails(2, &["unrecognized subcommand 'walk'"]);
    folder.slackwater(&["run"]).fails(2, &["<FILE>"]);
    folder
        .slackwater(&["run", "query.sql", "--fast"])
        .fails(2, &["--fast"]);
    folder.slackwater(&["--version"]).ok();
}

#[test]
fn regression_a_query_that_can_not_start_prints_its_error_and_no_summary() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let in_use = format!(
        "CREATE TABLE t (n INT) WITH ('connector' = 'tcp', 'address' = '{address}', 'mode' = 'listen');
         SELECT n FROM t;"
    );
    let folder = Folder::new();
    let no_file = "CREATE TABLE t (n INT) WITH ('connector' = 'file', 'path' = 'nowhere.csv'); SELECT n \
                   FROM t;";
    let cases = [
        (in_use.as_str(), 1, address.to_string()),
        (no_file, 2, "nowhere.csv".to_string()),
    ];
    for (text, code, part) in cases {
        for arguments in [&[][..], &["--processes", "2", "--workers", "2"]] {
            let finished = folder.run(text, arguments).fails(code, &[&part]);
            assert!(
                finished.err.trim_start().starts_with("error: "),
                "{}",
                finished.err
            );
            assert!(!finished.err.contains("  rows  "), "{}", finished.err);
        }
    }
}

#[test]
fn a_report_that_can_not_be_written_is_refused_before_the_query_runs() {
    let folder = counted();
    folder.write("query.sql", COUNTING.as_bytes());
    let finished = folder.slackwater(&["run", "query.sql", "--report", "no/where.json"]);
    finished.fails(2, &["--report: there is no folder no"]);
}

#[test]
fn settings_of_the_command_line_win() {
    let folder = counted();
    let text = format!("SET 'parallelism' = '3';\nSET 'chunk_rows' = '7';\n{COUNTING}");
    let plan = |arguments: &[&str]| {
        folder.run(&text, arguments).ok();
        let plan = folder.json("report.json")["plan"].clone();
        (
            plan["parallelism"].as_u64(),
            plan["workers"].as_u64(),
            plan["chunk_rows"].as_u64(),
        )
    };
    assert_eq!(plan(&["--workers", "1"]), (Some(3), Some(1), Some(7)));
    assert_eq!(
        plan(&["--workers", "1", "--parallelism", "2"]),
        (Some(2), Some(1), Some(7))
    );
    assert_eq!(
        plan(&["--workers", "2", "--set", "chunk_rows=9"]),
        (Some(3), Some(2), Some(9))
    );
    let both = [
        "--set",
        "parallelism=4",
        "--set",
        "workers = 1",
        "--set",
        "linger=1 ms",
    ];
    assert_eq!(plan(&both), (Some(4), Some(1), Some(7)));
    assert_eq!(folder.json("report.json")["plan"]["linger_ms"], 1.0);
    let wrong = |arguments: &[&str], parts: &[&str]| {
        folder.run(&text, arguments).fails(2, parts);
    };
    wrong(
        &["--set", "parallelizm=2"],
        &["'parallelizm'", "did you mean 'parallelism'?"],
    );
    wrong(
        &["--set", "on_error=fail"],
        &["is an option of tables", "WITH ('on_error' = 'fail')"],
    );
    wrong(&["--set", "chunk_rows"], &["--set", "expected key=value"]);
    wrong(
        &["--set", "chunk_rows=0"],
        &["'0' is not a valid value of 'chunk_rows'", "1 to 1048576"],
    );
    wrong(
        &["--parallelism", "0"],
        &["'0' is not a valid value of 'parallelism'", "1 to 1024"],
    );
    wrong(&["--parallelism", "two"], &["two", "--parallelism"]);
    wrong(&["--duration", "20"], &["20s, 500ms or 1min"]);
}

#[test]
fn a_select_prints_rows_and_only_rows() {
    let folder = counted();
    let source = COUNTING.split("CREATE TABLE o").next().unwrap();
    let finished = folder
        .run(&format!("{source} SELECT ms, k FROM t;"), &[])
        .ok();
    assert_eq!(
        finished.out,
        "  ms  k\n 100  a\n 200  b\n 300  a\n1100  a\n"
    );
    assert!(finished.err.contains("4 out"), "{}", finished.err);
    let quiet = folder.run(
        &format!("{source} SELECT k, COUNT(*) AS n FROM t GROUP BY k;"),
        &["--quiet"],
    );
    let quiet = quiet.ok();
    assert_eq!(quiet.out, "op  k  n\n+I  a  3\n+I  b  1\n");
    // No summary, no progress; but that a row was left out is said.
    assert_eq!(
        quiet.err,
        "warning: 1 bad row: slackwater-dead-letter/t.jsonl; the first: in.csv:5: \
         column 'ms' (BIGINT): can't read 'x'\n"
    );
}

#[test]
fn a_text_comes_from_standard_input() {
    let folder = counted();
    let finished = folder
        .slackwater_with_input(&["run", "-", "-q"], COUNTING.as_bytes())
        .ok();
    assert_eq!(finished.out, "");
    assert_eq!(folder.sorted("out.csv"), ["a,1", "a,2", "b,1"]);
    folder
        .slackwater_with_input(&["explain", "-"], COUNTING.as_bytes())
        .ok();
    folder
        .slackwater_with_input(&["run", "-"], b"SELECT;")
        .fails(2, &["-:1:"]);
}

#[test]
fn explain_shows_the_three_graphs_and_runs_nothing() {
    let folder = counted();
    folder.write("query.sql", COUNTING.as_bytes());
    let finished = folder
        .slackwater(&[
            "explain",
            "query.sql",
            "--parallelism",
            "2",
            "--workers",
            "1",
        ])
        .ok();
    for part in [
        "Query graph",
        "source",
        "file",
        "window",
        "aggregate",
        "sink",
        "Subqueries",
        "(2 instances)",
        "Instances on 1 worker",
    ] {
        assert!(
            finished.out.contains(part),
            "no '{part}' in:\n{}",
            finished.out
        );
    }
    assert_eq!(finished.err, "");
    assert_eq!(folder.names(), ["in.csv", "query.sql"]);
    folder
        .slackwater(&["explain", "query.sql", "--set", "emit=never"])
        .fails(2, &["'never'"]);
    // The statement: what is explained does not run, what is not does.
    let text = COUNTING.replace("INSERT INTO", "EXPLAIN INSERT INTO");
    let finished = folder.run(&text, &[]).ok();
    assert!(finished.out.contains("Query graph"), "{}", finished.out);
    assert!(!folder.names().contains(&"out.csv".to_string()));
    let both = folder
        .run(&format!("{text} SELECT k FROM t WHERE k = 'b';"), &[])
        .ok();
    assert!(
        both.out.contains("Query graph") && both.out.contains("\nb\n"),
        "{}",
        both.out
    );
}

#[test]
fn topology_reads_what_it_writes() {
    let folder = Folder::new();
    let here = folder.slackwater(&["topology"]).ok();
    assert!(
        here.out.contains("node 0: cores ") && here.out.contains("core "),
        "{}",
        here.out
    );
    let json = folder.slackwater(&["topology", "--json"]).ok();
    folder.write("machine.json", json.out.as_bytes());
    let again = folder
        .slackwater(&["topology", "--from", "machine.json"])
        .ok();
    assert_eq!(again.out, here.out);
    let twice = folder
        .slackwater(&["topology", "--from", "machine.json", "--json"])
        .ok();
    assert_eq!(twice.out, json.out);
    folder.write("wrong.json", b"{\"nodes\": 3}");
    folder
        .slackwater(&["topology", "--from", "wrong.json"])
        .fails(2, &["wrong.json: "]);
    folder
        .slackwater(&["topology", "--from", "none.json"])
        .fails(2, &["none.json: No such file"]);
}

#[test]
fn help_teaches() {
    let folder = Folder::new();
    let help = folder.slackwater(&["--help"]).ok().out;
    for part in [
        "run",
        "explain",
        "topology",
        "bench",
        "CREATE TABLE",
        "WATERMARK",
        "slackwater run",
        "Exit code",
    ] {
        assert!(help.contains(part), "no '{part}' in:\n{help}");
    }
    let run = folder.slackwater(&["run", "--help"]).ok().out;
    for part in [
        "--set",
        "--parallelism",
        "--workers",
        "--duration",
        "--report",
        "standard error",
        "Ctrl-C",
    ] {
        assert!(run.contains(part), "no '{part}' in:\n{run}");
    }
    for command in ["explain", "topology"] {
        assert!(
            folder
                .slackwater(&[command, "--help"])
                .ok()
                .out
                .contains("Usage:"),
            "{command}"
        );
    }
    // The first query of the help is one that runs.
    let first = help.find("  CREATE TABLE").unwrap();
    let last = help.find("  slackwater run hello.sql").unwrap();
    let finished = folder.run(&help[first..last], &[]).ok();
    assert!(finished.out.lines().count() > 2, "{}", finished.out);
}

#[test]
fn progress_is_shown_for_long_bounded_input() {
    let folder = Folder::with(&[("in.csv", &"1,a\n".repeat(4_000))]);
    let text = "CREATE TABLE t (ms BIGINT, k STRING)
                WITH ('connector' = 'file', 'path' = 'in.csv', 'replay_rate' = '1600/s');
                CREATE TABLE o (k STRING) WITH ('connector' = 'blackhole');
                INSERT INTO o SELECT k FROM t;";
    let finished = folder.run(text, &[]).ok();
    let line = finished.err.lines().next().unwrap();
    for part in [" s: ", " rows, ", " rows/s, ", " %, latency ", " ms"] {
        assert!(line.contains(part), "no '{part}' in: {line}");
    }
}

#[test]
fn a_source_of_standard_input_is_read_to_its_end() {
    let folder = Folder::new();
    let text = "CREATE TABLE t (ms BIGINT, k STRING) WITH ('connector' = 'stdin');
                SELECT k, ms + 1 AS later FROM t;";
    folder.write("query.sql", text.as_bytes());
    let finished = folder
        .slackwater_with_input(&["run", "query.sql"], b"1,a\nx,b\n3,c")
        .ok();
    assert_eq!(finished.out, "k  later\na      2\nc      4\n");
    assert_eq!(
        folder.json_lines("slackwater-dead-letter/t.jsonl")[0]["place"],
        "stdin:2"
    );
    // The text itself can't come from there as well.
    let finished = folder.slackwater_with_input(&["run", "-"], text.as_bytes());
    finished.fails(
        2,
        &[
            "-: table 't' has 'connector' = 'stdin'",
            "read the query from a file",
        ],
    );
    // Rows come out while the input is still open.
    let command = folder.command(&["run", "query.sql"]);
    let (running, mut stdin) = Running::start_with_input(command);
    stdin.write_all(b"5,e\n").unwrap();
    assert_eq!(running.line(), "k  later");
    assert_eq!(running.line(), "e      6");
    running.interrupt();
    running.finish(PATIENCE).ok();
    drop(stdin);
}

#[test]
fn two_sources_can_not_share_standard_input() {
    let folder = Folder::new();
    let text = "CREATE TABLE a (k STRING) WITH ('connector' = 'stdin');
                CREATE TABLE b (k STRING) WITH ('connector' = 'stdin');
                SELECT k FROM a UNION ALL SELECT k FROM b;";
    let finished = folder.run(text, &[]);
    finished.fails(
        1,
        &["stdin: is already read by another table", "read it once"],
    );
}

#[test]
fn a_query_that_fails_still_reports() {
    let folder = counted();
    let failing = COUNTING.replace("'in.csv'", "'in.csv', 'on_error' = 'fail'");
    let finished = folder
        .run(&failing, &[])
        .fails(1, &["  rows ", "error: in.csv:5"]);
    assert!(
        finished
            .err
            .trim_end()
            .lines()
            .last()
            .unwrap()
            .contains("in.csv:5"),
        "it comes last"
    );
    let report = folder.json("report.json");
    assert_eq!(
        (&report["rows_in"], &report["rows_bad"]),
        (&5.into(), &1.into())
    );
}
