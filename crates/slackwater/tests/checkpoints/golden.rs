//! Golden checkpoints: what earlier versions have stored is read by this one, and the query comes to its
//! answer.
//!
//! A folder of `tests/golden` holds what one format of the state looks like ([`current`]): the input, and for
//! each case the query, its whole answer, and what it left when it was stopped in the middle of its input:
//! the state, what its sinks had prepared, and what was printed. `CONTRIBUTING.md` says how a folder is made.

mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use slackwater::catalog::BuiltIn;
use slackwater_checkpoint::manifest::record::FORMAT;
use slackwater_sql::node::Saved;
use slackwater_sql::program::compile;
use slackwater_sql::state::VERSION;

use crate::functions::example;
use crate::support::{self, Seeded, left_of};
use cases::CASES;

/// Rows of each table.
const ROWS: u64 = 60;

/// Rows per second while a checkpoint is made: a table takes 300 ms.
const RATE: u64 = 200;

/// How often a stop is tried that leaves what a case asks for.
const TRIES: u64 = 200;

/// No run takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A query whose state is kept as a fixture.
pub struct Case {
    /// The name of its folder.
    pub name: &'static str,
    /// Settings, in SQL.
    pub set: &'static str,
    /// The columns of what it writes.
    pub columns: &'static str,
    /// How it is written.
    pub sink: &'static str,
    /// The query.
    pub sql: &'static str,
    /// How the run ends.
    pub end: End,
}

/// How the run that leaves a fixture ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It is stopped, with one checkpoint.
    Stopped,
    /// It has two instances, and is stopped at its second checkpoint: state is a base and an increment.
    StoppedLater,
    /// It is killed before what its sink had prepared is committed.
    Killed,
}

/// The folder of what this version writes: `format-`, the format of manifests, and the version of identities.
fn current() -> String {
    format!("format-{FORMAT}.{VERSION}")
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The folders in a folder, in order.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut folders = paths.filter(|path| path.is_dir()).collect::<Vec<_>>();
    folders.sort();
    folders
}

#[test]
fn what_earlier_versions_have_stored_is_restored() {
    let mut failed = Vec::new();
    for version in folders(&golden()) {
        for case in folders(&version.join("cases")) {
            if let Err(reason) = restored(&version, &case) {
                failed.push(format!("{}: {reason}", case.display()));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_kind_of_state_has_a_golden_checkpoint_in_the_format_that_is_written() {
    crate::operators::install();
    let version = golden().join(current());
    let mut covered = BTreeSet::new();
    for case in folders(&version.join("cases")) {
        let text = fs::read_to_string(case.join("query.sql")).unwrap();
        // Its files are where the test doesn't run.
        let path = "'path' = '";
        let text = text.replace(path, &format!("{path}{}/", version.display()));
        let compiled = compile(&text, &[], &BuiltIn);
        let compiled = compiled.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let manifest = newest_manifest(&case.join("state")).expect("a fixture has a manifest");
        // By the word in front of the key: a node without parts says nothing of its state's layout.
        let with_state = nodes(&manifest).filter(|node| !list(&node["parts"]).is_empty());
        let keys = with_state.map(|node| node["identity"]["key"].as_str().unwrap().to_string());
        let keys = keys.collect::<Vec<String>>();
        let saved = compiled
            .run
            .nodes
            .iter()
            .filter_map(|node| Some(node.state()?.kind));
        let has_state = |saved: &Saved| {
            let prefix = format!("{} of ", saved.word());
            keys.iter().any(|key| key.starts_with(&prefix))
        };
        covered.extend(saved.filter(has_state));
    }
    let missing = Saved::ALL.iter().filter(|kind| !covered.contains(*kind));
    let missing = missing.collect::<Vec<_>>();
    assert!(
        missing.is_empty(),
        "no checkpoint in {} has state of {missing:?}: add a case to \
         tests/checkpoints/golden/cases.rs, and run `make golden`",
        version.display()
    );
}

/// Makes the folder of this version, or the one that `SLACKWATER_GOLDEN` names with the program that
/// `SLACKWATER_PROGRAM` names. Cases that are there stay as they are.
#[test]
#[ignore = "writes fixtures: make golden"]
fn make() {
    let name = std::env::var("SLACKWATER_GOLDEN").unwrap_or_else(|_| current());
    let version = golden().join(name);
    fs::create_dir_all(&version).unwrap();
    make_input(&version);
    for case in CASES {
        let folder = version.join("cases").join(case.name);
        if !folder.exists() {
            case.make(&version, &folder);
        }
    }
}

/// The tables `a` and `b`, with NULLs and late rows, and the table `t`.
fn make_input(version: &Path) {
    let mut seeded = Seeded(4711);
    for name in ["a", "b"] {
        let rows = (0..ROWS).map(|row| {
            let ms = row * 10_000 / ROWS + seeded.below(900);
            let k = match seeded.below(7) {
                0 => String::new(),
                k => k.to_string(),
            };
            let v = seeded.below(400) as f64 / 8.0 - 10.0;
            format!("{ms},{row},{k},g{},{v}\n", seeded.below(3))
        });
        let rows = rows.collect::<String>();
        let file = version.join(format!("{name}.csv"));
        if !file.exists() {
            fs::write(file, rows).unwrap();
        }
    }
    let rows = (1..7).map(|k| format!("{k},{}\n", k * 100));
    let file = version.join("t.csv");
    if !file.exists() {
        fs::write(file, rows.collect::<String>()).unwrap();
    }
}

/// Resumes what a case had left, and compares the answer.
fn restored(version: &Path, case: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    copy_all(version, folder.path());
    copy_all(case, folder.path());
    let path = |name: &str| folder.path().join(name);
    let read = |name: &str| fs::read_to_string(path(name)).unwrap_or_default();
    let before = newest_manifest(&path("state"))?;
    let parallelism = 1 + case.as_os_str().len() % 3;
    let Some(program) = program_of(&read("query.sql")) else {
        return Ok(());
    };
    let arguments = [
        "--state=state".to_string(),
        format!("--parallelism={parallelism}"),
    ];
    let printed = run(&program, folder.path(), &read("query.sql"), &arguments)?;
    let found = answer(folder.path(), &(read("printed.txt") + &printed));
    let expected = read("expected.txt");
    if found != expected {
        return Err(format!("not its answer:\n{found}expected:\n{expected}"));
    }
    let after = newest_manifest(&path("state"))?;
    if after["number"].as_u64() <= before["number"].as_u64() {
        return Err("no checkpoint was stored after it had resumed".to_string());
    }
    let kept = read("kept.txt");
    if !kept.is_empty() {
        let found = kept_rows(folder.path(), &read("query.sql"), Some(&path("state")));
        if found != kept {
            return Err(format!("the view keeps:\n{found}expected:\n{kept}"));
        }
    }
    let mut nodes = nodes(&after);
    match nodes.find(|node| node["identity"]["state"]["version"] != VERSION) {
        Some(node) => Err(format!("not in the present form: {}", node["identity"])),
        None => Ok(()),
    }
}

/// The program that runs a query: that of the example, if the query has its operators.
fn program_of(sql: &str) -> Option<PathBuf> {
    match sql.contains(" changes(TABLE ") || sql.contains(" totals(TABLE ") {
        true => example("custom_operators"),
        false => Some(env!("CARGO_BIN_EXE_slackwater").into()),
    }
}

/// What the materialized view of a query in a folder keeps at the end.
fn kept_rows(folder: &Path, text: &str, state: Option<&Path>) -> String {
    let path = "'path' = '";
    let text = text.replace(path, &format!("{path}{}/", folder.display()));
    let rows = support::kept_rows(&text, "kept", state).into_iter();
    rows.map(|row| row + "\n").collect()
}

/// What a query has come to: what it printed by its first column, or what is left of what it wrote.
fn answer(folder: &Path, printed: &str) -> String {
    let mut rows = Vec::new();
    let out = folder.join("out");
    let mut files = vec![folder.join("out.csv")];
    files.extend(
        fs::read_dir(&out)
            .into_iter()
            .flatten()
            .map(|part| part.unwrap().path()),
    );
    let contents = files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok());
    rows.extend(contents.flat_map(|text| text.lines().map(str::to_string).collect::<Vec<_>>()));
    let is_changelog = rows.first().is_some_and(|row| row.starts_with(['+', '-']));
    let mut rows = match is_changelog {
        true => left_of(&rows, ','),
        false => rows,
    };
    let mut by_key = BTreeMap::new();
    for line in printed.lines() {
        let cells = line.split_whitespace().collect::<Vec<_>>();
        match cells[..] {
            ["+I" | "+U", key, ..] => by_key.insert(key.to_string(), cells[1..].join(",")),
            ["-D", key, ..] => by_key.remove(key),
            _ => None,
        };
    }
    rows.extend(by_key.into_values());
    rows.sort();
    rows.into_iter().map(|row| row + "\n").collect()
}

/// Runs a query in a folder to its end; what it printed.
fn run(program: &Path, folder: &Path, sql: &str, arguments: &[String]) -> Result<String, String> {
    fs::write(folder.join("query.sql"), sql).unwrap();
    let run = Command::new(program)
        .args(["run", "query.sql", "--quiet"])
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut run = run.map_err(|error| format!("{}: {error}", program.display()))?;
    let begun = Instant::now();
    while run.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            run.kill().unwrap();
            return Err(format!("stuck with {arguments:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let ended = run.wait_with_output().unwrap();
    match ended.status.success() {
        true => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&ended.stderr).into_owned()),
    }
}

impl Case {
    fn text(&self, is_paced: bool) -> String {
        let Case {
            set,
            columns,
            sink,
            sql,
            ..
        } = self;
        let rate = match is_paced {
            true => format!(", 'replay_rate' = '{RATE}'"),
            false => String::new(),
        };
        let stream = |name: &str, files: &str| {
            format!(
                "CREATE TABLE {name} (ms BIGINT, id INT, k INT, g STRING, v DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = '{files}', 'csv.null' = ''{rate});\n"
            )
        };
        let tables = [
            stream("a", "a.csv"),
            stream("b", "b.csv"),
            stream("both", "[ab].csv"),
            "CREATE TABLE t (k INT, w INT) WITH ('connector' = 'file', 'path' = 't.csv');\n".into(),
        ];
        let set = if set.is_empty() {
            String::new()
        } else {
            format!("{set}\n")
        };
        format!(
            "{set}{}CREATE TABLE o ({columns}) WITH ({sink});\nINSERT INTO o {sql};\n",
            tables.concat()
        )
    }

    /// Makes the fixture: the whole answer, then what is left after a stop in the middle of the input.
    fn make(&self, version: &Path, to: &Path) {
        let program = std::env::var_os("SLACKWATER_PROGRAM").map(PathBuf::from);
        let program = program.or_else(|| program_of(self.sql));
        let program = program.expect("cargo build --examples");
        let whole = tempfile::tempdir().unwrap();
        copy_all(version, whole.path());
        let printed = run(&program, whole.path(), &self.text(false), &[]);
        let printed = printed.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let expected = answer(whole.path(), &printed);
        assert!(!expected.is_empty(), "{}: no rows", self.name);
        let has_view = self.sql.contains("VIEW kept");
        let kept = has_view.then(|| {
            let folder = tempfile::tempdir().unwrap();
            copy_all(version, folder.path());
            kept_rows(folder.path(), &self.text(false), None)
        });
        for attempt in 0..TRIES {
            let folder = tempfile::tempdir().unwrap();
            copy_all(version, folder.path());
            let Some(printed) = self.stopped(&program, folder.path(), attempt) else {
                continue;
            };
            let path = |name: &str| folder.path().join(name);
            for name in ["a.csv", "b.csv", "t.csv"] {
                fs::remove_file(path(name)).unwrap();
            }
            fs::write(path("query.sql"), self.text(false)).unwrap();
            fs::write(path("expected.txt"), &expected).unwrap();
            if !printed.is_empty() {
                fs::write(path("printed.txt"), printed).unwrap();
            }
            if let Some(kept) = &kept {
                fs::write(path("kept.txt"), kept).unwrap();
            }
            fs::create_dir_all(to).unwrap();
            copy_all(folder.path(), to);
            return;
        }
        panic!("{}: no stop left what it should", self.name);
    }

    /// Runs the query for a moment. What it printed, if it left what the case asks for.
    fn stopped(&self, program: &Path, folder: &Path, attempt: u64) -> Option<String> {
        let duration = format!("--duration={}ms", 120 + attempt % 100);
        let (parallelism, interval) = match self.end {
            End::Stopped => (1, "1 h"),
            End::StoppedLater => (2, "60 ms"),
            End::Killed => (1, "10 ms"),
        };
        let mut arguments = vec![
            "--state=state".to_string(),
            format!("--parallelism={parallelism}"),
            format!("--workers={parallelism}"),
            format!("--set=checkpoint_interval={interval}"),
        ];
        let text = self.text(true);
        let printed = match self.end {
            End::Killed => killed(program, folder, &text, &arguments, 60 + attempt % 100),
            End::Stopped | End::StoppedLater => {
                arguments.push(duration);
                run(program, folder, &text, &arguments).ok()?
            }
        };
        let manifest = newest_manifest(&folder.join("state")).ok()?;
        let is_in_the_middle = {
            let sources = nodes(&manifest).filter(|node| node["identity"]["kind"] == "source");
            let partitions = sources.flat_map(|node| list(&node["partitions"]).to_vec());
            let mut positions =
                partitions.map(|partition| partition["position"].as_u64().unwrap_or(0));
            positions.any(|position| (ROWS / 6..ROWS * 5 / 6).contains(&position))
        };
        let stateful = || nodes(&manifest).filter(|node| node["identity"]["kind"] == "stateful");
        let has_state = stateful().all(|node| !list(&node["parts"]).is_empty());
        let mut increments = stateful().flat_map(|node| list(&node["parts"]));
        let has_increment = increments.any(|part| part["since"].is_u64());
        let is_prepared = self.end != End::Killed || {
            let mut sinks = nodes(&manifest).filter(|node| node["identity"]["kind"] == "sink");
            let is_pending = sinks.any(|node| !list(&node["pending"]).is_empty());
            is_pending && uncommitted(&folder.join("out"), &manifest)
        };
        let is_as_asked = has_increment == (self.end == End::StoppedLater);
        (is_in_the_middle && has_state && is_as_asked && is_prepared).then_some(printed)
    }
}

/// Whether a part that the manifest has as pending still has the name that it was prepared under.
fn uncommitted(out: &Path, manifest: &Value) -> bool {
    let sinks = nodes(manifest).filter(|node| node["identity"]["kind"] == "sink");
    let pending = sinks.flat_map(|node| list(&node["pending"]).to_vec());
    let pending = pending.map(|pending| pending["commit"].to_string());
    let pending = pending.collect::<String>();
    let names = fs::read_dir(out).into_iter().flatten();
    let names = names.map(|part| part.unwrap().file_name().to_string_lossy().into_owned());
    let mut hidden = names.filter(|name| name.starts_with('.'));
    hidden.any(|name| {
        let name = name.trim_start_matches('.').trim_end_matches(".tmp");
        pending.contains(name)
    })
}

/// Runs a query, and kills it.
fn killed(program: &Path, folder: &Path, sql: &str, arguments: &[String], after_ms: u64) -> String {
    fs::write(folder.join("query.sql"), sql).unwrap();
    let run = Command::new(program)
        .args(["run", "query.sql", "--quiet"])
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut run = run.unwrap();
    std::thread::sleep(Duration::from_millis(after_ms));
    run.kill().unwrap();
    let ended = run.wait_with_output().unwrap();
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

/// The newest manifest of a store: the second line of the last record that is one.
fn newest_manifest(state: &Path) -> Result<Value, String> {
    let folder = state.join("checkpoints");
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths = entries
        .map(|entry| entry.unwrap().path())
        .collect::<Vec<_>>();
    paths.sort();
    let records = paths.iter().rev().filter_map(|path| {
        let text = fs::read_to_string(path).ok()?;
        let (head, body) = text.split_once('\n')?;
        let head = serde_json::from_str::<Value>(head).ok()?;
        (head["slackwater"] == "checkpoint").then(|| serde_json::from_str(body).ok())?
    });
    let mut records = records;
    records
        .next()
        .ok_or_else(|| format!("{}: no manifest", folder.display()))
}

fn nodes(manifest: &Value) -> impl Iterator<Item = &Value> {
    list(&manifest["nodes"]).iter()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Copies the files and folders of a folder, but for other cases.
fn copy_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        if name == "cases" {
            continue;
        }
        let to = to.join(name);
        match entry.file_type().unwrap().is_dir() {
            true => {
                fs::create_dir_all(&to).unwrap();
                copy_all(&path, &to);
            }
            false => {
                fs::copy(&path, &to).unwrap();
            }
        }
    }
}
