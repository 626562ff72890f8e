//! `slackwater sql --connect`, `slackwater doctor JOB`, and several statements in one request.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::{Server, table, write_input};

/// What a shell of the server answers to an input.
fn shell(server: &Server, arguments: &[&str], input: &str) -> Output {
    let mut shell = Command::new(env!("CARGO_BIN_EXE_slackwater"))
        .args(["sql", "--connect", &server.page])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = shell.stdin.take().unwrap();
    to.write_all(input.as_bytes()).unwrap();
    drop(to);
    shell.wait_with_output().unwrap()
}

/// The lines of the output; the shell has to succeed.
fn lines(output: Output) -> Vec<String> {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| line.trim_end().to_string())
        .collect()
}

fn started(folder: &Path) -> Server {
    write_input(folder, 700);
    let server = Server::start(folder);
    server.run(&[
        &table(folder, ""),
        "CREATE MATERIALIZED VIEW sums AS SELECT k, COUNT(*) AS n FROM numbers GROUP BY k",
    ]);
    server.wait_for("SELECT n FROM sums WHERE k = 3", &["100"]);
    server
}

#[test]
fn statements_of_a_shell_run_on_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = started(folder.path());
    let found = lines(shell(
        &server,
        &[],
        "SELECT k, n FROM sums\nWHERE k = 3; SELECT 'a;b' AS s;\n\\d\n\\d sums\n",
    ));
    let expected = [
        " k |   n",
        "---+-----",
        " 3 | 100",
        "(1 row)",
        " s",
        "-----",
        " a;b",
        "(1 row)",
        "  name     kind",
        "  numbers  table",
        "  sums     materialized view",
        " name | type   | null | key",
        "------+--------+------+-------------",
        " k    | BIGINT |      | PRIMARY KEY",
        " n    | BIGINT |      |",
        "(2 rows)",
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_a_shell_sets_holds_for_what_it_runs_later() {
    let folder = tempfile::tempdir().unwrap();
    let server = started(folder.path());
    let text = "SET 'parallelism' = '2'; SET 'pipeline.name' = 'mine';
        CREATE TABLE o (k BIGINT) WITH ('connector' = 'blackhole');
        CREATE TABLE p (k BIGINT) WITH ('connector' = 'blackhole');
        INSERT INTO o SELECT k FROM numbers;
        INSERT INTO p SELECT k FROM numbers;
        SHOW parallelism; RESET 'parallelism'; SHOW parallelism;\n\\set\n";
    let found = lines(shell(&server, &[], text));
    let shown = |value: &str| found.iter().filter(|line| line.trim() == value).count();
    assert_eq!(shown("2"), 1, "{found:?}");
    let last = found.last().map(String::as_str);
    assert_eq!(
        last,
        Some("  nothing is set: docs/settings.md lists the settings")
    );
    let jobs = server.rows("SHOW JOBS");
    let names = jobs.iter().map(|job| job.split('|').next().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["insert_into_p", "mine", "sums"]);
}

#[test]
fn errors_of_the_server_have_the_line_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let server = started(folder.path());
    let file = folder.path().join("wrong.sql");
    std::fs::write(
        &file,
        "SELECT 1 AS one;\nSELECT n,\n  nope FROM sums;\nSELECT 2;\n",
    )
    .unwrap();
    let output = shell(&server, &[file.to_str().unwrap()], "");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("wrong.sql:3:3: there is no column 'nope'\n"),
        "{error}"
    );
    assert!(error.contains("\n3 |   nope FROM sums\n  |   ^"), "{error}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("(1 row)").count(), 1, "{text}");
}

#[test]
fn a_shell_without_a_server_says_so() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    drop(port);
    let output = Command::new(env!("CARGO_BIN_EXE_slackwater"))
        .args(["sql", "--connect", &address])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains(&format!("no server answers at {address}: ")),
        "{error}"
    );
    assert!(error.contains("slackwater serve"), "{error}");
}

#[test]
fn the_doctor_sees_a_job_of_a_server() {
    let folder = tempfile::tempdir().unwrap();
    write_input(folder.path(), 70);
    let server = Server::start(folder.path());
    server.run(&[
        &table(folder.path(), "10/s"),
        "CREATE MATERIALIZED VIEW sums AS SELECT k, COUNT(*) AS n FROM numbers GROUP BY k",
    ]);
    let doctor = |job: &str| {
        Command::new(env!("CARGO_BIN_EXE_slackwater"))
            .args(["doctor", job, "--connect", &server.page])
            .output()
            .unwrap()
    };
    let output = doctor("sums");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("'numbers'"),
        "{said}"
    );
    let error = String::from_utf8_lossy(&doctor("other").stderr).into_owned();
    assert!(error.contains("there is no job 'other'"), "{error}");
}

#[test]
fn a_request_may_have_several_statements() {
    let folder = tempfile::tempdir().unwrap();
    let server = started(folder.path());
    let (status, answer) = server.http(
        "POST",
        "/v1/sql?format=text",
        "SET 'parallelism' = '3'; SHOW parallelism; -- the end\nSELECT 1 AS one;",
    );
    let expected = "SET\n parallelism\n-------------\n 3\n(1 row)\n one\n-----\n   1\n(1 row)\n";
    assert_eq!(
        (status, answer.replace(" \n", "\n")),
        (200, expected.to_string())
    );
    let (status, answer) = server.http("POST", "/v1/sql", "SELECT 1;\nSELECT nope FROM sums;");
    assert!(answer.contains("\"position\":17"), "{status} {answer}");
}
