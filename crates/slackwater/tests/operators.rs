//! Operators that a build adds: those of the example, in this process, and in worker processes of the
//! example's own program.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Once;

use crate::answers::many_instances;
use crate::functions::example;
use crate::process::Folder;
use crate::support::{Seeded, every_case, run_slowly, run_text};

#[path = "../examples/custom_operators/operators.rs"]
mod added;
#[path = "../examples/custom_operators/scans.rs"]
mod scans;

/// Adds them to this process; the other tests are none the worse for it.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut functions = slackwater::functions::Functions::default();
        added::add(&mut functions);
        scans::add(&mut functions);
        crate::changelog_operators::added::add(&mut functions);
        crate::changelog_operators::add_wrong(&mut functions);
        slackwater::functions::install(functions).unwrap();
    });
}

/// Rows of each of two files.
const ROWS: u64 = 4_000;

/// How far times are out of order, in milliseconds; the watermark allows as much.
const DISORDER: u64 = 900;

/// A row: its time, key and value.
type Reading = (u64, Option<u64>, Option<i64>);

/// Readings of sensors in two files, out of order, with NULLs as keys and values.
fn readings() -> [Vec<Reading>; 2] {
    let mut seeded = Seeded(20_260);
    [0, 1].map(|_| {
        let row = |row: u64| {
            let ms = row * 20 + seeded.below(DISORDER);
            let key = seeded.below(60);
            // Some keys are silent for a while.
            let key = if key % 7 == row / 500 % 7 { 1 } else { key };
            let value = seeded.below(40) as i64 - 20;
            (ms, (key != 0).then_some(key), (value != 0).then_some(value))
        };
        (0..ROWS).map(row).collect()
    })
}

pub(crate) fn folder() -> Folder {
    let [one, two] = readings().map(|rows| {
        let text = |value: Option<String>| value.unwrap_or_default();
        let rows = rows.iter().map(|(ms, key, value)| {
            let key = text(key.map(|key| key.to_string()));
            let value = text(value.map(|value| value.to_string()));
            format!("{ms},{key},{value}\n")
        });
        rows.collect::<String>()
    });
    Folder::with(&[("in-1.csv", &one), ("in-2.csv", &two)])
}

/// The change detector: a value that differs by more than 15, and silences of two seconds.
const QUERY: &str = "
CREATE TABLE t (ms BIGINT, k INT, v INT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = '${IN}/in-?.csv', 'csv.null' = '');
CREATE TABLE o (k INT, ms BIGINT, old DOUBLE, new DOUBLE)
WITH ('connector' = 'file', 'path' = '${IN}/out.csv', 'overwrite' = 'true');
INSERT INTO o SELECT k, CAST(ts AS BIGINT), old, new
FROM changes(TABLE t PARTITION BY k ORDER BY ts, DESCRIPTOR(v), 15, silence => INTERVAL '2' SECOND);";

/// What the change detector gives, computed key by key.
pub(crate) fn expected() -> Vec<String> {
    let mut by_key = BTreeMap::<Option<u64>, Vec<(u64, usize, usize, Option<i64>)>>::new();
    for (file, rows) in readings().into_iter().enumerate() {
        for (place, (ms, key, value)) in rows.into_iter().enumerate() {
            by_key
                .entry(key)
                .or_default()
                .push((ms, file, place, value));
        }
    }
    let mut found = Vec::new();
    for (key, mut rows) in by_key {
        rows.sort();
        let key = key.map_or(String::new(), |key| key.to_string());
        let text = |value: Option<i64>| value.map_or(String::new(), |value| format!("{value}.0"));
        let mut last: Option<i64> = None;
        for (at, (ms, _, _, value)) in rows.iter().enumerate() {
            if let Some(value) = *value
                && last.is_none_or(|last| (value - last).abs() > 15)
            {
                found.push(format!("{key},{ms},{},{value}.0", text(last)));
                last = Some(value);
            }
            let silent_at = ms + 2_000;
            // A row at the time of the timer comes before it.
            if rows.get(at + 1).is_none_or(|next| next.0 > silent_at) {
                found.push(format!("{key},{silent_at},{},", text(last)));
                last = None;
            }
        }
    }
    found.sort();
    found
}

/// Runs a query at many settings, `cases` of them random, at which keys move: its rows are always the same.
pub fn check_at_many_settings(
    folder: &Folder,
    text: &str,
    expected: &[String],
    (seed, cases): (u64, usize),
) {
    let run = |settings: &[(&str, &str)], slow: Option<u64>| {
        let report = run_slowly(text, settings, slow).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((report.rows_late, report.rows_bad), (0, 0));
        let found = folder.sorted("out.csv");
        assert!(
            found == expected,
            "{settings:?}: {} rows, {} expected",
            found.len(),
            expected.len()
        );
        report
    };
    run(&[], None);
    run(&[("parallelism", "4"), ("chunk_rows", "7")], None);
    run(&[("parallelism", "2"), ("chunk_rows", "1")], None);
    let mut seeded = Seeded(seed);
    for _ in 0..if every_case() { 12 } else { cases } {
        // Worker processes of the plain program don't have the operators of a build.
        let settings = many_instances(&mut seeded, false);
        let settings = settings.iter().filter(|(key, _)| *key != "processes");
        let settings = settings.map(|(key, value)| (*key, value.as_str()));
        let settings = settings.collect::<Vec<(&str, &str)>>();
        let report = run(&settings, Some(seeded.below(1 << 40)));
        let moved = report.plan.rebalancing.map_or(0, |moved| moved.times);
        assert!(moved > 0, "keys move: {settings:?}");
    }
}

#[test]
fn a_change_detector_gives_the_same_answer_however_it_runs() {
    install();
    let folder = folder();
    let text = QUERY.replace("${IN}", &folder.path("").display().to_string());
    let expected = expected();
    let silences = expected.iter().filter(|row| row.ends_with(','));
    assert!(silences.count() > 100, "silences are tested");
    check_at_many_settings(&folder, &text, &expected, (41, 3));
}

#[test]
fn worker_processes_have_operators_and_checkpoints_keep_their_state() {
    let Some(program) = example("custom_operators") else {
        return;
    };
    let folder = folder();
    folder.write("query.sql", QUERY.replace("${IN}/", "").as_bytes());
    let expected = expected();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command
            .args(["run", "query.sql", "--quiet"])
            .args(arguments)
            .current_dir(folder.path(""));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(folder.sorted("out.csv") == expected, "{arguments:?}");
    };
    run(&[]);
    run(&["--processes", "2", "--parallelism", "4", "--link", "shm"]);
    run(&["--processes", "3", "--parallelism", "3", "--link", "tcp"]);
    std::fs::remove_file(folder.path("out.csv")).unwrap();
    let often = "checkpoint_interval=1ms";
    run(&["--state", "state", "--set", often, "--set", "chunk_rows=50"]);
}

#[test]
fn a_source_of_a_build_is_read_in_any_process_and_resumes() {
    let Some(program) = example("custom_operators") else {
        return;
    };
    let folder = Folder::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/custom_operators");
    let text = std::fs::read_to_string(format!("{example}/ticks.sql")).unwrap();
    let sink = "CREATE TABLE o (part INT, ms BIGINT, old DOUBLE, new DOUBLE)
                WITH ('connector' = 'file', 'path' = 'out.csv');\nINSERT INTO o ";
    let text = text.replace(
        "SELECT part, ts, old",
        &format!("{sink}SELECT part, CAST(ts AS BIGINT), old"),
    );
    folder.write("query.sql", text.as_bytes());
    let mut expected = Vec::new();
    for part in 0..3 {
        expected.push(format!("{part},0,,0.0"));
        expected.extend((1..4).map(|n| format!("{part},{},{}.0,{n}.0", n * 2500, n - 1)));
    }
    expected.sort();
    for arguments in [
        ["--parallelism", "1", "--set", "chunk_rows=64"],
        ["--processes", "2", "--parallelism", "2"],
        ["--state", "state", "--set", "checkpoint_interval=1ms"],
    ] {
        let mut command = Command::new(&program);
        command
            .args(["run", "query.sql", "--quiet"])
            .args(arguments);
        let output = command.current_dir(folder.path("")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        assert_eq!(folder.sorted("out.csv"), expected, "{arguments:?}");
        std::fs::remove_file(folder.path("out.csv")).unwrap();
    }
}

const TABLE: &str = "
CREATE TABLE t (ms BIGINT, k INT, x DOUBLE, y DOUBLE, n INT, name STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = '${IN}/in.csv', 'csv.null' = '', 'dead_letter' = '${IN}/dead.jsonl');
CREATE TABLE late (ms BIGINT, k INT, x DOUBLE, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = '${IN}/in.csv', 'csv.null' = '');
";

const INPUT: &str = "1000,1,0.5,0.5,1,a
2000,1,2.5,0.5,0,b
1500,2,-1,1,2,c
9000,2,1,1,3,d
2500,2,,1,1,late
10000,3,NaN,0,5000,bad
";

/// The rows that a query gives, with the numbers of late and bad rows.
fn rows_of(columns: &str, select: &str) -> (Vec<String>, u64, u64) {
    install();
    let folder = Folder::with(&[("in.csv", INPUT)]);
    let mut found = None;
    for settings in [
        [("parallelism", "1"), ("chunk_rows", "8192")],
        [("parallelism", "3"), ("chunk_rows", "1")],
    ] {
        let text = format!(
            "{TABLE}CREATE TABLE o ({columns})
             WITH ('connector' = 'file', 'path' = '${{IN}}/out.csv', 'overwrite' = 'true');
             INSERT INTO o {select};"
        );
        let text = text.replace("${IN}", &folder.path("").display().to_string());
        let report = run_text(&text, &settings).unwrap_or_else(|error| panic!("{error}"));
        let rows = folder.sorted("out.csv");
        let now = (rows, report.rows_late, report.rows_bad);
        assert_eq!(*found.get_or_insert(now.clone()), now, "{settings:?}");
    }
    found.unwrap()
}

#[test]
fn a_filter_keeps_rows_and_their_event_time() {
    let clipped = "FROM clip(TABLE t, 0, 0, x1 => 3, y1 => 0.5 + 0.5)";
    let (rows, late, bad) = rows_of("k INT, name STRING", &format!("SELECT k, name {clipped}"));
    assert_eq!(
        (rows, late, bad),
        (vec!["1,a".into(), "1,b".into(), "2,d".into()], 0, 0)
    );
    // Lateness is decided as without the operator: a row is late by the watermark of its own table.
    let windows = "SELECT CAST(window_start AS BIGINT), COUNT(*) FROM TUMBLE(TABLE (SELECT * FROM \
                   repeat_rows(TABLE (SELECT * FROM t WHERE n < 9), DESCRIPTOR(n))), DESCRIPTOR(ts), \
                   INTERVAL '1' SECOND) GROUP BY window_start, window_end";
    let (rows, late, _) = rows_of("ms BIGINT, n BIGINT", windows);
    assert_eq!((rows, late), (vec!["1000,3".into(), "9000,3".into()], 1));
}

#[test]
fn a_row_that_fails_is_rejected_alone() {
    let select = "SELECT name, copy FROM repeat_rows(TABLE t, DESCRIPTOR(n))";
    let (rows, _, bad) = rows_of("name STRING, copy BIGINT", select);
    let expected = ["a,1", "c,1", "c,2", "d,1", "d,2", "d,3", "late,1"];
    assert_eq!((rows, bad), (expected.map(str::to_string).to_vec(), 1));
    let select = "SELECT k, new FROM changes(TABLE t PARTITION BY k ORDER BY ts, DESCRIPTOR(x))";
    let (rows, late, bad) = rows_of("k INT, new DOUBLE", select);
    let expected = ["1,0.5", "1,2.5", "2,-1.0", "2,1.0"].map(str::to_string);
    assert_eq!((rows, late, bad), (expected.to_vec(), 1, 1));
}

#[test]
fn several_outputs_run_the_operator_once() {
    install();
    let folder = Folder::with(&[("in.csv", INPUT)]);
    let sink = |name: &str| {
        format!(
            "CREATE TABLE {name} (name STRING) WITH ('connector' = 'file', \
             'path' = '${{IN}}/{name}.csv', 'overwrite' = 'true');\n"
        )
    };
    let insert = |name: &str| {
        format!(
            "INSERT INTO {name} SELECT name FROM by_sign(TABLE t, DESCRIPTOR(x)) OUTPUT {name};\n"
        )
    };
    let names = ["positive", "negative", "other"];
    let text = format!(
        "{TABLE}{}{}",
        names.map(sink).concat(),
        names.map(insert).concat()
    );
    let text = text.replace("${IN}", &folder.path("").display().to_string());
    let report = run_text(&text, &[("chunk_rows", "2")]).unwrap();
    let found = names.map(|name| folder.sorted(&format!("{name}.csv")).join(" "));
    assert_eq!(found, ["a b d", "c", "bad late"]);
    let operators = report.plan.subqueries.iter();
    let operators = operators.flat_map(|subquery| &subquery.operators);
    let operators = operators.filter(|operator| operator.contains("operator"));
    assert_eq!(operators.count(), 1);
}

#[test]
fn a_scan_matcher_merges_two_tables() {
    install();
    let folder = Folder::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/custom_operators");
    for name in ["scans.jsonl", "odometry.jsonl"] {
        std::fs::copy(format!("{example}/{name}"), folder.path(name)).unwrap();
    }
    let text = std::fs::read_to_string(format!("{example}/scans.sql")).unwrap();
    let text = text.replace(
        "'path' = '",
        &format!("'path' = '{}", folder.path("").display()),
    );
    let sink = format!(
        "CREATE TABLE o (robot STRING, ms BIGINT, heading DOUBLE, drift DOUBLE)
         WITH ('connector' = 'file', 'path' = '{}', 'overwrite' = 'true');\nINSERT INTO o ",
        folder.path("out.csv").display()
    );
    let text = text.replace(
        "SELECT robot, ts,",
        &format!("{sink}SELECT robot, CAST(ts AS BIGINT),"),
    );
    // The true turns are 10 and -20 degrees a second.
    let mut expected = Vec::new();
    for second in 0..12_i64 {
        let drifts = if second == 0 {
            ["0.0", "0.0"]
        } else {
            ["3.0", "-2.5"]
        };
        for (robot, turn, drift) in [("r1", 10, drifts[0]), ("r2", -20, drifts[1])] {
            let heading = (turn * second).rem_euclid(360);
            expected.push(format!(
                "{robot},{},{heading}.0,{drift}",
                second * 1000 + 500
            ));
        }
    }
    expected.sort();
    for settings in [
        [("parallelism", "1"), ("chunk_rows", "8192")],
        [("parallelism", "3"), ("chunk_rows", "1")],
    ] {
        run_text(&text, &settings).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(folder.sorted("out.csv"), expected, "{settings:?}");
    }
}

/// The message and hint of a wrong query.
fn error(select: &str) -> String {
    install();
    let folder = Folder::with(&[("in.csv", INPUT)]);
    let table = TABLE.replace("${IN}", &folder.path("").display().to_string());
    run_text(&format!("{table}{select};"), &[]).unwrap_err()
}

#[test]
fn what_calls_get_wrong_is_said() {
    for (select, wanted) in [
        (
            "SELECT * FROM clip(TABLE t, 0, 0, 1)",
            "clip needs 'y1', a number",
        ),
        (
            "SELECT * FROM clip(TABLE t, 0, 0, 1, 'a')",
            "clip 'y1' must be a number, and is 'a'",
        ),
        (
            "SELECT * FROM clip(TABLE t, 0, 0, 1, 1, 1)",
            "takes 4 arguments after its tables, not 5",
        ),
        (
            "SELECT * FROM clip(TABLE t, 2, 0, 1, 1)",
            "clip needs x0 <= x1 and y0 <= y1",
        ),
        (
            "SELECT * FROM clip(TABLE t, 0, 0, x2 => 1)",
            "clip has no parameter 'x2'",
        ),
        (
            "SELECT * FROM clip(TABLE t, x, 0, 1, 1)",
            "arguments are constants; columns are given by DESCRIPTOR(a)",
        ),
        (
            "SELECT * FROM changes(TABLE t PARTITION BY k, n ORDER BY ts, DESCRIPTOR(x))",
            "several columns of PARTITION BY are written in parentheses",
        ),
        (
            "SELECT * FROM changes(TABLE t PARTITION BY k ORDER BY ts, x)",
            "arguments are constants; columns are given by DESCRIPTOR(a)",
        ),
        (
            "SELECT * FROM changes(TABLE t PARTITION BY k ORDER BY ts, DESCRIPTOR(x), least => 'a')",
            "changes(TABLE t [PARTITION BY k] [ORDER BY ts], value => DESCRIPTOR(…), least => …, ",
        ),
        (
            "SELECT * FROM clip(TABLE t PARTITION BY k, 0, 0, 1, 1)",
            "looks at each row alone, and has no PARTITION BY",
        ),
        (
            "SELECT * FROM clip(TABLE (SELECT k FROM t), 0, 0, 1, 1)",
            "clip needs a column 'x', and the table has k",
        ),
        (
            "SELECT * FROM clip(TABLE t, TABLE t, 0, 0, 1, 1)",
            "takes one table, not 2",
        ),
        (
            "SELECT * FROM clips(TABLE t, 0, 0, 1, 1)",
            "did you mean clip?",
        ),
        (
            "SELECT * FROM by_sign(TABLE t, DESCRIPTOR(x))",
            "say which one is read: by_sign(…) OUTPUT positive",
        ),
        (
            "SELECT * FROM by_sign(TABLE t, DESCRIPTOR(x)) OUTPUT positiv",
            "did you mean 'positive'?",
        ),
        (
            "SELECT * FROM by_sign(TABLE t, DESCRIPTOR(name)) OUTPUT other",
            "of type DOUBLE, and it is STRING",
        ),
        (
            "SELECT * FROM changes(TABLE t PARTITION BY k, DESCRIPTOR(x), silence => INTERVAL '1' SECOND)",
            "changes needs an order: TABLE t PARTITION BY k ORDER BY ts",
        ),
        (
            "SELECT * FROM changes(TABLE t PARTITION BY k ORDER BY ms, DESCRIPTOR(x))",
            "'ms' is BIGINT, not an event time",
        ),
        (
            "SELECT * FROM changes(TABLE t PARTITION BY k ORDER BY ts DESC, DESCRIPTOR(x))",
            "remove DESC",
        ),
        (
            "SELECT * FROM changes(TABLE (SELECT k, ts + INTERVAL '1' DAY AS ts, x FROM t) PARTITION BY k \
             ORDER BY ts, DESCRIPTOR(x))",
            "ORDER BY needs the event time, and 'ts' is not one",
        ),
        (
            "SELECT * FROM changes(TABLE (SELECT k, COUNT(*) AS x FROM t GROUP BY k) PARTITION BY k, \
             DESCRIPTOR(x))",
            "changes needs rows that never change, and these are updated or retracted",
        ),
        (
            "SELECT * FROM match_scans(TABLE t PARTITION BY k ORDER BY ts)",
            "the form is match_scans(TABLE t1 [PARTITION BY k] [ORDER BY ts], TABLE t2 [",
        ),
        (
            "SELECT * FROM repeat_rows(TABLE (SELECT n, k AS copy FROM t), DESCRIPTOR(n))",
            "repeat_rows adds a column 'copy', and its table has one of that name",
        ),
        ("SELECT * FROM clip(0, 0, 1, 1)", "needs a table: TABLE t"),
    ] {
        let shown = error(select);
        assert!(
            shown.contains(wanted),
            "{select}:\n{shown}\nand not: {wanted}"
        );
        assert!(shown.starts_with("test.sql:"), "{shown}");
    }
}
