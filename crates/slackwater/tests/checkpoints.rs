//! `run --state`: what is saved, what a query resumes from, and what is refused.

mod check;
mod damaged;
mod everywhere;
mod final_results;
mod golden;
mod limits;
mod one_owner;
mod operators;
mod regressions;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use slackwater::report::Report;
use slackwater::run::{Failure, Finished, Outcome, RunOptions, StateOptions, run};

/// Rows of the input; at [`RATE`] they take three seconds, so that a run that is cut short before is cut
/// short on a busy machine, too.
const ROWS: u64 = 30_000;
const RATE: u64 = 10_000;

/// A folder with an input, and a query over it.
struct Case {
    folder: tempfile::TempDir,
    /// What stands between the tables and the end of the text.
    query: String,
    /// Rows per second.
    rate: u64,
    /// The input: a file's name or a pattern.
    input: String,
}

/// Rows per key and tenth of a second.
const COUNTS: &str = "INSERT INTO counts SELECT CAST(window_start AS BIGINT), k, COUNT(*), SUM(v)
  FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND)
  GROUP BY window_start, window_end, k;";

impl Case {
    fn new(query: &str) -> Case {
        let folder = tempfile::tempdir().unwrap();
        let mut input = String::from("ts,k,v\n");
        for row in 0..ROWS {
            // Out of order by up to 99 ms.
            let ms = 1_700_000_000_000 + row + (row * 7919) % 100;
            input.push_str(&format!("{ms},k{},{row}\n", row * row % 101));
        }
        std::fs::write(folder.path().join("in.csv"), input).unwrap();
        Case {
            folder,
            query: query.to_string(),
            rate: RATE,
            input: "in.csv".to_string(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self) -> String {
        let (folder, rate, input) = (self.folder.path().display(), self.rate, &self.input);
        format!(
            "CREATE TABLE events (ms BIGINT, k STRING, v BIGINT,
               ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '0.1' SECOND)
             WITH ('connector' = 'file', 'path' = '{folder}/{input}', 'csv.header' = 'true',
               'replay_rate' = '{rate}');
             CREATE TABLE counts (start_ms BIGINT, k STRING, n BIGINT, total BIGINT)
             WITH ('connector' = 'file', 'path' = '{folder}/counts', 'csv.header' = 'true');
             CREATE TABLE copies (ms BIGINT, k STRING, v BIGINT)
             WITH ('connector' = 'file', 'path' = '{folder}/copies.csv');
             {}",
            self.query
        )
    }

    fn run(&self, settings: &[(&str, &str)], from_scratch: bool) -> Result<Box<Finished>, Failure> {
        self.run_for(None, settings, from_scratch)
    }

    fn run_for(
        &self,
        duration: Option<u64>,
        settings: &[(&str, &str)],
        from_scratch: bool,
    ) -> Result<Box<Finished>, Failure> {
        let mut all = vec![("checkpoint_interval".to_string(), "50 ms".to_string())];
        let settings = settings.iter();
        all.extend(settings.map(|(key, value)| (key.to_string(), value.to_string())));
        let options = RunOptions {
            settings: all,
            duration: duration.map(Duration::from_millis),
            program: Some(env!("CARGO_BIN_EXE_slackwater").into()),
            state: Some(StateOptions {
                place: self.path("state").display().to_string(),
                from_scratch,
                accepts_duplicates: false,
            }),
            ..RunOptions::default()
        };
        match run("test.sql", &self.text(), &options)? {
            Outcome::Finished(finished) => Ok(finished),
            Outcome::Explained(text) => panic!("only explained: {text}"),
        }
    }

    /// The command line's program, to its end.
    fn program(&self, arguments: &[&str]) -> Output {
        let query = self.path("query.sql");
        std::fs::write(&query, self.text()).unwrap();
        Command::new(env!("CARGO_BIN_EXE_slackwater"))
            .arg("run")
            .arg(&query)
            .args(["--quiet", "--set=checkpoint_interval=50 ms"])
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn counts(&self) -> Vec<String> {
        rows_of(&self.path("counts"))
    }

    /// What the query has to come to.
    fn expected(&self) -> Vec<String> {
        let mut counts = std::collections::BTreeMap::new();
        let input = std::fs::read_to_string(self.path("in.csv")).unwrap();
        for line in input.lines().skip(1) {
            let mut fields = line.split(',');
            let ms = fields.next().unwrap().parse::<u64>().unwrap();
            let key = fields.next().unwrap().to_string();
            let value = fields.next().unwrap().parse::<u64>().unwrap();
            let count = counts.entry((ms / 1000 * 1000, key)).or_insert((0, 0));
            *count = (count.0 + 1, count.1 + value);
        }
        let rows = counts.into_iter();
        let rows = rows.map(|((start, key), (n, total))| format!("{start},{key},{n},{total}"));
        let mut rows = rows.collect::<Vec<String>>();
        rows.sort();
        rows
    }

    /// The checkpoints that are stored, the newest last.
    fn checkpoints(&self) -> Vec<PathBuf> {
        let mut records = std::fs::read_dir(self.path("state/checkpoints"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                std::fs::read_to_string(path)
                    .unwrap()
                    .contains("\"checkpoint\"")
            })
            .collect::<Vec<PathBuf>>();
        records.sort();
        records
    }
}

impl Case {
    /// The other file of a record.
    fn copy_of(&self, record: &Path) -> PathBuf {
        self.path("state/copies").join(record.file_name().unwrap())
    }
}

/// The rows of a folder's parts, each of which has a header, sorted.
fn rows_of(folder: &Path) -> Vec<String> {
    let mut rows = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("start_ms,"), "{name} has no header");
        rows.extend(text.lines().skip(1).map(str::to_string));
    }
    rows.sort();
    rows
}

fn refused(result: Result<Box<Finished>, Failure>) -> String {
    match result {
        Err(Failure::Usage(reason)) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

fn failed(result: Result<Box<Finished>, Failure>) -> (String, Report) {
    match result {
        Err(Failure::Query(reason, Some(finished))) => (reason, finished.report),
        other => panic!("not failed: {other:?}"),
    }
}

#[test]
fn a_query_that_is_stopped_goes_on_at_any_parallelism() {
    let case = Case::new(COUNTS);
    let mut rows_in = 0;
    let mut last = None;
    for (nth, settings) in [
        vec![("parallelism", "3")],
        vec![("parallelism", "1")],
        vec![("parallelism", "4"), ("processes", "2")],
        vec![("parallelism", "2"), ("rebalance", "shuffle")],
    ]
    .into_iter()
    .enumerate()
    {
        let is_last = nth == 3;
        let duration = (!is_last).then_some(300);
        let finished = case.run_for(duration, &settings, false).unwrap();
        assert_eq!(finished.stopped, !is_last);
        let report = &finished.report;
        assert_eq!(report.restored_from, last, "{settings:?}");
        assert_eq!(report.restarts, 0);
        let checkpoints = report.checkpoints.as_ref().unwrap();
        assert!(checkpoints.stored > 0 && checkpoints.last > last);
        last = checkpoints.last;
        rows_in += report.rows_in;
    }
    assert_eq!(case.counts(), case.expected());
    // Where a row was read, it was not read again: nothing died.
    assert_eq!(rows_in, ROWS);
    let listed = Command::new(env!("CARGO_BIN_EXE_slackwater"))
        .args(["checkpoints", "state"])
        .current_dir(case.folder.path())
        .output()
        .unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert_eq!(listed.lines().count(), 4, "{listed}");
    let newest = listed.lines().last().unwrap();
    assert!(newest.contains(&last.unwrap().to_string()), "{listed}");
    assert!(newest.contains("events resumes at 30,00"), "{listed}");
    assert!(newest.ends_with("the query has finished"), "{listed}");
    let again = case.run(&[], false).unwrap();
    assert_eq!(again.report.restored_from, last);
    assert_eq!((again.report.rows_in, again.report.rows_out), (0, 0));
    assert_eq!(case.counts(), case.expected());
}

#[test]
fn parts_appear_while_the_query_runs_and_have_headers() {
    let case = Case::new(COUNTS);
    case.run_for(Some(800), &[], false).unwrap();
    let found = case.counts();
    assert!(!found.is_empty(), "windows had closed");
    let expected = case.expected();
    assert!(found.len() < expected.len());
    assert!(found.iter().all(|row| expected.binary_search(row).is_ok()));
}

#[test]
fn one_file_is_whole_at_the_end() {
    let case = Case::new("INSERT INTO copies SELECT ms, k, v FROM events;");
    for duration in [Some(200), Some(300)] {
        case.run_for(duration, &[], false).unwrap();
        assert!(!case.path("copies.csv").exists(), "it is not whole yet");
    }
    case.run(&[("parallelism", "2")], false).unwrap();
    let input = std::fs::read_to_string(case.path("in.csv")).unwrap();
    let copies = std::fs::read_to_string(case.path("copies.csv")).unwrap();
    assert!(input.split_once('\n').unwrap().1 == copies, "not a copy");
}

#[test]
fn a_filter_and_a_sink_may_change_a_key_may_not() {
    let mut case = Case::new(COUNTS);
    case.run_for(Some(300), &[], false).unwrap();
    case.query = COUNTS
        .replace(
            "SELECT CAST(window_start AS BIGINT), k,",
            "SELECT CAST(window_start AS BIGINT), UPPER(k),",
        )
        .replace(", k;", ", UPPER(k);");
    let reason = refused(case.run(&[], false));
    assert!(reason.contains("can't resume from checkpoint"), "{reason}");
    assert!(reason.contains("its state has other keys"), "{reason}");
    assert!(
        reason.contains("STRING") && !reason.contains("Utf8View"),
        "types as SQL calls them: {reason}"
    );
    assert!(reason.contains("--from-scratch"), "{reason}");
    // Rows before the change have been counted.
    let filtered = COUNTS.replace("GROUP BY", "WHERE v < 1000000 GROUP BY");
    case.query = format!("{filtered}\nINSERT INTO copies SELECT ms, k, v FROM events;");
    let report = case.run(&[], false).unwrap().report;
    assert!(report.restored_from.is_some());
    assert_eq!(case.counts(), case.expected());
    // The new sink begins with what came next.
    let copies = std::fs::read_to_string(case.path("copies.csv")).unwrap();
    assert_eq!(copies.lines().count() as u64, report.rows_in);
}

#[test]
fn from_scratch_begins_anew() {
    let mut case = Case::new(COUNTS);
    case.run_for(Some(900), &[], false).unwrap();
    assert!(!case.counts().is_empty());
    let reason = refused(case.run(&[], true));
    assert!(reason.contains("counts is not empty"), "{reason}");
    assert!(reason.contains("add 'overwrite' = 'true'"), "{reason}");
    std::fs::remove_dir_all(case.path("counts")).unwrap();
    let report = case.run_for(Some(200), &[], true).unwrap().report;
    assert_eq!(report.restored_from, None);
    // From then on it resumes from its own checkpoints.
    let report = case.run(&[], false).unwrap().report;
    assert!(report.restored_from.is_some());
    assert_eq!(case.counts(), case.expected());
    case.query
        .push_str("\nINSERT INTO copies SELECT ms, k, v FROM events;");
    case.run(&[], false).unwrap();
}

#[test]
fn where_no_checkpoint_can_be_read_nothing_is_begun() {
    let case = Case::new(COUNTS);
    case.run_for(Some(300), &[], false).unwrap();
    for checkpoint in case.checkpoints() {
        std::fs::write(case.copy_of(&checkpoint), "").unwrap();
        std::fs::write(checkpoint, "").unwrap();
    }
    let before = case.counts();
    let output = case.program(&["--state", "state", "--duration", "100ms"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no checkpoint in"), "{said}");
    assert!(said.contains("--from-scratch"), "{said}");
    assert_eq!(case.counts(), before);
    std::fs::remove_dir_all(case.path("counts")).unwrap();
    case.run_for(Some(200), &[], true).unwrap();
}

#[test]
fn what_keeps_failing_ends_with_its_cause() {
    let mut case = Case::new(COUNTS);
    case.rate = RATE / 2;
    // Somebody makes a file where parts are to be.
    let output = std::thread::scope(|scope| {
        let running = scope.spawn(|| case.program(&["--state", "state", "--set", "restarts=2"]));
        let until = Instant::now() + Duration::from_secs(20);
        while case.counts().is_empty() {
            assert!(Instant::now() < until, "no part came");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::remove_dir_all(case.path("counts")).unwrap();
        std::fs::write(case.path("counts"), "").unwrap();
        running.join().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("it failed 3 times within 600 s; the last:"),
        "{said}"
    );
    assert!(said.contains("counts"), "{said}");
}

#[test]
fn who_comes_second_takes_over() {
    let mut case = Case::new(COUNTS);
    // The first one shall not have ended before the second has started.
    case.rate = RATE / 4;
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| case.program(&["--state", "state"]));
        let until = Instant::now() + Duration::from_secs(20);
        while !case
            .path("state/checkpoints/00000000000000000002.json")
            .exists()
        {
            assert!(Instant::now() < until, "no checkpoint came");
            std::thread::sleep(Duration::from_millis(5));
        }
        let second = scope.spawn(|| case.program(&["--state", "state", "--parallelism", "2"]));
        (first.join().unwrap(), second.join().unwrap())
    });
    let said = String::from_utf8_lossy(&first.stderr).into_owned();
    assert_eq!(first.status.code(), Some(1), "{said}");
    assert!(said.contains("has taken over"), "{said}");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(second.status.success(), "{said}");
    assert_eq!(case.counts(), case.expected());
}

#[test]
fn what_can_not_be_saved_is_said() {
    let mut case = Case::new(COUNTS);
    let units = "'replay_rate' = '20000', 'unit_of_work' = 'file'";
    case.query = String::new();
    let text = case
        .text()
        .replace(&format!("'replay_rate' = '{RATE}'"), units)
        + COUNTS;
    let state = |place: PathBuf| StateOptions {
        place: place.display().to_string(),
        from_scratch: false,
        accepts_duplicates: false,
    };
    let options = RunOptions {
        state: Some(state(case.path("state"))),
        ..RunOptions::default()
    };
    let error = match run("test.sql", &text, &options) {
        Err(Failure::Usage(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(
        error.contains("is not supported with --state") && error.contains("test.sql:4"),
        "{error}"
    );
    // A file is no place for checkpoints.
    let options = RunOptions {
        state: Some(state(case.path("in.csv"))),
        ..RunOptions::default()
    };
    let text = case.text() + COUNTS;
    let error = match run("test.sql", &text, &options) {
        Err(Failure::Usage(error)) | Err(Failure::Query(error, _)) => error,
        other => panic!("{other:?}"),
    };
    assert!(error.contains("in.csv"), "{error}");
    case.query = "SELECT k, COUNT(*) FROM events GROUP BY k;".to_string();
    let output = case.program(&["--state", "state", "--duration", "100ms"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("print: if the query crashes, rows written since"),
        "{said}"
    );
}
