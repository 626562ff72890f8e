//! Operators in queries whose processes are killed at random moments and which are started again, at another
//! parallelism, over other links, with keys that move: what they have written is that of a run that nobody
//! disturbed (I6). Whole queries over real data are in [`crate::crash`].

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::crash::{Trial, compare, parts, rounds_long, start_program};
use crate::standby;
use crate::support::{Seeded, left_of};

/// How long an undisturbed run takes.
const RUN_S: f64 = 1.0;

/// `SLACKWATER_ROUNDS` sets another number.
const ROUNDS: u64 = 2;

const KILLS_MAX: u64 = 3;

/// Nothing takes longer, restarts included.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often checkpoints are taken.
const INTERVALS: [&str; 3] = ["20 ms", "50 ms", "100 ms"];

/// Rows of each file of `a`, and of the one of `b`.
const ROWS: u64 = 1_200;

const TABLES: &str = "
CREATE TABLE a (ms BIGINT, k STRING, v BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '0.03' SECOND) WITH ('connector' = 'file', 'path' = \
  '${IN}/a-?.csv'${RATE_A});
CREATE TABLE b (ms BIGINT, k STRING, v BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '0.03' SECOND) WITH ('connector' = 'file', 'path' = \
  '${IN}/b.csv'${RATE_B});
";

/// Whether standbys continue instead, for `make test-slow`.
fn with_standbys() -> bool {
    std::env::var_os("SLACKWATER_STANDBYS").is_some()
}

/// A query, and the folders that it writes: as they are, or as a changelog.
struct Case<'q> {
    name: &'static str,
    query: &'q str,
    plain: &'static [&'static str],
    changelogs: &'static [&'static str],
    program: PathBuf,
}

/// Rows whose times are out of order by up to 90 ms, of which the tables' watermarks allow 30.
fn inputs(folder: &Path) {
    let row = |row: u64, spread: u64, keys: u64| {
        let ms = 1_700_000_000_000 + row * 10 + (row.wrapping_mul(2_654_435_761) >> 9) % spread;
        format!("{ms},k{},{row}\n", row * row % keys)
    };
    let write = |name: &str, rows: &mut dyn Iterator<Item = String>| {
        std::fs::write(folder.join(name), rows.collect::<String>()).unwrap();
    };
    write("a-1.csv", &mut (0..ROWS).map(|n| row(n * 2, 90, 41)));
    write("a-2.csv", &mut (0..ROWS).map(|n| row(n * 2 + 1, 80, 37)));
    write("b.csv", &mut (0..ROWS).map(|n| row(n * 2, 70, 31)));
}

impl Case<'_> {
    fn text(&self, inputs: &Path, out: &Path, is_paced: bool) -> String {
        let rate = |rows: u64| match is_paced {
            true => format!(", 'replay_rate' = '{:.0}'", rows as f64 / RUN_S),
            false => String::new(),
        };
        let text = format!("{TABLES}{}", self.query);
        text.replace("${IN}", &inputs.display().to_string())
            .replace("${OUT}", &out.display().to_string())
            .replace("${RATE_A}", &rate(2 * ROWS))
            .replace("${RATE_B}", &rate(ROWS))
    }

    /// What stands in each of the folders.
    fn written(&self, out: &Path) -> Vec<(&'static str, Vec<String>)> {
        let rows = |name: &str| {
            let mut rows = Vec::new();
            for part in parts(&out.join(name)) {
                let text = std::fs::read_to_string(part).unwrap();
                rows.extend(text.lines().map(str::to_string));
            }
            rows.sort();
            rows
        };
        let plain = self.plain.iter().map(|&name| (name, rows(name)));
        let changelogs = self.changelogs.iter();
        let changelogs = changelogs.map(|&name| (name, left_of(&rows(name), ',')));
        plain.chain(changelogs).collect()
    }

    fn expected(&self, folder: &Path) -> Vec<(&'static str, Vec<String>)> {
        let out = folder.join("whole");
        std::fs::create_dir(&out).unwrap();
        std::fs::write(folder.join("whole.sql"), self.text(folder, &out, false)).unwrap();
        let ran = Command::new(&self.program)
            .args(["run", "whole.sql", "--quiet"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "{}: {said}", self.name);
        let expected = self.written(&out);
        for (name, rows) in &expected {
            assert!(
                rows.len() > 20,
                "{}, {name}: {} rows",
                self.name,
                rows.len()
            );
        }
        expected
    }

    /// Kills it now and then, and starts it again.
    fn kill(&self, title: &str, query: &Path, folder: &Path, seeded: &mut Seeded) -> String {
        let trial = Trial {
            title: title.to_string(),
            kills_max: KILLS_MAX,
            run_s: RUN_S,
            patience: PATIENCE,
        };
        let start = |seeded: &mut Seeded| {
            start_program(&self.program, query, folder, &INTERVALS, false, seeded)
        };
        let ran = trial.run(seeded, start, |_, _| None);
        assert!(ran.parents + ran.workers > 0, "{title}: {}", ran.log);
        ran.log
    }

    fn check(&self) {
        let folder = tempfile::tempdir().unwrap();
        inputs(folder.path());
        let expected = self.expected(folder.path());
        for round in 0..rounds_long(ROUNDS) {
            let mut seeded = Seeded(round * 7_919 + 17);
            let of_round = folder.path().join(format!("round{round}"));
            std::fs::create_dir(&of_round).unwrap();
            let query = of_round.join("query.sql");
            std::fs::write(&query, self.text(folder.path(), &of_round, true)).unwrap();
            let title = format!("{}, round {round}", self.name);
            let log = match with_standbys() {
                true => standby::crash::Trial {
                    program: &self.program,
                    title: title.clone(),
                    query: &query,
                    folder: &of_round,
                    only_last: false,
                    seeded,
                }
                .run(),
                false => self.kill(&title, &query, &of_round, &mut seeded),
            };
            for ((name, found), (_, expected)) in self.written(&of_round).into_iter().zip(&expected)
            {
                let title = format!("{title}, {name}");
                compare(&title, found, expected, &log);
            }
        }
    }
}

fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_slackwater").into()
}

#[test]
fn joins_within_an_interval_go_on_when_they_are_killed() {
    let case = Case {
        name: "interval join",
        query: "
CREATE TABLE pairs (ms BIGINT, k STRING, v BIGINT, w BIGINT) WITH ('connector' = 'file', 'path' = \
'${OUT}/pairs');
INSERT INTO pairs SELECT COALESCE(a.ms, b.ms), COALESCE(a.k, b.k), a.v, b.v FROM a FULL JOIN b
ON a.k = b.k AND b.ts > a.ts - INTERVAL '0.3' SECOND AND b.ts <= a.ts + INTERVAL '0.2' SECOND;",
        plain: &["pairs"],
        changelogs: &[],
        program: program(),
    };
    case.check();
}

#[test]
fn over_goes_on_when_it_is_killed() {
    let case = Case {
        name: "OVER",
        query: "
CREATE TABLE rows_before (ms BIGINT, k STRING, last_four BIGINT, before BIGINT, n BIGINT, lately BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}/rows_before');
INSERT INTO rows_before SELECT ms, k, SUM(v) OVER last_four, LAG(v, 2) OVER last_four,
  ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts),
  SUM(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW)
FROM a WINDOW last_four AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW);",
        plain: &["rows_before"],
        changelogs: &[],
        program: program(),
    };
    case.check();
}

/// Windows are emitted before they close and after it; what is later goes to a table of its own.
#[test]
fn windows_that_are_emitted_again_go_on_when_they_are_killed() {
    let case = Case {
        name: "early firing and allowed lateness",
        query: "
CREATE TABLE totals (start_ms BIGINT, k STRING, n BIGINT, total BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}/totals', 'changelog' = 'op');
CREATE TABLE too_late (ms BIGINT, k STRING, v BIGINT) WITH ('connector' = 'file', 'path' = '${OUT}/too_late');
SET 'emit' = 'every 5 ms';
SET 'allowed_lateness' = '10 ms';
SET 'late_rows' = 'too_late';
INSERT INTO totals SELECT CAST(window_start AS BIGINT), k, COUNT(*), SUM(v)
FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '0.1' SECOND) GROUP BY window_start, window_end, k;",
        plain: &["too_late"],
        changelogs: &["totals"],
        program: program(),
    };
    case.check();
}

/// (Sessions know neither `emit` nor `allowed_lateness`: their edges change.)
#[test]
fn sessions_and_their_late_rows_go_on_when_they_are_killed() {
    let case = Case {
        name: "sessions and late rows",
        query: "
CREATE TABLE visits (start_ms BIGINT, end_ms BIGINT, k STRING, n BIGINT, total BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}/visits');
CREATE TABLE too_late (ms BIGINT, k STRING, v BIGINT) WITH ('connector' = 'file', 'path' = '${OUT}/too_late');
SET 'late_rows' = 'too_late';
INSERT INTO visits SELECT CAST(window_start AS BIGINT), CAST(window_end AS BIGINT), k, COUNT(*), SUM(v)
FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '0.02' SECOND) GROUP BY window_start, \
window_end, k;",
        plain: &["visits", "too_late"],
        changelogs: &[],
        program: program(),
    };
    case.check();
}

/// In windows, and over rows that are taken back.
#[test]
fn aggregates_of_a_build_go_on_when_they_are_killed() {
    let Some(program) = crate::functions::example_program() else {
        return;
    };
    let case = Case {
        name: "user-defined aggregates",
        query: "
CREATE TABLE averages (start_ms BIGINT, k STRING, average DOUBLE, longest STRING)
WITH ('connector' = 'file', 'path' = '${OUT}/averages');
CREATE TABLE of_counts (k STRING, average DOUBLE, longest STRING)
WITH ('connector' = 'file', 'path' = '${OUT}/of_counts', 'changelog' = 'op');
INSERT INTO averages SELECT CAST(window_start AS BIGINT), k, WEIGHTED_AVERAGE(v, v % 7), LONGEST(CAST(v AS \
STRING))
FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY window_start, window_end, k;
INSERT INTO of_counts SELECT k, WEIGHTED_AVERAGE(n, d), LONGEST(CAST(n AS STRING))
FROM (SELECT k, v % 10 AS d, COUNT(*) AS n FROM a GROUP BY k, v % 10) AS counts GROUP BY k;",
        plain: &["averages"],
        changelogs: &["of_counts"],
        program,
    };
    case.check();
}

/// With timers, of one input and of two, with several outputs, and over rows that change.
#[test]
fn operators_of_a_build_go_on_when_they_are_killed() {
    let Some(program) = crate::functions::example("custom_operators") else {
        return;
    };
    let case = Case {
        name: "custom operators",
        query: "
CREATE TABLE changed (k STRING, ms BIGINT, old DOUBLE, new DOUBLE)
WITH ('connector' = 'file', 'path' = '${OUT}/changed');
CREATE TABLE matched (k STRING, ms BIGINT, heading DOUBLE, drift DOUBLE)
WITH ('connector' = 'file', 'path' = '${OUT}/matched');
CREATE TABLE odd (ms BIGINT, v BIGINT) WITH ('connector' = 'file', 'path' = '${OUT}/odd');
CREATE TABLE counted (start_ms BIGINT, n BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}/counted');
CREATE VIEW changes_of_a AS SELECT k, ts, old, new
FROM changes(TABLE a PARTITION BY k ORDER BY ts, DESCRIPTOR(v), 20, silence => INTERVAL '0.2' SECOND);
INSERT INTO changed SELECT k, CAST(ts AS BIGINT), old, new FROM changes_of_a;
INSERT INTO counted SELECT CAST(window_start AS BIGINT), COUNT(*)
FROM TUMBLE(TABLE changes_of_a, DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY window_start, window_end;
INSERT INTO matched SELECT k, CAST(ts AS BIGINT), heading, drift FROM match_scans(
  TABLE (SELECT k, ts, ARRAY[CAST(v % 7 AS DOUBLE), CAST(v % 5 AS DOUBLE), 0.5] AS ranges FROM a)
  PARTITION BY k ORDER BY ts,
  TABLE (SELECT k, ts, CAST(v % 3 AS DOUBLE) AS turn FROM b) PARTITION BY k ORDER BY ts, search => 130);
INSERT INTO odd SELECT ms, v
FROM by_sign(TABLE (SELECT *, v % 2 AS r FROM a), DESCRIPTOR(r)) OUTPUT positive;
CREATE TABLE of_counts (d BIGINT, n BIGINT, total BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}/of_counts', 'changelog' = 'op');
INSERT INTO of_counts SELECT * FROM totals(
  TABLE (SELECT k, v % 100 AS d, COUNT(*) AS c FROM a GROUP BY k, v % 100) PARTITION BY d, DESCRIPTOR(c));",
        plain: &["changed", "matched", "odd", "counted"],
        changelogs: &["of_counts"],
        program,
    };
    case.check();
}

/// With timers, of one input and of two, without a state, and over rows that change.
#[test]
fn operators_in_python_go_on_when_they_are_killed() {
    let query = "
CREATE FUNCTION latest(t TABLE (v BIGINT), u TABLE (v BIGINT)) RETURNS TABLE (v BIGINT, of_b BIGINT)
STATE (of_b BIGINT, seen ARRAY<BIGINT>) LANGUAGE python AS $$
class latest:
    def on_row(self, state, row, out):
        state.seen = ((state.seen or []) + [row.v])[-3:]
        if out.input == 1:
            state.of_b = row.v
        else:
            out.emit(sum(state.seen), state.of_b)
$$;
CREATE FUNCTION halves(t TABLE (v BIGINT)) RETURNS TABLE (half BIGINT) LANGUAGE python AS $$
def halves(v):
    if v % 3:
        yield v // 2
        yield v - v // 2
$$;
CREATE TABLE changed (k STRING, ms BIGINT, old DOUBLE, new DOUBLE)
WITH ('connector' = 'file', 'path' = '${OUT}/changed');
CREATE TABLE matched (k STRING, ms BIGINT, v BIGINT, of_b BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}/matched');
CREATE TABLE halved (ms BIGINT, half BIGINT) WITH ('connector' = 'file', 'path' = '${OUT}/halved');
INSERT INTO changed SELECT k, CAST(ts AS BIGINT), old, new
FROM jumps(TABLE (SELECT k, ts, CAST(v AS DOUBLE) AS v FROM a) PARTITION BY k ORDER BY ts, 20,
  silence => INTERVAL '0.2' SECOND);
INSERT INTO matched SELECT k, CAST(ts AS BIGINT), v, of_b
FROM latest(TABLE a PARTITION BY k ORDER BY ts, TABLE b PARTITION BY k ORDER BY ts);
INSERT INTO halved SELECT ms, half FROM halves(TABLE a);
CREATE TABLE of_counts (d BIGINT, n BIGINT, total BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}/of_counts', 'changelog' = 'op');
INSERT INTO of_counts SELECT * FROM py_totals(
  TABLE (SELECT k, v % 100 AS d, COUNT(*) AS s FROM a GROUP BY k, v % 100) PARTITION BY d);";
    let declared = [
        crate::python_operators::JUMPS,
        crate::changelog_operators::TOTALS_IN_PYTHON,
    ];
    let case = Case {
        name: "operators in Python",
        query: &format!("{}{query}", declared.concat()),
        plain: &["changed", "matched", "halved"],
        changelogs: &["of_counts"],
        program: program(),
    };
    case.check();
}
