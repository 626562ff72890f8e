//! Every operator that keeps state, stopped and resumed as often as one likes, at a random parallelism and
//! number of processes each time, with keys that move at times: the answer is that of one run without a stop.
//!
//! `SLACKWATER_ROUNDS` sets how many sequences each query goes through, `SLACKWATER_SEED` runs one again.

mod queries;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use slackwater::catalog::BuiltIn;
use slackwater_sql::node::Saved;
use slackwater_sql::program::compile;

use crate::crash::{rounds_long, seeds};
use crate::functions::example;
use crate::support::{Seeded, kept_rows, left_of};
use queries::{CHANGELOGS, CUSTOM, JOINS, Query, WINDOWS};

/// Sequences of each query in the short test.
const ROUNDS: u64 = 1;

/// Stops in one sequence.
const STOPS_MAX: u64 = 4;

/// Rows of each table.
const ROWS: u64 = 60;

/// Rows per second: a table takes 200 ms, and a stop comes within 100.
const RATE: u64 = 300;

/// No run takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn windows_resume_at_any_parallelism() {
    try_all(WINDOWS);
}

#[test]
fn joins_resume_at_any_parallelism() {
    try_all(JOINS);
}

#[test]
fn changelogs_resume_at_any_parallelism() {
    try_all(CHANGELOGS);
}

#[test]
fn operators_of_a_build_resume_at_any_parallelism() {
    if let Some(program) = example("custom_operators") {
        try_all_with(&program, CUSTOM);
    }
}

#[test]
fn every_kind_of_state_is_among_the_queries() {
    crate::operators::install();
    let folder = tempfile::tempdir().unwrap();
    let mut covered = BTreeSet::new();
    for query in [WINDOWS, JOINS, CHANGELOGS, CUSTOM].concat() {
        let case = Case::new(Path::new(""), folder.path(), &query, 0);
        let compiled = compile(&case.text("o", false), &[], &BuiltIn);
        let compiled = compiled.unwrap_or_else(|error| panic!("{}: {error:?}", query.sql));
        covered.extend(
            compiled
                .run
                .nodes
                .iter()
                .filter_map(|node| Some(node.state()?.kind)),
        );
    }
    let missing = Saved::ALL.iter().filter(|kind| !covered.contains(*kind));
    let missing = missing.collect::<Vec<_>>();
    assert!(
        missing.is_empty(),
        "no query of tests/checkpoints/everywhere/queries.rs keeps {missing:?}: add one"
    );
}

fn try_all(queries: &[Query]) {
    try_all_with(Path::new(env!("CARGO_BIN_EXE_slackwater")), queries);
}

fn try_all_with(program: &Path, queries: &[Query]) {
    let (seeds, _) = seeds(rounds_long(ROUNDS));
    for seed in seeds {
        for (nth, query) in queries.iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let mut seeded = Seeded(seed * 7919 + nth as u64 * 104_729 + 1);
            Case::new(program, folder.path(), query, seed).check(&mut seeded);
        }
    }
}

/// A query over tables in a folder.
struct Case<'a> {
    program: &'a Path,
    folder: &'a Path,
    query: &'a Query,
    seed: u64,
    /// Behind the largest time, in seconds: rows are late, or windows close with the input only.
    delay_s: u64,
}

impl<'a> Case<'a> {
    fn new(program: &'a Path, folder: &'a Path, query: &'a Query, seed: u64) -> Case<'a> {
        let mut seeded = Seeded(seed * 31 + 7);
        let delay_s = [3600, 2][seeded.below(2) as usize];
        let is_ordered = seeded.below(2) == 1;
        for name in ["a", "b"] {
            let mut rows = Vec::new();
            for row in 0..ROWS {
                let ms = match is_ordered {
                    true => row * 10_000 / ROWS + seeded.below(300),
                    false => row * 7919 % 10_000,
                };
                let (k, v) = (seeded.below(9), seeded.below(4000) as f64 / 8.0 - 100.0);
                // NULL is nobody's key.
                let k = if k == 0 { String::new() } else { k.to_string() };
                rows.push(format!("{ms},{row},{k},g{},{v}", seeded.below(3)));
            }
            std::fs::write(folder.join(format!("{name}.csv")), rows.join("\n") + "\n").unwrap();
        }
        let rows = (1..7).map(|k| format!("{k},{}", k * 100));
        let rows = rows.collect::<Vec<String>>().join("\n");
        std::fs::write(folder.join("t.csv"), rows + "\n").unwrap();
        Case {
            program,
            folder,
            query,
            seed,
            delay_s,
        }
    }

    fn text(&self, output: &str, is_paced: bool) -> String {
        let Query {
            set, columns, sql, ..
        } = self.query;
        let delay = self.delay_s;
        let rate = match is_paced {
            true => format!(", 'replay_rate' = '{RATE}'"),
            false => String::new(),
        };
        let stream = |name: &str| {
            format!(
                "CREATE TABLE {name} (ms BIGINT, id INT, k INT, g STRING, v DOUBLE,
                   ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECOND)
                 WITH ('connector' = 'file', 'path' = '{}/{name}.csv', 'csv.null' = ''{rate});\n",
                self.folder.display()
            )
        };
        let sink = match self.query.is_printed {
            true => "'connector' = 'print'".to_string(),
            false => format!(
                "'connector' = 'file', 'path' = '{}/{output}.csv', 'changelog' = 'op'",
                self.folder.display()
            ),
        };
        format!(
            "{set}\n{}{}CREATE TABLE t (k INT, w INT) WITH ('connector' = 'file', 'path' = '{}/t.csv');
             CREATE TABLE o ({columns}) WITH ({sink});\nINSERT INTO o {sql};\n",
            stream("a"),
            stream("b"),
            self.folder.display()
        )
    }

    /// Runs the program; what it prints is added to `printed`.
    fn run(&self, output: &str, arguments: &[String], is_paced: bool, printed: &mut String) {
        let file = self.folder.join("q.sql");
        std::fs::write(&file, self.text(output, is_paced)).unwrap();
        let run = Command::new(self.program)
            .arg("run")
            .arg(&file)
            .arg("--quiet")
            .args(arguments)
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut run = run.unwrap();
        let begun = Instant::now();
        while run.try_wait().unwrap().is_none() {
            if begun.elapsed() > PATIENCE {
                run.kill().unwrap();
                panic!("{}: stuck with {arguments:?}", self.title());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let ended = run.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        // A stop that comes at an unlucky moment is one without a checkpoint: the next run begins at the
        // last.
        let is_over = ended.status.success() || said.contains("stopped before a last checkpoint");
        assert!(is_over, "{}: {arguments:?}: {said}", self.title());
        printed.push_str(&String::from_utf8_lossy(&ended.stdout));
    }

    fn title(&self) -> String {
        let Query { set, sql, .. } = self.query;
        format!("SLACKWATER_SEED={}, {set} {sql}", self.seed)
    }

    /// What the query has come to.
    fn answer(&self, output: &str, printed: &str) -> Vec<String> {
        if !self.query.is_printed {
            let text = std::fs::read_to_string(self.folder.join(format!("{output}.csv")));
            let rows = text
                .unwrap()
                .lines()
                .map(str::to_string)
                .collect::<Vec<_>>();
            return left_of(&rows, ',');
        }
        // By the first column, which is the key.
        let mut rows = BTreeMap::new();
        for line in printed.lines() {
            let cells = line.split_whitespace().collect::<Vec<_>>();
            match cells[0] {
                "+I" | "+U" => rows.insert(cells[1].to_string(), cells[1..].join(",")),
                "-D" => rows.remove(cells[1]),
                _ => None,
            };
        }
        rows.into_values().collect()
    }

    /// The rows of the materialized view, if the query has one; with `state` those of its last checkpoint.
    fn kept(&self, output: &str, state: Option<&Path>) -> Vec<String> {
        match self.query.sql.contains("VIEW kept") {
            true => kept_rows(&self.text(output, false), "kept", state),
            false => Vec::new(),
        }
    }

    fn check(&self, seeded: &mut Seeded) {
        let mut printed = String::new();
        self.run("whole", &[], false, &mut printed);
        let expected = self.answer("whole", &printed);
        assert!(!expected.is_empty(), "{}: no rows", self.title());
        let stops = 1 + seeded.below(STOPS_MAX);
        let (mut log, mut printed) = (String::new(), String::new());
        for run in 0..=stops {
            let parallelism = 1 + seeded.below(4);
            let processes = 1 + seeded.below(parallelism.min(2));
            let rebalance = ["off", "shuffle"][seeded.below(2) as usize];
            let interval = ["3 ms", "20 ms", "1 h"][seeded.below(3) as usize];
            let mut arguments = vec![
                "--state=state".to_string(),
                format!("--parallelism={parallelism}"),
                format!("--workers={parallelism}"),
                format!("--processes={processes}"),
                format!("--set=rebalance={rebalance}"),
                format!("--set=checkpoint_interval={interval}"),
                format!("--set=chunk_rows={}", 1 + seeded.below(8)),
            ];
            if run < stops {
                arguments.push(format!("--duration={}ms", 20 + seeded.below(80)));
            }
            log.push_str(&format!("\n  {}", arguments.join(" ")));
            self.run("saved", &arguments, true, &mut printed);
        }
        let found = self.answer("saved", &printed);
        let kept = self.kept("saved", Some(&self.folder.join("state")));
        assert_eq!(kept, self.kept("again", None), "{}{log}", self.title());
        let count = |rows: &[String]| {
            let mut counts = BTreeMap::<String, i64>::new();
            rows.iter()
                .for_each(|row| *counts.entry(row.clone()).or_default() += 1);
            counts
        };
        let (are, should) = (count(&found), count(&expected));
        let differs = should.keys().chain(are.keys());
        let mut differs = differs.filter(|row| are.get(*row) != should.get(*row));
        if let Some(row) = differs.next() {
            panic!(
                "{}: {} rows, {} expected; '{row}' {:?} times and not {:?}{log}",
                self.title(),
                found.len(),
                expected.len(),
                are.get(row),
                should.get(row)
            );
        }
    }
}
