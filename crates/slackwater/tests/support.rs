//! What the tests share: running a text, reading a result, finding the reference data.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use slackwater::machine::Machine;
use slackwater::report::Report;
use slackwater::run::{Failure, Outcome, RunOptions, StateOptions, run};
use slackwater::slow::Slowness;
use slackwater::views::Views;
use slackwater_control::topology::Topology;
use slackwater_engine::expression::row_text;
use slackwater_engine::link::allowed_cores;

/// The folder of real inputs with reference answers, where the checkout has one beside it.
pub fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no reference data in {}", folder.display());
    None
}

/// Runs a text with settings to its end.
pub fn run_text(text: &str, settings: &[(&str, &str)]) -> Result<Report, String> {
    run_slowly(text, settings, None)
}

/// The same with operators that are slow by chance, from a seed.
pub fn run_slowly(
    text: &str,
    settings: &[(&str, &str)],
    slow: Option<u64>,
) -> Result<Report, String> {
    let is_copied = settings.iter().any(|(key, _)| *key == "copies");
    let options = RunOptions {
        machine: is_copied.then(on_two_nodes),
        slowness: slow.map(|seed| Arc::new(Slowness::ByChance(seed.into()))),
        ..options(settings)
    };
    ran(text, &options)
}

/// This machine as one of two nodes, where it has two cores.
fn on_two_nodes() -> Machine {
    let cores = allowed_cores();
    if cores.len() < 2 {
        return Machine::this();
    }
    let mut topology = Topology::of_nodes(
        2,
        cores.len() / 2,
        |one, other| {
            if one == other { 10 } else { 20 }
        },
    );
    for (core, &id) in topology.cores.iter_mut().zip(&cores) {
        (core.id, core.siblings) = (id, vec![id]);
    }
    for (node, own) in topology.nodes.iter_mut().zip(cores.chunks(cores.len() / 2)) {
        node.cores = own.to_vec();
    }
    Machine {
        topology,
        quota_cores: None,
        binds_memory: false,
        notes: Vec::new(),
        hosts: None,
    }
}

/// Runs a text whose materialized views are read.
pub fn run_read(
    text: &str,
    settings: &[(&str, &str)],
    views: &Arc<Views>,
) -> Result<Report, String> {
    let options = RunOptions {
        views: Some(Arc::clone(views)),
        ..options(settings)
    };
    ran(text, &options)
}

/// The rows that a materialized view keeps when its inputs have ended, in order. With `state`, the query has
/// ended before, and they are those of its last checkpoint.
pub fn kept_rows(text: &str, view: &str, state: Option<&Path>) -> Vec<String> {
    let views = Arc::new(Views::default());
    let options = RunOptions {
        views: Some(Arc::clone(&views)),
        state: state.map(|place| StateOptions {
            place: place.display().to_string(),
            from_scratch: false,
            accepts_duplicates: false,
        }),
        ..options(&[])
    };
    ran(text, &options).unwrap_or_else(|error| panic!("{error}"));
    let cut = views.cut(view, Duration::ZERO, Duration::from_secs(10));
    let cut = cut.unwrap_or_else(|error| panic!("{view}: {error}"));
    let mut rows = Vec::new();
    for batch in cut.batches(1000) {
        let batch = batch.unwrap();
        rows.extend((0..batch.num_rows()).map(|row| row_text(&batch, row)));
    }
    rows.sort();
    rows
}

fn options(settings: &[(&str, &str)]) -> RunOptions {
    let settings = settings
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()));
    RunOptions {
        settings: settings.collect(),
        program: Some(env!("CARGO_BIN_EXE_slackwater").into()),
        ..RunOptions::default()
    }
}

fn ran(text: &str, options: &RunOptions) -> Result<Report, String> {
    match run("test.sql", text, options) {
        Ok(Outcome::Finished(finished)) => Ok(finished.report),
        Ok(Outcome::Explained(text)) => panic!("only explained: {text}"),
        Err(Failure::Usage(error)) => Err(error),
        Err(Failure::Query(error, _)) => Err(error),
    }
}

/// The rows of a file without its header, sorted.
pub fn rows(path: &Path) -> Vec<String> {
    let mut rows = lines(path);
    rows.sort();
    rows
}

/// The rows of a file without its header, as they stand.
pub fn lines(path: &Path) -> Vec<String> {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().skip(1).map(str::to_string).collect()
}

/// The last row of each key (the first column), sorted.
pub fn last_per_key(rows: &[String], delimiter: char) -> Vec<String> {
    let keyed = rows
        .iter()
        .map(|row| (row.split(delimiter).next().unwrap_or_default(), row));
    let last = keyed.collect::<BTreeMap<_, _>>();
    let mut rows = last.into_values().cloned().collect::<Vec<_>>();
    rows.sort();
    rows
}

/// Whether a query's rows say what they do, in their first column.
pub fn is_changelog(query: &str) -> bool {
    query.contains("'changelog' = 'op'")
}

/// The rows that a changelog adds and does not take back, sorted, whatever the order of its parts.
pub fn left_of(changes: &[String], delimiter: char) -> Vec<String> {
    let mut counts = BTreeMap::<&str, i64>::new();
    for change in changes {
        let (op, row) = change.split_once(delimiter).unwrap();
        *counts.entry(row).or_default() += match op {
            "+I" | "+U" => 1,
            "-U" | "-D" => -1,
            _ => panic!("no change: {change}"),
        };
    }
    let mut left = Vec::new();
    for (row, count) in counts {
        assert!(count >= 0, "taken back, and never added: {row}");
        left.extend((0..count).map(|_| row.to_string()));
    }
    left
}

/// Whether tests run all of their cases (`EVERY_CASE=1`, as in `make test-all`) or a part that is fast.
pub fn every_case() -> bool {
    std::env::var_os("EVERY_CASE").is_some()
}

/// Small numbers from a seed: the same in every run.
pub struct Seeded(pub u64);

impl Seeded {
    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        // xorshift64*: enough to vary settings.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}
