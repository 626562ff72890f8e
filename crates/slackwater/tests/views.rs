//! Materialized views: rows at cuts while the query runs, over random settings, after stops and failures.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use slackwater::run::{Failure, Outcome, RunOptions, StateOptions, run};
use slackwater::views::{Changes, Cut, Ending, Next, NotRead, Views};
use slackwater_engine::chunk::RowKind;
use slackwater_engine::expression::row_text;

use crate::support::Seeded;

/// Rows of each file.
const ROWS: u64 = 4_000;

const LIMIT: Duration = Duration::from_secs(30);

/// The key and the value of a row of file `file`.
fn row(file: u64, id: u64) -> (u64, u64) {
    let mixed = (id + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ file) >> 33;
    (mixed % 37, mixed / 37 % 1000)
}

/// The views, over two tables that grow for about a second.
fn text(folder: &Path, rate: u64) -> String {
    let mut text = String::new();
    for file in 0..2 {
        let mut rows = String::from("id,k,v,ms\n");
        for id in 0..ROWS {
            let (k, v) = row(file, id);
            writeln!(rows, "{id},{k},{v},{}", 1_700_000_000_000 + id).unwrap();
        }
        let path = folder.join(format!("in{file}.csv"));
        std::fs::write(&path, rows).unwrap();
        writeln!(
            text,
            "CREATE TABLE in{file} (id BIGINT, k BIGINT, v BIGINT, ms BIGINT,
              ts AS TO_TIMESTAMP_LTZ(ms, 3),
              WATERMARK FOR ts AS ts)
              WITH ('connector' = 'file', 'path' = '{}', 'replay_rate' = '{rate}/s');",
            path.display()
        )
        .unwrap();
    }
    text + "CREATE MATERIALIZED VIEW seen0 AS SELECT COUNT(*) AS n FROM in0;
      CREATE MATERIALIZED VIEW seen1 AS SELECT COUNT(*) AS n FROM in1;
      CREATE MATERIALIZED VIEW sums (k, n, total) AS SELECT k, COUNT(*), SUM(v) FROM in0 GROUP BY k;
      CREATE MATERIALIZED VIEW sizes AS SELECT n, COUNT(*) AS keys FROM sums GROUP BY n;
      CREATE MATERIALIZED VIEW pairs AS
        SELECT a.k, a.v, b.v AS w FROM in0 a JOIN in1 b ON a.k = b.k AND a.v = b.v;
      CREATE MATERIALIZED VIEW best AS SELECT k, rank_, v FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, id) AS rank_ FROM in0) WHERE rank_ <= 2;
      CREATE MATERIALIZED VIEW latest (id, k, v, PRIMARY KEY (k) NOT ENFORCED) AS SELECT id, k, v FROM in1;
      CREATE MATERIALIZED VIEW all_rows AS SELECT k % 5 AS few FROM in1;
      CREATE MATERIALIZED VIEW windows WITH ('retention' = '1 s') AS
        SELECT window_end, k, COUNT(*) AS n FROM TUMBLE(TABLE in0, DESCRIPTOR(ts), INTERVAL '0.1' SECOND)
        GROUP BY window_start, window_end, k;"
}

/// The rows of the views after the first rows of each file, without `windows`.
fn expected(n: [u64; 2]) -> BTreeMap<&'static str, Vec<String>> {
    let rows = |file: u64| (0..n[file as usize]).map(move |id| (id, row(file, id)));
    let mut sums = BTreeMap::<u64, (u64, u64)>::new();
    let mut best = BTreeMap::<u64, Vec<(u64, u64)>>::new();
    for (id, (k, v)) in rows(0) {
        let sum = sums.entry(k).or_default();
        *sum = (sum.0 + 1, sum.1 + v);
        best.entry(k).or_default().push((1000 - v, id));
    }
    let mut sizes = BTreeMap::<u64, u64>::new();
    sums.values()
        .for_each(|(n, _)| *sizes.entry(*n).or_default() += 1);
    let mut of_1 = BTreeMap::<(u64, u64), u64>::new();
    rows(1).for_each(|(_, row)| *of_1.entry(row).or_default() += 1);
    let pairs = rows(0).flat_map(|(_, (k, v))| {
        let copies = of_1.get(&(k, v)).copied().unwrap_or(0);
        (0..copies).map(move |_| format!("{k},{v},{v}"))
    });
    let best = best.into_iter().flat_map(|(k, mut rows)| {
        rows.sort_unstable();
        let first = rows.into_iter().take(2).enumerate();
        first.map(move |(at, (v, _))| format!("{k},{},{}", at + 1, 1000 - v))
    });
    let latest = rows(1).map(|(id, (k, v))| (k, format!("{id},{k},{v}")));
    let mut all = BTreeMap::from([
        ("seen0", vec![n[0].to_string()]),
        ("seen1", vec![n[1].to_string()]),
        (
            "sums",
            sums.iter()
                .map(|(k, (n, total))| format!("{k},{n},{total}"))
                .collect(),
        ),
        (
            "sizes",
            sizes
                .iter()
                .map(|(n, keys)| format!("{n},{keys}"))
                .collect(),
        ),
        ("pairs", pairs.collect::<Vec<String>>()),
        ("best", best.collect()),
        (
            "latest",
            latest
                .collect::<BTreeMap<u64, String>>()
                .into_values()
                .collect(),
        ),
        (
            "all_rows",
            rows(1).map(|(_, (k, _))| (k % 5).to_string()).collect(),
        ),
    ]);
    all.values_mut().for_each(|rows| rows.sort());
    // A COUNT without rows has no row yet.
    for (name, n) in [("seen0", n[0]), ("seen1", n[1])] {
        if n == 0 {
            all.insert(name, Vec::new());
        }
    }
    all
}

/// The values of a row, with commas between them.
fn values(batch: &RecordBatch, row: usize) -> String {
    let text = row_text(batch, row);
    let values = text
        .split(", ")
        .map(|value| value.split_once('=').unwrap().1);
    values.collect::<Vec<&str>>().join(",")
}

/// Compares rows, and shows only where they differ.
fn same(name: &str, rows: &[String], expected: &[String]) {
    let differ = rows
        .iter()
        .zip(expected)
        .find(|(row, expected)| row != expected);
    let lengths = (rows.len(), expected.len());
    assert!(
        rows == expected,
        "{name}: {lengths:?} rows, first difference {differ:?}"
    );
}

fn shown(batches: impl IntoIterator<Item = RecordBatch>) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in batches {
        rows.extend((0..batch.num_rows()).map(|row| values(&batch, row)));
    }
    rows.sort();
    rows
}

fn rows(cut: &Cut) -> Vec<String> {
    shown(cut.batches(1000).map(Result::unwrap))
}

/// How many rows of each file the cuts have seen.
fn seen(names: &[&str], cuts: &[Arc<Cut>]) -> [u64; 2] {
    ["seen0", "seen1"].map(|name| {
        let at = names.iter().position(|other| *other == name).unwrap();
        let rows = rows(&cuts[at]);
        rows.first().map_or(0, |n| n.parse().unwrap())
    })
}

/// Compares cuts of all views at one barrier with the model; returns how many rows they have seen.
fn check(views: &Views) -> Result<[u64; 2], NotRead> {
    let names = expected([0, 0]).into_keys().collect::<Vec<&str>>();
    let cuts = views.cuts(&names, Duration::ZERO, LIMIT)?;
    let seen = seen(&names, &cuts);
    for ((name, rows_then), cut) in expected(seen).into_iter().zip(&cuts) {
        same(&format!("{name} after {seen:?}"), &rows(cut), &rows_then);
    }
    Ok(seen)
}

fn options(views: &Arc<Views>, settings: &[(&str, &str)], state: Option<&Path>) -> RunOptions {
    let settings = settings.iter();
    RunOptions {
        settings: settings
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
        program: Some(env!("CARGO_BIN_EXE_slackwater").into()),
        views: Some(Arc::clone(views)),
        state: state.map(|place| StateOptions {
            place: place.display().to_string(),
            from_scratch: false,
            accepts_duplicates: false,
        }),
        ..RunOptions::default()
    }
}

fn ran(text: &str, options: &RunOptions) {
    match run("test.sql", text, options) {
        Ok(Outcome::Finished(_)) => {}
        Ok(Outcome::Explained(_)) => panic!("only explained"),
        Err(Failure::Usage(error) | Failure::Query(error, _)) => panic!("{error}"),
    }
}

/// Runs a text while `read` reads; returns what it returned.
fn beside<T: Send>(text: &str, options: &RunOptions, read: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let reader = scope.spawn(read);
        ran(text, options);
        reader.join().unwrap()
    })
}

/// Each cut has what a prefix of the inputs has made, whatever the query does besides.
#[test]
fn a_cut_has_the_rows_of_a_prefix_of_the_inputs() {
    let mut seeded = Seeded(7);
    for parallelism in ["1", "3", "2"] {
        let folder = tempfile::tempdir().unwrap();
        let text = text(folder.path(), 4_000);
        let views = Arc::new(Views::default());
        let chunk_rows = (1 + seeded.below(300)).to_string();
        let settings = [
            ("parallelism", parallelism),
            ("chunk_rows", &chunk_rows),
            ("rebalance", "shuffle"),
            ("checkpoint_interval", "30 ms"),
        ];
        let state = folder.path().join("state");
        let state = (parallelism != "2").then_some(&*state);
        let checked = beside(&text, &options(&views, &settings, state), || {
            assert!(views.wait_until_known(LIMIT));
            let mut checked = Vec::new();
            loop {
                let seen = check(&views).unwrap();
                checked.push(seen);
                if seen == [ROWS, ROWS] {
                    break checked;
                }
                std::thread::sleep(Duration::from_millis(seeded.below(40)));
            }
        });
        assert!(checked.len() > 3 && checked.is_sorted(), "{checked:?}");
        // The rows stay when the input has ended.
        assert_eq!(check(&views), Ok([ROWS, ROWS]));
    }
}

/// A follower of a view: the rows at its cut, and the changes since.
struct Follower {
    changes: Arc<Changes>,
    rows: BTreeMap<String, i64>,
}

impl Follower {
    fn of(views: &Views, name: &str) -> Follower {
        let (cut, changes) = views.subscribe(name, LIMIT).unwrap();
        let mut counts = BTreeMap::new();
        rows(&cut)
            .into_iter()
            .for_each(|row| *counts.entry(row).or_default() += 1);
        Follower {
            changes,
            rows: counts,
        }
    }

    /// Applies all changes to the end.
    fn into_the_end(mut self) -> (Vec<String>, Ending) {
        let ending = loop {
            match self.changes.next(Instant::now() + LIMIT) {
                Next::TimedOut => panic!("no change and no end"),
                Next::Ended(ending) => break ending,
                Next::Changes(chunk) => {
                    for (at, kinds) in (0..chunk.rows()).map(|row| (row, chunk.kinds.as_ref())) {
                        let kind = kinds.map_or(0, |kinds| kinds.value(at));
                        let row = values(&chunk.batch, at);
                        *self.rows.entry(row).or_default() += match RowKind::is_retraction(kind) {
                            true => -1,
                            false => 1,
                        };
                    }
                }
            }
        };
        let rows = self.rows.into_iter();
        let rows = rows.flat_map(|(row, count)| {
            assert!(count >= 0, "{row} is taken back, and was never there");
            std::iter::repeat_n(row, count as usize)
        });
        (rows.collect(), ending)
    }
}

/// No change is missing between the rows at the cut and the first change, and none comes twice.
#[test]
fn a_subscriber_gets_the_rows_of_a_cut_and_exactly_the_changes_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let text = text(folder.path(), 4_000);
    let views = Arc::new(Views::default());
    let settings = [
        ("parallelism", "3"),
        ("rebalance", "shuffle"),
        ("chunk_rows", "50"),
    ];
    let names = ["pairs", "all_rows"];
    let last = expected([ROWS, ROWS]);
    beside(&text, &options(&views, &settings, None), || {
        assert!(views.wait_until_known(LIMIT));
        std::thread::scope(|scope| {
            for step in 0..12 {
                let name = names[step % names.len()];
                let follower = Follower::of(&views, name);
                let expected = &last[name];
                scope.spawn(move || {
                    let (rows, ending) = follower.into_the_end();
                    assert_eq!(ending, Ending::Whole);
                    same(name, &rows, expected);
                });
                std::thread::sleep(Duration::from_millis(50));
            }
        });
    });
    // Nothing follows the end.
    let (cut, changes) = views.subscribe("pairs", LIMIT).unwrap();
    same("pairs", &rows(&cut), &last["pairs"]);
    assert!(matches!(
        changes.next(Instant::now()),
        Next::Ended(Ending::Whole)
    ));
}

/// Views resume from their checkpoint, at other parallelism, and have their rows after the input's end.
#[test]
fn views_resume_and_stay_readable_when_the_input_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let text = text(folder.path(), 4_000);
    let state = folder.path().join("state");
    for (parallelism, duration) in [("2", Some(400)), ("3", Some(300)), ("1", None)] {
        let views = Arc::new(Views::default());
        let settings = [
            ("parallelism", parallelism),
            ("checkpoint_interval", "50 ms"),
        ];
        let options = RunOptions {
            duration: duration.map(Duration::from_millis),
            ..options(&views, &settings, Some(&state))
        };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(views.wait_until_known(LIMIT));
                while !is_over.load(Ordering::Relaxed) {
                    match check(&views) {
                        Ok(_) | Err(NotRead::Over(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            ran(&text, &options);
            is_over.store(true, Ordering::Relaxed);
        });
    }
    // Nothing is left to do, and the rows are still there.
    for parallelism in ["1", "3"] {
        let views = Arc::new(Views::default());
        ran(
            &text,
            &options(&views, &[("parallelism", parallelism)], Some(&state)),
        );
        assert_eq!(check(&views), Ok([ROWS, ROWS]));
    }
}

#[test]
fn point_reads_find_rows_by_key() {
    let folder = tempfile::tempdir().unwrap();
    let text = text(folder.path(), 1_000_000);
    let views = Arc::new(Views::default());
    ran(&text, &options(&views, &[("parallelism", "2")], None));
    let cut = views.cut("sums", LIMIT, LIMIT).unwrap();
    let keys = arrow_array::Int64Array::from(vec![3, 1_000, 36]);
    let found = shown([cut.get(vec![Arc::new(keys)]).unwrap()]);
    let all = expected([ROWS, ROWS]);
    let wanted = all["sums"].iter();
    let wanted = wanted.filter(|row| row.starts_with("3,") || row.starts_with("36,"));
    assert_eq!(found, wanted.cloned().collect::<Vec<String>>());
    let described = views.described().into_iter();
    let keys = described
        .map(|view| (view.name, view.key))
        .collect::<BTreeMap<_, _>>();
    assert_eq!(keys["sums"], Some(vec![0]));
    assert_eq!(keys["best"], Some(vec![0, 1]));
    assert_eq!(keys["windows"], Some(vec![0, 1]));
    assert_eq!(keys["latest"], Some(vec![1]));
    assert_eq!(keys["seen0"], Some(vec![]));
    assert_eq!(keys["pairs"], None);
    let unknown = views.cut("sum", LIMIT, LIMIT).err();
    assert_eq!(unknown, Some(NotRead::Unknown("sum".to_string())));
}

#[test]
fn views_of_several_processes_run_and_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let text = text(folder.path(), 1_000_000);
    let views = Arc::new(Views::default());
    let settings = [("processes", "2"), ("parallelism", "2")];
    ran(&text, &options(&views, &settings, None));
    let refused = views.cut("sums", LIMIT, LIMIT).err().unwrap().to_string();
    assert!(refused.contains("2 worker processes"), "{refused}");
}
