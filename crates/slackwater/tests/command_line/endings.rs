//! How runs end: by time, by Ctrl-C, by a sink that takes nothing, by a reader that leaves.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use super::{COUNTING, PATIENCE, counted, endless};
use crate::process::{Folder, Running, free_address};

/// A query that was told to stop ends within a few seconds, even where its sink takes nothing:
/// 5 s for what is on its way, the rest for a busy machine.
const STOPS_WITHIN: Duration = Duration::from_secs(15);

#[test]
fn a_duration_ends_an_endless_query_with_its_windows_open() {
    let folder = Folder::new();
    // Ten rows a second of event time that far apart: one window of an hour, which stays open.
    let text = endless(", 'rate' = '1000/s'")
        + "SELECT window_start, COUNT(*) FROM TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '1' HOUR)
           GROUP BY window_start, window_end;";
    for parallelism in ["1", "2"] {
        let arguments = ["--duration", "700ms", "--parallelism", parallelism];
        let finished = folder.run(&text, &arguments).ok();
        assert_eq!(finished.out, "");
        let report = folder.json("report.json");
        let wall_s = report["wall_s"].as_f64().unwrap();
        assert!((0.7..5.0).contains(&wall_s), "{wall_s}");
        assert_eq!(report["rows_out"], 0);
        let rows_in = report["rows_in"].as_u64().unwrap();
        assert!((1..=5_000).contains(&rows_in), "{rows_in}");
        assert!(finished.err.contains("0 out"), "{}", finished.err);
    }
}

#[test]
fn a_duration_longer_than_the_query_changes_nothing() {
    let folder = counted();
    let finished = folder.run(COUNTING, &["--duration", "1h"]).ok();
    assert!(finished.took < PATIENCE);
    assert_eq!(folder.sorted("out.csv"), ["a,1", "a,2", "b,1"]);
}

#[test]
fn an_interrupt_ends_a_query_with_its_summary() {
    let folder = Folder::new();
    // The windows of a second come out, the last one does not.
    let text = endless(", 'rate' = '5000/s'")
        + "CREATE TABLE o (start TIMESTAMP(3), n BIGINT) WITH ('connector' = 'file', 'path' = 'out.csv');
           INSERT INTO o SELECT window_start, COUNT(*)
           FROM TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY window_start, window_end;
           SELECT ip FROM v;";
    let running = folder.start(&text, &["--parallelism", "2"]);
    for _ in 0..3_000 {
        running.line();
    }
    running.interrupt();
    let finished = running.finish(STOPS_WITHIN).ok();
    assert!(
        finished.err.contains("rows ") && finished.err.contains("late"),
        "{}",
        finished.err
    );
    let report = folder.json("report.json");
    let rows_in = report["rows_in"].as_u64().unwrap();
    let windows = folder.read("out.csv").lines().count() as u64;
    assert!(windows >= 1, "what was complete is there");
    assert_eq!(
        report["rows_out"].as_u64().unwrap(),
        rows_in + windows,
        "all that was read"
    );
    assert!(
        windows * 1000 <= rows_in,
        "{windows} windows of {rows_in} rows"
    );
}

#[test]
fn an_interrupt_ends_a_query_whose_sink_takes_nothing() {
    let folder = Folder::new();
    let sink = |options: &str| {
        endless("")
            + &format!(
                "CREATE TABLE o (ip STRING) WITH ('connector' = 'tcp', {options}); INSERT INTO o SELECT ip \
                 FROM v;"
            )
    };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let running = [
        // Nobody has connected.
        folder.start(
            &sink(&format!(
                "'address' = '{}', 'mode' = 'listen'",
                free_address()
            )),
            &[],
        ),
        // Somebody has, but does not read.
        folder.start(
            &sink(&format!("'address' = '{address}'")),
            &["--parallelism", "2"],
        ),
    ];
    let _connection = silent.accept().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    running.iter().for_each(Running::interrupt);
    for running in running {
        let finished = running.finish(STOPS_WITHIN).ok();
        assert!(finished.err.contains("  rows "), "{}", finished.err);
    }
}

#[test]
fn an_interrupt_ends_a_query_whose_terminal_is_stuck() {
    let folder = Folder::new();
    folder.write("query.sql", (endless("") + "SELECT ip FROM v;").as_bytes());
    let command = folder.command(&["run", "query.sql", "--report", "report.json"]);
    // The pipe is full soon, and a write to it sleeps in the kernel.
    let running = Running::start_unread(command);
    std::thread::sleep(Duration::from_millis(500));
    running.interrupt();
    let finished = running.finish_unread(STOPS_WITHIN).ok();
    for part in ["  rows ", "warning: a sink stopped accepting rows"] {
        assert!(finished.err.contains(part), "{}", finished.err);
    }
    assert!(folder.json("report.json")["rows_in"].as_u64().unwrap() > 0);
}

#[test]
fn a_second_interrupt_does_not_wait() {
    let folder = Folder::new();
    let text = endless("")
        + &format!(
            "CREATE TABLE o (ip STRING) WITH ('connector' = 'tcp', 'address' = '{}', 'mode' = 'listen');
             INSERT INTO o SELECT ip FROM v;",
            free_address()
        );
    let running = folder.start(&text, &[]);
    std::thread::sleep(Duration::from_millis(300));
    running.interrupt();
    std::thread::sleep(Duration::from_millis(200));
    running.interrupt();
    let finished = running.finish(PATIENCE).ok();
    assert!(
        finished.took < Duration::from_secs(5),
        "{:?}",
        finished.took
    );
}

#[test]
fn a_closed_pipe_ends_the_query_without_a_panic() {
    let folder = Folder::new();
    folder.write("query.sql", (endless("") + "SELECT ip FROM v;").as_bytes());
    let mut running = Running::start_unread(folder.command(&["run", "query.sql"]));
    std::thread::sleep(Duration::from_millis(300));
    running.close_output();
    running
        .finish(PATIENCE)
        .fails(1, &["error: standard output: was closed by its reader"]);
    // Help and explain, too.
    for arguments in [&["--help"][..], &["topology"], &["explain", "query.sql"]] {
        let mut command = folder.command(arguments);
        command.stdout(Stdio::from(std::fs::File::create("/dev/full").unwrap()));
        let finished = Running::start_unread(command).finish(PATIENCE);
        assert!(!finished.err.contains("panicked"), "{}", finished.err);
    }
}

#[test]
fn a_closed_standard_error_changes_nothing() {
    let folder = counted();
    folder.write("query.sql", COUNTING.as_bytes());
    let mut command = folder.command(&["run", "query.sql", "--report", "report.json"]);
    // Every write to it fails.
    command.stderr(
        std::fs::File::options()
            .read(true)
            .open("/dev/null")
            .unwrap(),
    );
    assert_eq!(command.status().unwrap().code(), Some(0));
    assert!(folder.path("report.json").metadata().unwrap().len() > 0);
}
