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

/// Nothing takes longer, restarts included.
const PATIENCE: Duration = Duration::from_secs(90);

#[test]
fn no_row_is_lost_or_doubled_whatever_is_killed() {
    let Some(data) = data() else { return };
    rounds(&data, ROUNDS);
}

#[test]
#[ignore = "takes an hour: make test-crash"]
fn no_row_is_lost_or_doubled_whatever_is_killed_in_many_rounds() {
    let Some(data) = data() else { return };
    let rounds_of_all = std::env::var("SLACKWATER_ROUNDS").ok();
    let rounds_of_all = rounds_of_all.map(|count| count.parse().expect("a number of rounds"));
    rounds(
        &data,
        rounds_of_all.unwrap_or(ROUNDS_LONG * ANSWERS.len() as u64),
    );
}

fn rounds(data: &Path, rounds: u64) {
    // A failing round is run again with its seed.
    let only = std::env::var("SLACKWATER_SEED").ok();
    let only = only.map(|seed| seed.parse::<u64>().expect("SLACKWATER_SEED is a number"));
    let seeds = match only {
        Some(seed) => seed..seed + 1,
        None => 0..rounds,
    };
    let mut killed = (0, 0);
    for seed in seeds {
        let round = Round::new(data, seed);
        let (parents, children) = round.run();
        killed = (killed.0 + parents, killed.1 + children);
    }
    assert!(
        only.is_some() || killed.0 + killed.1 > 0,
        "nothing was ever killed"
    );
    println!("killed {} parents and {} workers", killed.0, killed.1);
}

struct Round<'a> {
    seed: u64,
    name: &'static str,
    only_last: bool,
    data: &'a Path,
    folder: tempfile::TempDir,
    query: PathBuf,
}

impl<'a> Round<'a> {
    fn new(data: &'a Path, seed: u64) -> Round<'a> {
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
        let begun = Instant::now();
        let mut left = 1 + seeded.below(KILLS_MAX);
        let (mut parents, mut children) = (0, 0);
        let mut log = String::new();
        loop {
            let (mut run, what) = self.start(&mut seeded);
            log.push_str(&what);
            let mut is_killed = false;
            while left > 0 && !is_killed {
                let pause = Duration::from_millis(seeded.below((RUN_S * 800.0) as u64));
                if ends_within(&mut run, pause) {
                    break;
                }
                left -= 1;
                let workers = children_of(run.id());
                let victims = 1 + workers.len() as u64;
                match seeded.below(victims) {
                    0 => {
                        log.push_str(&format!("; parent killed {pause:?} later"));
                        run.kill().unwrap();
                        (is_killed, parents) = (true, parents + 1);
                    }
                    worker => {
                        log.push_str(&format!("; worker killed {pause:?} later"));
                        let pid = Pid::from_raw(workers[worker as usize - 1] as i32);
                        // As if it had died of its rows, half of the time: these are taken one by one.
                        let signal = [Signal::KILL, Signal::SEGV][seeded.below(2) as usize];
                        // It may have come to its end just now.
                        let _ = kill_process(pid.unwrap(), signal);
                        children += 1;
                    }
                }
            }
            let patience = PATIENCE.saturating_sub(begun.elapsed());
            assert!(
                ends_within(&mut run, patience),
                "{}: stuck after {PATIENCE:?}: {log}",
                self.title()
            );
            let output = run.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            log.push_str(&format!("\n  {}", said.trim().replace('\n', "\n  ")));
            if output.status.success() {
                break;
            }
            assert!(
                is_killed,
                "{}: failed by itself after{log}:\n{said}",
                self.title()
            );
            log.push_str("\n  again");
        }
        self.check(&log);
        (parents, children)
    }

    fn title(&self) -> String {
        format!("{}, SLACKWATER_SEED={}", self.name, self.seed)
    }

    fn start(&self, seeded: &mut Seeded) -> (Child, String) {
        let parallelism = 1 + seeded.below(4);
        let processes = 1 + seeded.below(parallelism.min(3));
        let interval = ["20 ms", "60 ms", "200 ms"][seeded.below(3) as usize];
        let link = ["shm", "tcp"][seeded.below(2) as usize];
        // A key that moves goes on in another instance's parts: which row is its last, files don't say.
        let rebalance = match self.only_last {
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
        ];
        let run = Command::new(env!("CARGO_BIN_EXE_slackwater"))
            .arg("run")
            .arg(&self.query)
            .args(&arguments)
            .arg("--quiet")
            .arg("--state")
            .arg(self.folder.path().join("state"))
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        (run, format!(" {}", arguments.join(" ")))
    }

    fn check(&self, log: &str) {
        let mut found = Vec::new();
        for part in parts(&self.folder.path().join("out")) {
            let text = std::fs::read_to_string(&part).unwrap();
            found.extend(text.lines().skip(1).map(str::to_string));
        }
        if self.only_last {
            found = crate::support::last_per_key(&found, '|');
        }
        found.sort();
        let expected = expected(self.data, self.name);
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
        let (are, should) = (count(&found), count(&expected));
        let differs = should
            .keys()
            .chain(are.keys())
            .find(|row| are.get(*row) != should.get(*row));
        let differs = differs.map(|row| (row, are.get(row), should.get(row)));
        panic!(
            "{}: {} rows, {} expected; {differs:?}\n {log}",
            self.title(),
            found.len(),
            expected.len(),
        );
    }
}

/// Part files in the order in which they were written: by incarnation and number.
fn parts(folder: &Path) -> Vec<PathBuf> {
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
    let bytes = std::fs::read(file).unwrap();
    let is_packed = file.extension().is_some_and(|ending| ending == "gz");
    if !is_packed {
        return bytes.iter().filter(|&&byte| byte == b'\n').count();
    }
    let mut text = Vec::new();
    let mut unpacked = flate2::read::GzDecoder::new(&bytes[..]);
    std::io::Read::read_to_end(&mut unpacked, &mut text).unwrap();
    text.iter().filter(|&&byte| byte == b'\n').count()
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
fn children_of(parent: u32) -> Vec<u32> {
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
