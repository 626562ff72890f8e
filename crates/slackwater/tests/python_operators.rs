//! Operators in Python: the change detector of the example in Rust, in Python, gives the same answer however
//! it runs, and whatever is killed. What operators do is in `sql/python_operators.sql`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::operators::{check_at_many_settings, expected, folder};
use crate::process::Folder;
use crate::python_functions::{
    await_some, ended, has_written, program, with_workers_killed, written,
};

/// A value that differs by more than 15, and silences of two seconds.
pub(crate) const JUMPS: &str = "
CREATE FUNCTION jumps(t TABLE (v DOUBLE), least DOUBLE, silence INTERVAL)
RETURNS TABLE (old DOUBLE, new DOUBLE) STATE (last DOUBLE) LANGUAGE python
WITH ('order' = 'required', 'forgets' = 'true') AS $$
class jumps:
    def __init__(self, least, silence):
        self.least, self.silence = least, silence

    def on_row(self, state, row, out):
        out.clear_timers()
        out.timer(out.time + self.silence)
        if row.v is not None and (state.last is None or abs(row.v - state.last) > self.least):
            out.emit(state.last, row.v)
            state.last = row.v

    def on_time(self, state, at, out):
        out.emit(state.last, None)
        out.forget()
$$;";

const QUERY: &str = "
CREATE TABLE t (ms BIGINT, k INT, v INT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = '${IN}/in-?.csv', 'csv.null' = '');
CREATE TABLE o (k INT, ms BIGINT, old DOUBLE, new DOUBLE)
WITH ('connector' = 'file', 'path' = '${IN}/out.csv', 'overwrite' = 'true');
INSERT INTO o SELECT k, CAST(ts AS BIGINT), old, new
FROM jumps(TABLE t PARTITION BY k ORDER BY ts, 15, silence => INTERVAL '2' SECOND);";

fn text(folder: &Folder) -> String {
    let text = format!("{JUMPS}{QUERY}");
    text.replace("${IN}", &folder.path("").display().to_string())
}

#[test]
fn a_change_detector_in_python_gives_the_same_answer_however_it_runs() {
    let folder = folder();
    check_at_many_settings(&folder, &text(&folder), &expected(), (43, 2));
}

#[test]
fn worker_processes_have_operators_in_python_and_checkpoints_keep_their_state() {
    let folder = folder();
    folder.write("query.sql", text(&folder).as_bytes());
    let expected = expected();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slackwater"));
        command
            .args(["run", "query.sql", "--quiet"])
            .args(arguments)
            .current_dir(folder.path(""));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(folder.sorted("out.csv") == expected, "{arguments:?}");
    };
    run(&["--processes", "2", "--parallelism", "4", "--link", "shm"]);
    run(&["--processes", "3", "--parallelism", "3", "--link", "tcp"]);
    fs::remove_file(folder.path("out.csv")).unwrap();
    let often = "checkpoint_interval=1ms";
    run(&["--state", "state", "--set", often, "--set", "chunk_rows=50"]);
}

/// Rows of the query that is killed, and how many keys they have.
const ROWS: u64 = 1_500;
const KEYS: u64 = 7;

/// A query that sums the numbers of each key, and emits the sums.
fn summing_query(folder: &Path) {
    let numbers = (0..ROWS).map(|n| format!("{n}\n"));
    fs::write(folder.join("in.csv"), numbers.collect::<String>()).unwrap();
    let text = "CREATE FUNCTION sums(t TABLE (n BIGINT)) RETURNS TABLE (n BIGINT, s BIGINT)
        STATE (s BIGINT) LANGUAGE python AS $$
class sums:
    def on_row(self, state, row, out):
        state.s = (state.s or 0) + row.n
        out.emit(row.n, state.s)
$$;
        CREATE TABLE t (n BIGINT, ts AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR ts AS ts)
        WITH ('connector' = 'file', 'path' = 'in.csv', 'replay_rate' = '1000');
        CREATE TABLE out (n BIGINT, s BIGINT) WITH ('connector' = 'file', 'path' = 'out', 'format' = 'csv');
        SET 'checkpoint_interval' = '50 ms';
        INSERT INTO out SELECT n, s
        FROM sums(TABLE (SELECT n, ts, n % 7 AS k FROM t) PARTITION BY k ORDER BY ts);";
    fs::write(folder.join("q.sql"), text).unwrap();
}

fn sums() -> Vec<String> {
    let mut sums = [0; KEYS as usize];
    let mut rows = Vec::new();
    for n in 0..ROWS {
        let sum = &mut sums[(n % KEYS) as usize];
        *sum += n;
        rows.push(format!("{n},{sum}"));
    }
    rows.sort();
    rows
}

#[test]
fn states_survive_the_workers_that_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    summing_query(folder.path());
    let errors = with_workers_killed(folder.path(), &["--parallelism", "1"]);
    assert_eq!(written(folder.path()), sums(), "{errors}");
}

#[test]
fn states_of_a_program_that_is_killed_resume() {
    let folder = tempfile::tempdir().unwrap();
    summing_query(folder.path());
    let arguments = ["--state", "state", "--parallelism", "2"];
    let mut child = program(folder.path(), &arguments).spawn().unwrap();
    await_some("the first rows", || has_written(folder.path()));
    child.kill().unwrap();
    let (_, errors) = ended(child);
    assert!(written(folder.path()).len() < sums().len(), "{errors}");
    let (output, again) = ended(program(folder.path(), &arguments).spawn().unwrap());
    assert!(output.status.success(), "{errors}{again}");
    assert_eq!(written(folder.path()), sums(), "{errors}{again}");
}

/// A query with a text of Python that is wrong, and what is said about it.
fn error(declaration: &str, call: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let table = "CREATE TABLE t (n BIGINT) WITH ('connector' = 'file', 'path' = 'in.csv');";
    fs::write(folder.path().join("in.csv"), "1\n").unwrap();
    let text = format!("{declaration}\n{table}\nSELECT * FROM {call};");
    fs::write(folder.path().join("q.sql"), text).unwrap();
    let (output, errors) = ended(program(folder.path(), &[]).spawn().unwrap());
    assert!(!output.status.success(), "{errors}");
    errors
}

#[test]
fn what_is_wrong_with_a_text_is_said_before_the_query_runs() {
    let keyed = "CREATE FUNCTION f(t TABLE (n BIGINT), m INT) RETURNS TABLE (r INT) STATE (s INT) \
                 LANGUAGE python";
    let cases = [
        (
            "class f:\n  x = = 1",
            "q.sql:2:7: function 'f': SyntaxError",
        ),
        (
            "class f: pass",
            "q.sql:1:103: function 'f': class 'f' has no on_row",
        ),
        (
            "class f:\n  def on_row(self, row): pass",
            "q.sql:2:1: function 'f': on_row(self, row) can't be called with 4 arguments",
        ),
        (
            "class f:\n  def __init__(self, n): pass\n  def on_row(self, state, row, out): pass",
            "can't be called with 0 arguments and m (missing a required argument: 'n')",
        ),
        (
            "class f:\n  def __init__(self, m):\n    raise KeyError(m)\n  def on_row(self, s, r, o): pass",
            "q.sql:3:1: function 'f': KeyError: 5",
        ),
        (
            "import nothing_like_it\n",
            "ModuleNotFoundError: No module named 'nothing_like_it'",
        ),
    ];
    for (text, wanted) in cases {
        let said = error(&format!("{keyed} AS $${text}$$;"), "f(TABLE t, 5)");
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn an_operator_that_always_dies_ends_the_query() {
    for (declaration, text) in [
        ("RETURNS TABLE", "def f(n): os._exit(1)"),
        (
            "RETURNS TABLE STATE (s INT)",
            "class f:\n  def on_row(self, state, row, out): os._exit(1)",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let numbers = (0..200).map(|n| format!("{n}\n"));
        fs::write(folder.path().join("in.csv"), numbers.collect::<String>()).unwrap();
        let text = format!(
            "CREATE FUNCTION f(t TABLE (n BIGINT)) {declaration} LANGUAGE python AS $$
import os
{text}
$$;
CREATE TABLE t (n BIGINT) WITH ('connector' = 'file', 'path' = 'in.csv');
SELECT * FROM f(TABLE t);"
        );
        fs::write(folder.path().join("q.sql"), text).unwrap();
        let (output, errors) = ended(program(folder.path(), &[]).spawn().unwrap());
        assert!(!output.status.success(), "{errors}");
        let wanted = "its workers have died 24 times one after the other";
        assert!(errors.contains(wanted), "{errors}");
    }
}

/// The worker that hangs is killed by the limit of time, and no other row is blamed.
#[test]
fn a_row_that_hangs_or_takes_too_much_memory_is_rejected_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.csv"), "1\n2\n3\n4\n5\n").unwrap();
    let text = "CREATE FUNCTION f(t TABLE (n BIGINT)) RETURNS TABLE (s BIGINT) STATE (s BIGINT)
LANGUAGE python WITH ('timeout' = '1 s', 'memory' = '200 MiB') AS $$
import time
class f:
    def on_row(self, state, row, out):
        state.s = (state.s or 0) + row.n
        if row.n == 2:
            time.sleep(1000)
        if row.n == 4:
            [0] * (1 << 30)
        out.emit(state.s)
$$;
CREATE TABLE t (n BIGINT) WITH ('connector' = 'file', 'path' = 'in.csv');
SELECT s FROM f(TABLE t);";
    fs::write(folder.path().join("q.sql"), text).unwrap();
    let (output, errors) = ended(program(folder.path(), &[]).spawn().unwrap());
    assert!(output.status.success(), "{errors}");
    let dead_letters = folder.path().join("slackwater-dead-letter/query.jsonl");
    let reasons = fs::read_to_string(dead_letters).unwrap();
    let rows = String::from_utf8_lossy(&output.stdout);
    let found = rows
        .lines()
        .filter_map(|line| line.trim().parse::<i64>().ok());
    assert_eq!(found.collect::<Vec<_>>(), [1, 4, 9], "{rows}{errors}");
    let is_said = |what: &str| reasons.contains(what);
    assert!(
        is_said("longer than 1s") && is_said("MemoryError"),
        "{reasons}"
    );
}

#[test]
fn the_example_runs() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python_operators.sql");
    let mut command = Command::new(env!("CARGO_BIN_EXE_slackwater"));
    let output = command.arg("run").arg(example).arg("--quiet").output();
    let output = output.unwrap();
    let (rows, said) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}");
    for what in ["jumps before silences", "long visits"] {
        assert!(rows.contains(what), "{rows}{said}");
    }
}
