//! Exactly once from files to files, whatever process is killed at whatever moment (I6): reference answers
//! at random parallelism, from runs whose processes die and which are started again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::answers::{ANSWERS, expected};
use crate::support::{Seeded, data};

/// Rounds of the short test, and of `make test-crash`.
const ROUNDS: u64 = 10;
const ROUNDS_LONG: u64 = 100;

/// How long an undisturbed run takes: so many kills fit in it, and so many checkpoints.
const RUN_S: f64 = 1.5;

/// What may be killed in one round.
const KILLS_MAX: u64 = 4;

/// How often checkpoints are taken.
const INTERVALS: [&str; 3] = ["20 ms", "60 ms", "200 ms"];

/// Nothing takes longer, restarts included.
const PATIENCE: Duration = Duration::from_secs(90);

#[test]
#[ignore = "slow: make test-all"]
fn no_row_is_lost_or_doubled_whatever_is_killed() {
    let Some(data) = data() else { return };
    rounds(&data, ROUNDS);
}

#[test]
#[ignore = "takes an hour: make test-crash"]
fn no_row_is_lost_or_doubled_whatever_is_killed_in_many_rounds() {
    let Some(data) = data() else { return };
    rounds(&data, rounds_long(ROUNDS_LONG * ANSWERS.len() as u64));
}

fn rounds(data: &Path, rounds: u64) {
    let (seeds, is_one) = seeds(rounds);
    let mut killed = (0, 0);
    for seed in seeds {
        let round = Round::new(data, seed);
        let (parents, children) = round.run();
        killed = (killed.0 + parents, killed.1 + children);
    }
    assert!(is_one || killed.0 + killed.1 > 0, "nothing was ever killed");
    println!("killed {} parents and {} workers", killed.0, killed.1);
}

/// The seeds of so many rounds; or the only one, of a failing round that is run again.
pub(crate) fn seeds(rounds: u64) -> (std::ops::Range<u64>, bool) {
    let only = std::env::var("SLACKWATER_SEED").ok();
    let only = only.map(|seed| seed.parse::<u64>().expect("SLACKWATER_SEED is a number"));
    match only {
        Some(seed) => (seed..seed + 1, true),
        None => (0..rounds, false),
    }
}

/// How many rounds the long test has.
pub(crate) fn rounds_long(unless_said: u64) -> u64 {
    let said = std::env::var("SLACKWATER_ROUNDS").ok();
    said.map_or(unless_said, |count| {
        count.parse().expect("a number of rounds")
    })
}

pub(crate) struct Round<'a> {
    seed: u64,
    name: &'static str,
    only_last: bool,
    data: &'a Path,
    folder: tempfile::TempDir,
    query: PathBuf,
}

impl<'a> Round<'a> {
    pub(crate) fn new(data: &'a Path, seed: u64) -> Round<'a> {
        let (name, text, only_last) = ANSWERS[seed as usize % ANSWERS.len()];
        let folder = tempfile::tempdir().unwrap();
        // A folder of parts, and sources slow enough to be killed.
        let text = text
            .replace(
                "'path' = '${OUT}'",
                "'path' = '${OUT}', 'overwrite' = 'false'",
            )
            .replace("${OUT}", &folder.path().join("out").display().to_string());
        let mut paced = String::new();
        for line in text.split_inclusive('\n') {
            let path = line.split("'${DATA}/").nth(1);
            match path.and_then(|rest| rest.split('\'').next()) {
                Some(file) => {
                    let rate = (rows(&data.join(file)) as f64 / RUN_S).max(1.0);
                    let option = format!("'replay_rate' = '{rate:.0}', 'path' = '${{DATA}}/");
                    paced.push_str(&line.replace("'path' = '${DATA}/", &option));
                }
                None => paced.push_str(line),
            }
        }
        let text = paced.replace("${DATA}", &data.display().to_string());
        let query = folder.path().join("query.sql");
        std::fs::write(&query, text).unwrap();
        Round {
            seed,
            name,
            only_last,
            data,
            folder,
            query,
        }
    }

    /// Returns how many parents and workers were killed.
    fn run(&self) -> (u64, u64) {
        let mut seeded = Seeded(self.seed * 7919 + 1);
        let trial = Trial {
            title: self.title(),
            kills_max: KILLS_MAX,
            run_s: RUN_S,
            patience: PATIENCE,
        };
        let ran = trial.run(&mut seeded, |seeded| self.start(seeded), |_, _| None);
        self.check(&ran.log);
        (ran.parents, ran.workers)
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn query(&self) -> &Path {
        &self.query
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whether only the last row of each key counts.
    pub(crate) fn only_last(&self) -> bool {
        self.only_last
    }

    pub(crate) fn title(&self) -> String {
        format!("{}, SLACKWATER_SEED={}", self.name, self.seed)
    }

    fn start(&self, seeded: &mut Seeded) -> (Child, String) {
        let folder = self.folder.path();
        start(&self.query, folder, &INTERVALS, self.only_last, seeded)
    }

    pub(crate) fn check(&self, log: &str) {
        let mut found = Vec::new();
        for part in parts(&self.folder.path().join("out")) {
            let text = std::fs::read_to_string(&part).unwrap();
            found.extend(text.lines().skip(1).map(str::to_string));
        }
        let query = std::fs::read_to_string(&self.query).unwrap();
        if crate::support::is_changelog(&query) {
            found = crate::support::left_of(&found, '|');
        } else if self.only_last {
            found = crate::support::last_per_key(&found, '|');
        }
        compare(&self.title(), found, &expected(self.data, self.name), log);
    }
}

/// A query that is killed and started again until it has come to its end.
pub(crate) struct Trial {
    pub(crate) title: String,
    /// What may be killed.
    pub(crate) kills_max: u64,
    /// How long an undisturbed run takes.
    pub(crate) run_s: f64,
    /// Nothing takes longer, restarts included.
    pub(crate) patience: Duration,
}

/// What a trial has done.
#[derive(Default)]
pub(crate) struct Ran {
    pub(crate) parents: u64,
    pub(crate) workers: u64,
    /// Settings, kills, and what the runs have said.
    pub(crate) log: String,
}

impl Trial {
    /// Instead of killing a process, `also` may do something else, of which it tells; it may kill the
    /// process that it is given, too.
    pub(crate) fn run(
        &self,
        seeded: &mut Seeded,
        start: impl Fn(&mut Seeded) -> (Child, String),
        mut also: impl FnMut(&mut Seeded, &mut Child) -> Option<String>,
    ) -> Ran {
        let begun = Instant::now();
        let mut left = 1 + seeded.below(self.kills_max);
        let mut ran = Ran::default();
        loop {
            let (mut run, what) = start(seeded);
            ran.log.push_str(&what);
            let mut is_killed = false;
            while left > 0 && !is_killed {
                let pause = Duration::from_millis(seeded.below((self.run_s * 800.0) as u64));
                if ends_within(&mut run, pause) {
                    break;
                }
                left -= 1;
                if let Some(what) = also(seeded, &mut run) {
                    ran.log.push_str(&format!("; {what} {pause:?} later"));
                    is_killed = run.try_wait().unwrap().is_some();
                    continue;
                }
                is_killed = ran.kill_one(seeded, &mut run, pause);
            }
            let patience = self.patience.saturating_sub(begun.elapsed());
            if !ends_within(&mut run, patience) {
                run.kill().unwrap();
                let output = run.wait_with_output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                let Trial {
                    title, patience, ..
                } = self;
                panic!("{title}: stuck after {patience:?}: {}\n{said}", ran.log);
            }
            let output = run.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let indented = said.trim().replace('\n', "\n  ");
            ran.log.push_str(&format!("\n  {indented}"));
            if output.status.success() {
                return ran;
            }
            let Trial { title, .. } = self;
            assert!(is_killed, "{title}: failed without a kill after{}", ran.log);
            ran.log.push_str("\n  again");
        }
    }
}

impl Ran {
    /// Kills the parent or a worker; whether it was the parent.
    fn kill_one(&mut self, seeded: &mut Seeded, run: &mut Child, pause: Duration) -> bool {
        let workers = children_of(run.id());
        let victims = 1 + workers.len() as u64;
        match seeded.below(victims) {
            0 => {
                self.log
                    .push_str(&format!("; parent killed {pause:?} later"));
                run.kill().unwrap();
                self.parents += 1;
                true
            }
            worker => {
                self.log
                    .push_str(&format!("; worker killed {pause:?} later"));
                let pid = Pid::from_raw(workers[worker as usize - 1] as i32);
                // As if it had died of its rows, half of the time: these are taken one by one.
                let signal = [Signal::KILL, Signal::SEGV][seeded.below(2) as usize];
                // It may have come to its end just now.
                let _ = kill_process(pid.unwrap(), signal);
                self.workers += 1;
                false
            }
        }
    }
}

/// Starts a query with random settings, which are told.
pub(crate) fn start(
    query: &Path,
    folder: &Path,
    intervals: &[&str; 3],
    only_last: bool,
    seeded: &mut Seeded,
) -> (Child, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_slackwater"));
    start_program(program, query, folder, intervals, only_last, seeded)
}

/// The same of a program that may have functions of its own.
pub(crate) fn start_program(
    program: &Path,
    query: &Path,
    folder: &Path,
    intervals: &[&str; 3],
    only_last: bool,
    seeded: &mut Seeded,
) -> (Child, String) {
    let parallelism = 1 + seeded.below(4);
    let processes = 1 + seeded.below(parallelism.min(3));
    let interval = intervals[seeded.below(3) as usize];
    let link = ["shm", "tcp"][seeded.below(2) as usize];
    // A key that moves goes on in another instance's parts: which row is its last, files don't say.
    let rebalance = match only_last {
        true => "off",
        false => ["auto", "shuffle"][seeded.below(2) as usize],
    };
    let arguments = [
        format!("--parallelism={parallelism}"),
        format!("--workers={parallelism}"),
        format!("--processes={processes}"),
        format!("--link={link}"),
        format!("--set=rebalance={rebalance}"),
        format!("--set=checkpoint_interval={interval}"),
        format!("--set=chunk_rows={}", 16 + seeded.below(2000)),
        format!("--set=parsers={}", 1 + seeded.below(4)),
    ];
    let run = Command::new(program)
        .arg("run")
        .arg(query)
        .args(&arguments)
        .arg("--quiet")
        .arg("--state")
        .arg(folder.join("state"))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    (run, format!(" {}", arguments.join(" ")))
}

/// Fails unless the rows are those that are expected, each as often.
pub(crate) fn compare(title: &str, mut found: Vec<String>, expected: &[String], log: &str) {
    found.sort();
    if found == expected {
        return;
    }
    let count = |rows: &[String]| {
        let mut counts = BTreeMap::new();
        for row in rows {
            *counts.entry(row.clone()).or_insert(0) += 1;
        }
        counts
    };
    let (are, should) = (count(&found), count(expected));
    let differs = should
        .keys()
        .chain(are.keys())
        .find(|row| are.get(*row) != should.get(*row));
    let differs = differs.map(|row| (row, are.get(row), should.get(row)));
    panic!(
        "{title}: {} rows, {} expected; {differs:?}\n {log}",
        found.len(),
        expected.len(),
    );
}

/// Part files in the order in which they were written: by incarnation and number.
pub(crate) fn parts(folder: &Path) -> Vec<PathBuf> {
    let mut parts = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("part-") {
            continue;
        }
        let mut numbers = name.split('-').skip(1).map(|n| n.parse::<u64>().unwrap());
        let instance = numbers.next();
        let place = (numbers.collect::<Vec<u64>>(), instance);
        parts.insert(place, path);
    }
    parts.into_values().collect()
}

fn rows(file: &Path) -> usize {
    let bytes = unpacked(file);
    bytes.iter().filter(|&&byte| byte == b'\n').count()
}

/// What is in a file, which may be packed.
pub(crate) fn unpacked(file: &Path) -> Vec<u8> {
    let bytes = std::fs::read(file).unwrap();
    let is_packed = file.extension().is_some_and(|ending| ending == "gz");
    if !is_packed {
        return bytes;
    }
    let mut text = Vec::new();
    let mut unpacked = flate2::read::GzDecoder::new(&bytes[..]);
    std::io::Read::read_to_end(&mut unpacked, &mut text).unwrap();
    text
}

/// Whether a process ends within a time.
fn ends_within(run: &mut Child, time: Duration) -> bool {
    let until = Instant::now() + time;
    loop {
        if run.try_wait().unwrap().is_some() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The processes that a process has started.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let mut children = Vec::new();
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let listed = std::fs::read_to_string(task.path().join("children"));
        let listed = listed.unwrap_or_default();
        children.extend(
            listed
                .split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    children.sort_unstable();
    children
}
