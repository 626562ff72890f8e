//! Exactly once over reference queries, whatever dies: the active, its workers, the standby or both; whatever
//! is stopped for a while; and whoever is promoted.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::crash::{Round, children_of, rounds_long, seeds};
use crate::support::{Seeded, data};

/// Rounds of the short test, and of `make test-crash` for each reference query.
const ROUNDS: u64 = 12;
const ROUNDS_LONG: u64 = 100;

/// What may happen in one round.
const EVENTS_MAX: u64 = 6;

/// The most time between two of them, in milliseconds.
const PAUSE_MAX: u64 = 500;

/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a standby may be alone before it is promoted.
const ALONE: Duration = Duration::from_secs(1);

const LAGS: [&str; 3] = ["20 ms", "100 ms", "400 ms"];

#[test]
#[ignore = "slow: make test-all"]
fn no_row_is_lost_or_doubled_with_standbys() {
    let Some(data) = data() else { return };
    let (seeds, _) = seeds(ROUNDS);
    for seed in seeds {
        trial(&Round::new(&data, seed));
    }
}

#[test]
#[ignore = "takes an hour: make test-crash"]
fn no_row_is_lost_or_doubled_with_standbys_in_many_rounds() {
    let Some(data) = data() else { return };
    let (seeds, _) = seeds(rounds_long(
        ROUNDS_LONG * crate::answers::ANSWERS.len() as u64,
    ));
    for seed in seeds {
        trial(&Round::new(&data, seed));
    }
}

/// A query with an active run and one that stands by, most of the time.
pub(crate) struct Trial<'a> {
    /// The program, which may have functions of its own.
    pub(crate) program: &'a Path,
    pub(crate) title: String,
    pub(crate) query: &'a Path,
    /// Where it runs, and keeps its state.
    pub(crate) folder: &'a Path,
    /// Whether only the last row of each key counts.
    pub(crate) only_last: bool,
    pub(crate) seeded: Seeded,
}

struct Running<'a> {
    trial: Trial<'a>,
    /// The active, and the standby.
    runs: Vec<Run>,
    log: String,
}

struct Run {
    child: Child,
    /// Whether it was started to stand by.
    stands_by: bool,
    /// Whether it was killed.
    is_killed: bool,
}

/// A reference query with random harm.
fn trial(round: &Round<'_>) {
    let trial = Trial {
        program: Path::new(env!("CARGO_BIN_EXE_slackwater")),
        title: round.title(),
        query: round.query(),
        folder: round.folder(),
        only_last: round.only_last(),
        seeded: Seeded(round.seed() * 104_729 + 3),
    };
    round.check(&trial.run());
}

impl Trial<'_> {
    /// Runs the query to its end; returns what has happened.
    pub(crate) fn run(self) -> String {
        let running = Running {
            trial: self,
            runs: Vec::new(),
            log: String::new(),
        };
        running.run()
    }
}

impl Running<'_> {
    fn run(mut self) -> String {
        let until = Instant::now() + PATIENCE;
        let mut left = 1 + self.trial.seeded.below(EVENTS_MAX);
        let mut is_over = false;
        while !(is_over && self.runs.is_empty()) {
            assert!(
                Instant::now() < until,
                "{}: stuck:{}",
                self.trial.title,
                self.log
            );
            is_over |= self.reap();
            if !is_over {
                self.complete();
            }
            if !is_over && left > 0 {
                std::thread::sleep(Duration::from_millis(self.trial.seeded.below(PAUSE_MAX)));
                left -= 1;
                self.disturb();
            } else {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        std::mem::take(&mut self.log)
    }

    /// Starts what is missing. A standby that has found nobody to follow waits for its promotion.
    fn complete(&mut self) {
        let door = self.trial.folder.join("state/active.sock");
        // One that was killed leaves the file.
        let has_door = || UnixStream::connect(&door).is_ok();
        match &self.runs[..] {
            [] => self.start(false),
            [run] if !run.stands_by || has_door() => self.start(true),
            [_] => {
                let until = Instant::now() + ALONE;
                while !has_door() && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(5));
                }
                if !has_door() {
                    self.promote();
                }
            }
            _ => {}
        }
    }

    fn promote(&mut self) {
        let promoted = Command::new(env!("CARGO_BIN_EXE_slackwater"))
            .arg("promote")
            .arg(self.trial.folder.join("state"))
            .output()
            .unwrap();
        let said = [&promoted.stdout[..], &promoted.stderr[..]].concat();
        let said = String::from_utf8_lossy(&said);
        self.log.push_str(&format!("; promoted: {}", said.trim()));
    }

    fn start(&mut self, is_standby: bool) {
        let seeded = &mut self.trial.seeded;
        let parallelism = 1 + seeded.below(4);
        let processes = match is_standby {
            true => 1,
            false => 1 + seeded.below(parallelism.min(3)),
        };
        let rebalance = match self.trial.only_last {
            true => "off",
            false => ["auto", "shuffle"][seeded.below(2) as usize],
        };
        let mut arguments = vec![
            format!("--parallelism={parallelism}"),
            format!("--workers={parallelism}"),
            format!("--processes={processes}"),
            format!("--set=rebalance={rebalance}"),
            format!("--set=standby_lag={}", LAGS[seeded.below(3) as usize]),
            format!(
                "--set=checkpoint_interval={}",
                ["60 ms", "300 ms"][seeded.below(2) as usize]
            ),
        ];
        if is_standby {
            arguments.push("--standby".to_string());
        }
        self.log.push_str(&format!("\n {}", arguments.join(" ")));
        let child = Command::new(self.trial.program)
            .arg("run")
            .arg(self.trial.query)
            .args(&arguments)
            .arg("--quiet")
            .arg("--state")
            .arg(self.trial.folder.join("state"))
            .current_dir(self.trial.folder)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        self.runs.push(Run {
            child,
            stands_by: is_standby,
            is_killed: false,
        });
    }

    /// Takes away the runs that have ended; returns whether the query has.
    fn reap(&mut self) -> bool {
        let mut is_over = false;
        for mut run in std::mem::take(&mut self.runs) {
            let Some(status) = run.child.try_wait().unwrap() else {
                self.runs.push(run);
                continue;
            };
            let output = run.child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.trim().replace('\n', "\n  ");
            self.log.push_str(&format!("\n  {said}"));
            let is_fine = status.success() || run.is_killed;
            assert!(is_fine, "{}: failed: {}", self.trial.title, self.log);
            // One that was promoted away says so in its summary, and is not the last.
            let place = self.trial.folder.join("state");
            is_over |= status.success() && is_finished(&place);
        }
        is_over
    }

    fn disturb(&mut self) {
        let (what, number) = match self.trial.seeded.below(8) {
            0..=2 => ("active killed", 0),
            3 => ("standby killed", 1),
            4 => {
                self.kill(1);
                ("both killed", 0)
            }
            5 => {
                self.log.push_str("; standby stopped");
                let pause = Duration::from_millis(self.trial.seeded.below(2 * PAUSE_MAX));
                self.signal(1, Signal::STOP);
                std::thread::sleep(pause);
                self.signal(1, Signal::CONT);
                return;
            }
            6 => {
                self.promote();
                return;
            }
            _ => {
                let workers = self.runs.first().map(|run| children_of(run.child.id()));
                let Some(&worker) = workers.as_ref().and_then(|workers| workers.first()) else {
                    return;
                };
                self.log.push_str("; worker killed");
                let _ = kill_process(Pid::from_raw(worker as i32).unwrap(), Signal::KILL);
                return;
            }
        };
        self.log.push_str(&format!("; {what}"));
        self.kill(number);
    }

    fn kill(&mut self, number: usize) {
        if let Some(run) = self.runs.get_mut(number) {
            run.is_killed = true;
            run.child.kill().unwrap();
        }
    }

    fn signal(&self, number: usize, signal: Signal) {
        if let Some(run) = self.runs.get(number) {
            let _ = kill_process(Pid::from_raw(run.child.id() as i32).unwrap(), signal);
        }
    }
}

impl Drop for Running<'_> {
    /// A failed test leaves no process behind.
    fn drop(&mut self) {
        for run in &mut self.runs {
            let _ = run.child.kill();
            let _ = run.child.wait();
        }
    }
}

/// Whether the newest checkpoint is the last one.
fn is_finished(place: &Path) -> bool {
    let listed = Command::new(env!("CARGO_BIN_EXE_slackwater"))
        .arg("checkpoints")
        .arg(place)
        .output()
        .unwrap();
    String::from_utf8_lossy(&listed.stdout).contains("finished")
}
