//! `run --state`: what is saved, what a query goes on from, and what is refused.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use slackwater::report::Report;
use slackwater::run::{Failure, Finished, Outcome, RunOptions, StateOptions, run};

/// Rows of the input; at [`RATE`] they take a second and a half.
const ROWS: u64 = 30_000;
const RATE: u64 = 20_000;

/// A folder with an input, and a query over it.
struct Case {
    folder: tempfile::TempDir,
    /// What stands between the tables and the end of the text.
    query: String,
    /// Rows per second.
    rate: u64,
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
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self) -> String {
        let (folder, rate) = (self.folder.path().display(), self.rate);
        format!(
            "CREATE TABLE events (ms BIGINT, k STRING, v BIGINT,
               ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '0.1' SECOND)
             WITH ('connector' = 'file', 'path' = '{folder}/in.csv', 'csv.header' = 'true',
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
    assert!(newest.contains("events goes on at 30,00"), "{listed}");
    assert!(
        newest.ends_with("the query has come to its end"),
        "{listed}"
    );
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
    assert!(reason.contains("can't go on from checkpoint"), "{reason}");
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
    // From then on it goes on from its own.
    let report = case.run(&[], false).unwrap().report;
    assert!(report.restored_from.is_some());
    assert_eq!(case.counts(), case.expected());
    case.query
        .push_str("\nINSERT INTO copies SELECT ms, k, v FROM events;");
    case.run(&[], false).unwrap();
}

#[test]
fn what_is_corrupt_is_passed_over_with_a_warning() {
    let case = Case::new(COUNTS);
    for damage in ["manifest", "part"] {
        case.run_for(Some(300), &[], false).unwrap();
        let newest = case.checkpoints().pop().unwrap();
        let manifest = std::fs::read_to_string(&newest).unwrap();
        let damaged = match damage {
            "manifest" => newest,
            _ => {
                let name = manifest.split("\"object\":\"").last().unwrap();
                case.path("state").join(name.split('"').next().unwrap())
            }
        };
        let mut bytes = std::fs::read(&damaged).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&damaged, bytes).unwrap();
        let output = case.program(&["--state", "state", "--duration", "100ms"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert!(
            said.contains("warning:") && said.contains("may come again"),
            "{said}"
        );
        let name = damaged.file_name().unwrap().to_string_lossy().into_owned();
        assert!(said.contains(&name), "{said}");
    }
}

#[test]
fn where_no_checkpoint_can_be_read_nothing_is_begun() {
    let case = Case::new(COUNTS);
    case.run_for(Some(300), &[], false).unwrap();
    for checkpoint in case.checkpoints() {
        std::fs::write(checkpoint, "").unwrap();
    }
    let before = case.counts();
    let output = case.program(&["--state", "state", "--duration", "100ms"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no checkpoint in"), "{said}");
    assert!(said.contains("--from-scratch"), "{said}");
    assert_eq!(case.counts(), before);
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
        error.contains("unit by unit") && error.contains("test.sql:4"),
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
        said.contains("print: rows since the last checkpoint come again"),
        "{said}"
    );
}

#[test]
fn operators_that_hold_too_much_end_the_query_with_its_state_saved() {
    let case = Case::new("INSERT INTO copies SELECT MAX(ms), MAX(k), v FROM events GROUP BY v;");
    let limit = ("memory_limit", "600 KB");
    let (reason, report) = failed(case.run(&[limit], false));
    assert!(
        reason.contains("KB, over 600.0 KB") && reason.contains("aggregate #"),
        "{reason}"
    );
    assert!(reason.contains("all that was read is saved"), "{reason}");
    assert!(report.checkpoints.unwrap().stored > 0);
    // It was saved with everything that was read: nothing comes twice, nothing is missing.
    let rest = case
        .run(&[("processes", "2"), ("parallelism", "2")], false)
        .unwrap();
    assert_eq!(report.rows_in + rest.report.rows_in, ROWS);
    let copies = std::fs::read_to_string(case.path("copies.csv")).unwrap();
    assert_eq!(copies.lines().count() as u64, ROWS);
    // Without checkpoints it just ends.
    let output = case.program(&["--set", "memory_limit=600 KB", "--set", "chunk_rows=512"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("copies.csv exists already") || output.status.code() == Some(2),
        "{said}"
    );
    std::fs::remove_file(case.path("copies.csv")).unwrap();
    let output = case.program(&["--set", "memory_limit=600 KB"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("set a larger one"), "{said}");
}

/// A small file system of its own; gone when it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` for who may not mount one.
    fn mount(place: &Path) -> Option<SmallDisk> {
        std::fs::create_dir(place).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]);
        let mounted = mount.arg(place).stderr(Stdio::null()).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(SmallDisk(place.to_path_buf()));
        }
        eprintln!("skipped: no file system can be mounted here");
        None
    }

    fn fill(&self) {
        use std::io::Write;
        let mut filler = std::fs::File::create(self.0.join("filler")).unwrap();
        while filler.write_all(&[1; 512]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_ends_the_query_with_the_reason_and_nothing_is_lost() {
    let mut case = Case::new(COUNTS);
    case.rate = RATE / 2;
    let Some(disk) = SmallDisk::mount(&case.path("disk")) else {
        return;
    };
    let output = std::thread::scope(|scope| {
        let running = scope.spawn(|| case.program(&["--state", "disk"]));
        let until = Instant::now() + Duration::from_secs(20);
        let third = case.path("disk/checkpoints/00000000000000000003.json");
        while !third.exists() {
            assert!(Instant::now() < until, "no checkpoint came");
            std::thread::sleep(Duration::from_millis(5));
        }
        disk.fill();
        running.join().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("6 checkpoints in a row failed"), "{said}");
    assert!(
        said.contains("disk") && said.contains("No space left"),
        "{said}"
    );
    let expected = case.expected();
    let committed = case.counts();
    assert!(
        committed.len() < expected.len(),
        "it did not get to its end"
    );
    std::fs::remove_file(disk.0.join("filler")).unwrap();
    let output = case.program(&["--state", "disk", "--parallelism", "2"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(case.counts(), expected);
}

/// Joins with a table that ends, with versions of one that changes, of two windowed streams and within an
/// interval; a UNION; and OVER: each stopped again and again, at another parallelism each time.
#[test]
fn joins_and_unions_go_on_where_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, rows: &mut dyn Iterator<Item = String>| {
        let text = rows.collect::<Vec<String>>().join("\n");
        std::fs::write(folder.path().join(name), text + "\n").unwrap();
    };
    let begin = 1_700_000_000_000u64;
    let ms = |row: u64, spread: u64| begin + row * 10 + (row * 7919) % spread;
    write(
        "a.csv",
        &mut (0..4000).map(|row| format!("{},k{},{row}", ms(row, 90), row * row % 41)),
    );
    write(
        "b.csv",
        &mut (0..2000).map(|row| format!("{},k{},{row}", ms(row * 2, 90), row * row % 37)),
    );
    write(
        "t.csv",
        &mut (0..30).map(|row| format!("k{row},{}", row * row)),
    );
    let tables = |folder: &Path, rates: (&str, &str)| {
        let folder = folder.display();
        format!(
            "CREATE TABLE a (ms BIGINT, k STRING, v BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
               WATERMARK FOR ts AS ts - INTERVAL '0.1' SECOND)
             WITH ('connector' = 'file', 'path' = '{folder}/a.csv' {});
             CREATE TABLE b (ms BIGINT, k STRING, v BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
               WATERMARK FOR ts AS ts - INTERVAL '0.1' SECOND)
             WITH ('connector' = 'file', 'path' = '{folder}/b.csv' {});
             CREATE TABLE t (k STRING, w BIGINT)
             WITH ('connector' = 'file', 'path' = '{folder}/t.csv');",
            rates.0, rates.1
        )
    };
    let queries = [
        "SELECT a.ms, a.k, a.v, t.w FROM a JOIN t ON a.k = t.k",
        "SELECT a.ms, a.k, a.v, b.v FROM a LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k",
        "SELECT CAST(x.window_start AS BIGINT), x.k, x.v, y.v
         FROM (SELECT * FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND)) x
         FULL JOIN (SELECT * FROM TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '1' SECOND)) y
         ON x.k = y.k AND x.window_start = y.window_start AND x.window_end = y.window_end",
        "SELECT ms, k, v, v FROM a UNION ALL SELECT ms, k, v, v FROM b",
        "SELECT COALESCE(a.ms, b.ms), COALESCE(a.k, b.k), a.v, b.v FROM a FULL JOIN b
         ON a.k = b.k AND b.ts > a.ts - INTERVAL '0.3' SECOND AND b.ts <= a.ts + INTERVAL '0.2' SECOND",
        "SELECT ms, k, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW),
         LAG(v, 5) OVER (PARTITION BY k ORDER BY ts) FROM a",
        "SELECT ms, k, COUNT(*) OVER (PARTITION BY k ORDER BY ts),
         SUM(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW) FROM a",
    ];
    let mut seeded = crate::support::Seeded(4711);
    for (nth, query) in queries.into_iter().enumerate() {
        let out = |name: String| folder.path().join(name);
        let sink = |out: &Path| {
            format!(
                "CREATE TABLE o (ms BIGINT, k STRING, v BIGINT, w BIGINT)
                 WITH ('connector' = 'file', 'path' = '{}');\nINSERT INTO o {query};",
                out.display()
            )
        };
        let rows_in = |out: &Path| {
            let parts = std::fs::read_dir(out).unwrap();
            let texts = parts.map(|part| std::fs::read_to_string(part.unwrap().path()).unwrap());
            let texts = texts.collect::<String>();
            let mut rows = texts.lines().map(str::to_string).collect::<Vec<String>>();
            rows.sort();
            rows
        };
        let whole = out(format!("whole{nth}"));
        let text = tables(folder.path(), ("", "")) + &sink(&whole);
        crate::support::run_text(&text, &[]).unwrap();
        let expected = rows_in(&whole);
        assert!(expected.len() > 1000);
        let saved = out(format!("saved{nth}"));
        let rates = (", 'replay_rate' = '4000'", ", 'replay_rate' = '2000'");
        let text = tables(folder.path(), rates) + &sink(&saved);
        for round in 0..5 {
            let parallelism = 1 + seeded.below(4);
            let processes = 1 + seeded.below(parallelism.min(2));
            let settings = [
                ("checkpoint_interval", "30 ms".to_string()),
                ("parallelism", parallelism.to_string()),
                ("workers", parallelism.to_string()),
                ("processes", processes.to_string()),
                ("chunk_rows", (10 + seeded.below(500)).to_string()),
                ("rebalance", "shuffle".to_string()),
            ];
            let settings = settings.map(|(key, value)| (key.to_string(), value));
            let options = RunOptions {
                settings: settings.to_vec(),
                duration: (round < 4).then(|| Duration::from_millis(100 + seeded.below(150))),
                program: Some(env!("CARGO_BIN_EXE_slackwater").into()),
                state: Some(StateOptions {
                    place: out(format!("state{nth}")).display().to_string(),
                    from_scratch: false,
                }),
                ..RunOptions::default()
            };
            match run("test.sql", &text, &options) {
                Ok(Outcome::Finished(_)) => {}
                other => panic!("{query}, {settings:?}: {other:?}"),
            }
        }
        let found = rows_in(&saved);
        assert!(
            found == expected,
            "{query}: {} rows, {} expected",
            found.len(),
            expected.len()
        );
    }
}

#[test]
fn regression_a_pipe_brings_what_it_has_not_brought_before() {
    let folder = tempfile::tempdir().unwrap();
    let text = "CREATE TABLE i (k STRING, v INT) WITH ('connector' = 'stdin');
         CREATE TABLE o (k STRING, v INT) WITH ('connector' = 'file', 'path' = 'o');
         INSERT INTO o SELECT k, v FROM i;";
    std::fs::write(folder.path().join("query.sql"), text).unwrap();
    let pipe = |rows: std::ops::Range<u64>, stays: bool| {
        let mut run = Command::new(env!("CARGO_BIN_EXE_slackwater"))
            .args(["run", "query.sql", "--quiet", "--state", "state"])
            .args(if stays {
                &["--duration", "300ms"][..]
            } else {
                &[]
            })
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = run.stdin.take().unwrap();
        for row in rows {
            std::io::Write::write_all(&mut input, format!("a,{row}\n").as_bytes()).unwrap();
        }
        if stays {
            assert!(run.wait().unwrap().success());
        } else {
            drop(input);
            assert!(run.wait().unwrap().success());
        }
    };
    pipe(0..5, true);
    pipe(5..9, false);
    let mut rows = Vec::new();
    for part in std::fs::read_dir(folder.path().join("o")).unwrap() {
        let text = std::fs::read_to_string(part.unwrap().path()).unwrap();
        rows.extend(text.lines().map(str::to_string));
    }
    rows.sort();
    assert_eq!(
        rows,
        (0..9).map(|row| format!("a,{row}")).collect::<Vec<_>>()
    );
}

/// Starts the command line's program, kills or signals it with `end` a little later, and returns what it
/// said.
fn interrupted(case: &Case, arguments: &[&str], end: &[rustix::process::Signal]) -> Output {
    let query = case.path("query.sql");
    std::fs::write(&query, case.text()).unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_slackwater"))
        .arg("run")
        .arg(&query)
        .args(["--quiet", "--state", "state"])
        .args(arguments)
        .current_dir(case.folder.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It has begun when it has claimed the place of its checkpoints, and written something.
    let until = Instant::now() + Duration::from_secs(20);
    while !case
        .path("state/checkpoints/00000000000000000001.json")
        .exists()
    {
        assert!(Instant::now() < until, "it did not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(150));
    let pid = rustix::process::Pid::from_raw(run.id() as i32).unwrap();
    for &signal in end {
        rustix::process::kill_process(pid, signal).unwrap();
    }
    run.wait_with_output().unwrap()
}

#[test]
fn regression_a_death_before_the_first_checkpoint_does_not_lock_the_output() {
    use rustix::process::Signal;
    let case = Case::new("INSERT INTO copies SELECT ms, k, v FROM events;");
    for _ in 0..2 {
        interrupted(&case, &["--set", "checkpoint_interval=1h"], &[Signal::KILL]);
    }
    case.run(&[], false).unwrap();
    let copies = std::fs::read_to_string(case.path("copies.csv")).unwrap();
    assert_eq!(copies.lines().count() as u64, ROWS);
    // What is of others is refused before anything is claimed, however often it is tried.
    let case = Case::new("INSERT INTO copies SELECT ms, k, v FROM events;");
    std::fs::write(case.path("copies.csv"), "mine").unwrap();
    for _ in 0..2 {
        let reason = refused(case.run(&[], false));
        assert!(reason.contains("copies.csv exists already"), "{reason}");
    }
    assert_eq!(
        std::fs::read_to_string(case.path("copies.csv")).unwrap(),
        "mine"
    );
    let claims = std::fs::read_dir(case.path("state/checkpoints"));
    assert_eq!(claims.map_or(0, |claims| claims.count()), 0);
}

#[test]
fn regression_the_same_signal_twice_is_one_and_saves() {
    use rustix::process::Signal;
    let case = Case::new(COUNTS);
    let output = interrupted(&case, &[], &[Signal::INT, Signal::INT]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let finished = case.run(&[], false).unwrap();
    assert!(finished.report.restored_from.is_some());
    assert!(finished.report.rows_in < ROWS, "nothing was saved");
    assert_eq!(case.counts(), case.expected());
}

#[test]
fn regression_output_that_is_gone_is_said_at_once() {
    let case = Case::new("INSERT INTO copies SELECT ms, k, v FROM events;");
    case.run_for(Some(300), &[], false).unwrap();
    std::fs::remove_file(case.path(".copies.csv.unfinished")).unwrap();
    let (reason, report) = failed(case.run(&[], false));
    assert!(reason.contains("copies.csv: neither it nor"), "{reason}");
    assert_eq!(report.restarts, 0);
    // The input, too.
    let case = Case::new(COUNTS);
    case.run_for(Some(300), &[], false).unwrap();
    std::fs::write(case.path("in.csv"), "ts,k,v\n").unwrap();
    let (reason, report) = failed(case.run(&[], false));
    assert!(
        reason.contains("in.csv") && reason.contains("read before"),
        "{reason}"
    );
    assert_eq!(report.restarts, 0);
}
