//! Cases that are stopped while they run, and resumed from their checkpoint at another parallelism: the
//! answer is that of one run without a stop (I1, I6).
//!
//! Inputs are read at a rate, so that the stop comes in the middle of most of them. A case whose sources or
//! sinks can't take part in checkpoints is left out. One case in five is due, all of them with `EVERY_CASE=1`
//! (`make test-all`).

use std::path::Path;
use std::process::{Command, Output};

use super::cases::Case;
use super::{counts, folder_of_run, report, terminal, written};
use crate::support::every_case;

/// One case in so many is due.
const STEP: usize = 5;

/// Rows per second of each input; they have some twenty rows.
const RATE: &str = "'replay_rate' = '100/s', ";

/// When runs are stopped, from their start, until one of them has read a row: a busy machine needs longer to
/// begin.
const STOPS: [&str; 4] = ["60ms", "120ms", "240ms", "480ms"];

/// Whether the `nth` case of a file is tried.
pub fn is_due(nth: usize) -> bool {
    nth.is_multiple_of(STEP) || every_case()
}

/// Compares a stopped and resumed run with the outcome of one without a stop; `false` for a case that takes
/// no checkpoints.
pub fn check(file: &str, case: &Case, expected: &str) -> bool {
    // Not every table has a rate: a table that is looked up is read at once.
    let paced = format!("{RATE}'path' = 'data/");
    let paced = case.text.replace("'path' = 'data/", &paced);
    let mut programs = [paced.as_str(), &case.text].into_iter();
    programs.any(|text| is_resumed(file, case, text, expected))
}

fn is_resumed(file: &str, case: &Case, text: &str, expected: &str) -> bool {
    let work = folder_of_run(file, text);
    let mut printed = String::new();
    let mut reports = Vec::new();
    for stop in STOPS {
        let stopped = ["--parallelism", "1", "--duration", stop];
        let (stopped, report) = run(work.path(), file, &stopped);
        if stopped.status.code() == Some(2) {
            return false;
        }
        is_well(file, case, &stopped);
        add(&mut printed, &stopped.stdout);
        let rows = report["rows_in"].as_u64().unwrap();
        reports.push(report);
        if rows > 0 {
            break;
        }
    }
    let (rest, report) = run(work.path(), file, &["--parallelism", "3"]);
    is_well(file, case, &rest);
    add(&mut printed, &rest.stdout);
    let is_restored = report["restored_from"].is_u64();
    assert!(is_restored, "{file}, {}: it started over", case.title);
    reports.push(report);
    let found = terminal(&printed, case) + &written(&work.path().join("out")) + &counts(&reports);
    // What follows in a run without a stop are its warnings.
    let after = expected.strip_prefix(&found);
    let is_same = after.is_some_and(|after| {
        let is_warning = |line: &str| line.starts_with("warning: ") || line.starts_with("  ");
        after.lines().all(is_warning)
    });
    assert!(
        is_same,
        "{file}, {}: stopped and resumed it gives\n{found}and in one run\n{expected}",
        case.title
    );
    true
}

/// Runs a text with its checkpoints, and its report.
fn run(folder: &Path, file: &str, arguments: &[&str]) -> (Output, serde_json::Value) {
    let own = ["run", file, "--quiet", "--state", "state"];
    let ran = Command::new(env!("CARGO_BIN_EXE_slackwater"))
        .args(own)
        .args(["--report", "report.json"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let report = report(&folder.join("report.json"));
    (ran, report.unwrap_or_default())
}

/// Adds what a run printed, under the header that is there.
fn add(printed: &mut String, output: &[u8]) {
    let output = String::from_utf8_lossy(output);
    let rows = output.split_once('\n').map_or("", |(_, rows)| rows);
    printed.push_str(if printed.is_empty() { &output } else { rows });
}

fn is_well(file: &str, case: &Case, ran: &Output) {
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{file}, {}: {errors}", case.title);
}
