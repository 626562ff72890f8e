//! Functions in Python in the program itself: workers and programs that are killed in the middle, and what is
//! left of them. What functions compute is in `sql/python_functions.sql`.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::crash::parts;

/// Rows of the input.
const ROWS: u64 = 1_500;

/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Writes the input.
fn numbers(folder: &Path) {
    let numbers = (0..ROWS).map(|n| format!("{n}\n"));
    fs::write(folder.join("in.csv"), numbers.collect::<String>()).unwrap();
}

/// A query that calls `f` for each number of a file, a few at a time.
fn query(folder: &Path, function: &str) -> String {
    numbers(folder);
    let text = format!(
        "CREATE FUNCTION f(n BIGINT) RETURNS BIGINT LANGUAGE python AS $$\n{function}\n$$;
        CREATE TABLE t (n BIGINT) WITH ('connector' = 'file', 'path' = 'in.csv', 'replay_rate' = '1000');
        CREATE TABLE out (n BIGINT, m BIGINT) WITH ('connector' = 'file', 'path' = 'out', 'format' = 'csv');
        SET 'checkpoint_interval' = '50 ms';
        INSERT INTO out SELECT n, f(n) FROM t;"
    );
    fs::write(folder.join("q.sql"), text).unwrap();
    "q.sql".to_string()
}

/// A query that adds the numbers of each window and key by an aggregate function.
fn aggregating_query(folder: &Path) {
    numbers(folder);
    let text = "CREATE AGGREGATE FUNCTION total(n BIGINT) RETURNS BIGINT LANGUAGE python AS $$
class total:
    sum = 0
    def accumulate(self, n):
        self.sum += n
    def merge(self, other):
        self.sum += other.sum
    def finish(self):
        return self.sum
$$;
        CREATE TABLE t (n BIGINT, ts AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR ts AS ts)
        WITH ('connector' = 'file', 'path' = 'in.csv', 'replay_rate' = '1000');
        CREATE TABLE out (first BIGINT, k BIGINT, s BIGINT)
        WITH ('connector' = 'file', 'path' = 'out', 'format' = 'csv');
        SET 'checkpoint_interval' = '50 ms';
        INSERT INTO out SELECT MIN(n), n % 7, total(n)
        FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '0.1' SECOND)
        GROUP BY window_start, window_end, n % 7;";
    fs::write(folder.join("q.sql"), text).unwrap();
}

/// What it gives.
fn aggregated() -> Vec<String> {
    let mut rows = Vec::new();
    for window in (0..ROWS).step_by(100) {
        for key in 0..7 {
            let numbers = (window..window + 100).filter(|n| n % 7 == key);
            let first = numbers.clone().next().expect("each key is in each window");
            rows.push(format!("{first},{key},{}", numbers.sum::<u64>()));
        }
    }
    rows.sort();
    rows
}

pub(crate) fn program(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slackwater"));
    command
        .args(["run", "q.sql", "--quiet"])
        .args(arguments)
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The processes that a process has started.
fn children(process: u32) -> Vec<Pid> {
    let mut children = Vec::new();
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    for thread in threads.into_iter().flatten().flatten() {
        let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        children.extend(
            list.split_whitespace()
                .filter_map(|pid| Pid::from_raw(pid.parse().ok()?)),
        );
    }
    children
}

/// Whether a process has ended. Whoever inherits it may be slow to notice.
fn is_gone(process: &Pid) -> bool {
    let path = format!("/proc/{}/stat", process.as_raw_nonzero());
    let stat = fs::read_to_string(path).unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .is_none_or(|rest| rest.is_empty() || rest.starts_with(['Z', 'X']))
}

/// Waits until something is there.
pub(crate) fn await_some<T>(what: &str, found: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn ended(child: Child) -> (Output, String) {
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, errors)
}

/// What the sink has written, sorted.
pub(crate) fn written(folder: &Path) -> Vec<String> {
    let out = folder.join("out");
    let files = match out.is_dir() {
        true => parts(&out),
        false => vec![out],
    };
    let contents = files
        .iter()
        .map(|file| fs::read_to_string(file).unwrap_or_default());
    let contents = contents.collect::<Vec<String>>();
    let lines = contents.iter().flat_map(|text| text.lines());
    // Not the header.
    let lines = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let mut rows = lines.map(str::to_string).collect::<Vec<String>>();
    rows.sort();
    rows
}

pub(crate) fn has_written(folder: &Path) -> Option<()> {
    (!written(folder).is_empty()).then_some(())
}

fn expected(factor: u64) -> Vec<String> {
    let mut rows = (0..ROWS)
        .map(|n| format!("{n},{}", factor * n))
        .collect::<Vec<_>>();
    rows.sort();
    rows
}

#[test]
fn a_worker_that_is_killed_is_replaced_and_no_row_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    query(folder.path(), "def f(n): return 2 * n");
    let errors = with_workers_killed(folder.path(), &["--parallelism", "1"]);
    // What was killed was repeated, and no row was blamed for it.
    assert_eq!(written(folder.path()), expected(2), "{errors}");
}

/// Runs a query, and kills its worker again and again. Returns what it has said.
pub(crate) fn with_workers_killed(folder: &Path, arguments: &[&str]) -> String {
    let mut child = program(folder, arguments).spawn().unwrap();
    await_some("the first rows", || has_written(folder));
    let mut killed = Vec::new();
    // As often as there is another one before the input ends.
    while child.try_wait().unwrap().is_none() {
        let worker = children(child.id()).first().copied();
        if let Some(worker) = worker.filter(|worker| !killed.contains(worker)) {
            // One that has ended is killed in vain.
            let _ = kill_process(worker, Signal::KILL);
            killed.push(worker);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!killed.is_empty());
    let (output, errors) = ended(child);
    assert!(output.status.success(), "{errors}");
    errors
}

#[test]
fn groups_survive_the_workers_that_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    aggregating_query(folder.path());
    let errors = with_workers_killed(folder.path(), &["--parallelism", "1"]);
    assert_eq!(written(folder.path()), aggregated(), "{errors}");
}

#[test]
fn groups_of_a_program_that_is_killed_resume() {
    let folder = tempfile::tempdir().unwrap();
    aggregating_query(folder.path());
    let arguments = [
        "--state",
        "state",
        "--parallelism",
        "2",
        "--set",
        "two_phase=on",
    ];
    let mut child = program(folder.path(), &arguments).spawn().unwrap();
    await_some("the first rows", || has_written(folder.path()));
    child.kill().unwrap();
    let (_, errors) = ended(child);
    let before = written(folder.path()).len();
    assert!(before < aggregated().len(), "{errors}");
    let (output, again) = ended(program(folder.path(), &arguments).spawn().unwrap());
    assert!(output.status.success(), "{errors}{again}");
    assert_eq!(written(folder.path()), aggregated(), "{errors}{again}");
}

#[test]
fn a_program_that_is_killed_resumes_with_new_workers_and_the_old_ones_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    // What hangs must end, too.
    let function = "
import time
def f(n):
    if n == 700 and not __import__('os').path.exists('resumed'):
        time.sleep(1000)
    return 3 * n
";
    query(folder.path(), function);
    let arguments = ["--state", "state", "--parallelism", "2"];
    let mut child = program(folder.path(), &arguments).spawn().unwrap();
    await_some("the first rows", || has_written(folder.path()));
    let workers = await_some("a worker", || {
        Some(children(child.id())).filter(|workers| !workers.is_empty())
    });
    child.kill().unwrap();
    let (_, errors) = ended(child);
    await_some("the end of the workers", || {
        workers.iter().all(is_gone).then_some(())
    });
    fs::write(folder.path().join("resumed"), "").unwrap();
    let (output, again) = ended(program(folder.path(), &arguments).spawn().unwrap());
    assert!(output.status.success(), "{errors}{again}");
    assert_eq!(written(folder.path()), expected(3), "{errors}{again}");
}

#[test]
fn a_function_that_always_dies_ends_the_query() {
    let folder = tempfile::tempdir().unwrap();
    query(folder.path(), "import os\ndef f(n): os._exit(1)");
    let child = program(folder.path(), &["--parallelism", "1"]).spawn();
    let (output, errors) = ended(child.unwrap());
    assert!(!output.status.success(), "{errors}");
    let wanted = "f(n): its workers have died 24 times one after the other; the last time has ended with \
                  code 1";
    assert!(errors.contains(wanted), "{errors}");
}

#[test]
fn ctrl_c_ends_the_query_and_not_its_workers_first() {
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().unwrap();
    query(folder.path(), "def f(n): return n");
    let mut command = program(folder.path(), &["--report", "report.json"]);
    let mut child = command.process_group(0).spawn().unwrap();
    let workers = await_some("a worker", || {
        Some(children(child.id())).filter(|workers| !workers.is_empty())
    });
    await_some("the first rows", || has_written(folder.path()));
    let group = Pid::from_child(&child);
    kill_process_group(group, Signal::INT).unwrap();
    let status = child.wait().unwrap();
    let mut errors = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut errors)
        .unwrap();
    assert!(status.success(), "{errors}");
    let report = fs::read_to_string(folder.path().join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["rows_bad"], 0, "{errors}");
    await_some("the end of the workers", || {
        workers.iter().all(is_gone).then_some(())
    });
}

#[test]
fn what_a_function_prints_is_marked_and_not_among_the_rows() {
    let folder = tempfile::tempdir().unwrap();
    let text = "CREATE FUNCTION f(n BIGINT) RETURNS BIGINT LANGUAGE python AS $$
import sys
print('loaded')
def f(n):
    print('row', n)
    sys.stderr.write('no end of line')
    return n
$$;
CREATE TABLE t (n BIGINT) WITH ('connector' = 'file', 'path' = 'in.csv');
SELECT f(n) AS n FROM t;";
    fs::write(folder.path().join("q.sql"), text).unwrap();
    fs::write(folder.path().join("in.csv"), "1\n").unwrap();
    let (output, errors) = ended(program(folder.path(), &[]).spawn().unwrap());
    assert!(output.status.success(), "{errors}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("row"));
    for line in ["loaded", "row 1", "no end of line"] {
        assert!(
            errors.contains(&format!("function 'f': {line}\n")),
            "{errors}"
        );
    }
}

#[test]
fn checking_and_explaining_a_query_start_no_function() {
    let folder = tempfile::tempdir().unwrap();
    query(
        folder.path(),
        "raise SystemExit('started')\ndef f(n): return n",
    );
    for command in ["explain", "run"] {
        let output = Command::new(env!("CARGO_BIN_EXE_slackwater"))
            .args([command, "q.sql"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let (shown, errors) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        match command {
            "explain" => assert!(
                output.status.success() && shown.contains("f("),
                "{shown}{errors}"
            ),
            _ => assert!(
                errors.contains("q.sql:2:1: function 'f': SystemExit: started"),
                "{errors}"
            ),
        }
    }
}
