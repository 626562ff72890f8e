//! A job: a process of its own that runs a query, and the thread that attends to it.
//!
//! ```text
//! wanted: run ─► start the process ─► listen ─► it finished, was stopped, or failed: wait for START or STOP
//!                     ▲                  └─► it died: wait a moment ─┐
//!                     └──────────────────────────────────────────────┘
//! ```

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use slackwater_serve::backend::{JobState, Kind, Refusal, Status};
use slackwater_sql::settings::RESTARTS;

use super::child::{Child, Said};
use super::log::{Incarnation, Level, Log};
use super::not_running::not_running;
use super::protocol::{Begin, FromJob, ToJob};
use super::talk::{Talk, gone};

/// The time in which a job whose process dies too often is given up.
const DEATHS_WITHIN: Duration = Duration::from_secs(600);

/// The pause before a process that died is replaced: doubled for each death within [`DEATHS_WITHIN`].
const PAUSE: Duration = Duration::from_millis(100);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long a reader waits for a job that is about to start.
pub const START_PATIENCE: Duration = Duration::from_secs(10);

/// The most conversations that are kept for the next reader.
const TALKS_KEPT: usize = 16;

/// What is told when a job has ended without being told to: why, or nothing if its inputs have ended.
pub type Ended = Box<dyn Fn(&str, &str) + Send + Sync>;

/// What is told when a process can be joined by hosts: its name, its port, and how many it wants. Without a
/// port it has ended.
pub type Wants = Box<dyn Fn(&str, Option<u16>, usize) + Send + Sync>;

/// A job of a server.
pub struct Job {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    name: String,
    state: Mutex<State>,
    changed: Condvar,
    log: Log,
    ended: Ended,
    wants: Wants,
}

struct State {
    begin: Begin,
    wanted: Wanted,
    status: Status,
    /// Counts START, STOP and changes, so that a waiter sees that something else is wanted.
    asked: u64,
    child: Option<Child>,
    starts: u64,
    talks: Vec<Talk>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Run,
    Stop,
    /// As it is now: it has finished or failed.
    Nothing,
    Remove,
}

/// How a process ended.
enum Ending {
    Finished,
    Stopped,
    /// It would fail again.
    Failed(String),
    Died(String),
}

impl Job {
    /// A job that is to run, or is stopped, or has ended as `status` says.
    ///
    /// # Errors
    ///
    /// If there are too many threads.
    pub fn new(
        begin: Begin,
        status: Status,
        log: Log,
        ended: Ended,
        wants: Wants,
    ) -> Result<Job, Refusal> {
        let shared = Arc::new(Shared {
            name: begin.name.clone(),
            state: Mutex::new(State {
                begin,
                wanted: match status {
                    Status::Starting | Status::Running => Wanted::Run,
                    Status::Stopped => Wanted::Stop,
                    Status::Finished | Status::Failed { .. } => Wanted::Nothing,
                },
                status,
                asked: 0,
                child: None,
                starts: 0,
                talks: Vec::new(),
            }),
            changed: Condvar::new(),
            log,
            ended,
            wants,
        });
        let attended = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("job {}", shared.name))
            .stack_size(STACK_BYTES)
            .spawn(move || attended.attend());
        let thread = thread.map_err(|error| {
            Refusal::new(Kind::Limit, format!("no thread for the job: {error}"))
        })?;
        Ok(Job {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// What it does.
    pub fn state(&self) -> JobState {
        let state = self.shared.state();
        JobState {
            name: self.shared.name.clone(),
            status: state.status.clone(),
            // One that has finished and does not stay is about to end.
            process: match (&state.status, state.begin.stays) {
                (Status::Finished, false) => None,
                _ => state.child.as_ref().map(Child::process),
            },
            starts: state.starts,
        }
    }

    /// Starts it with this SQL and these settings, if it does not run.
    pub fn start(&self, begin: Begin) {
        let mut state = self.shared.state();
        state.begin = begin;
        if state.wanted != Wanted::Run {
            (state.wanted, state.status) = (Wanted::Run, Status::Starting);
            state.asked += 1;
            self.shared.changed.notify_all();
        }
    }

    /// Changes what it runs from its next start on.
    pub fn renew(&self, begin: Begin) {
        self.shared.state().begin = begin;
    }

    /// Makes it save its state and end, without waiting for that.
    pub fn ask_to_stop(&self) {
        self.shared.want(Wanted::Stop);
    }

    /// Waits until it has ended, and kills it if it takes longer than `patience`; returns whether it ended in
    /// time.
    pub fn wait_until_stopped(&self, patience: Duration) -> bool {
        let state = self.shared.state();
        let runs = |state: &mut State| state.child.is_some();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(state, patience, runs);
        let (state, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
        if !timed_out.timed_out() {
            return true;
        }
        if let Some(child) = &state.child {
            child.kill();
        }
        let waited = self.shared.changed.wait_while(state, |state| runs(state));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        false
    }

    /// Waits until it runs.
    ///
    /// # Errors
    ///
    /// If it fails before, is stopped, or does not run in time.
    pub fn wait_until_running(&self, limit: Duration) -> Result<(), Refusal> {
        let state = self.shared.state();
        let starts = |state: &mut State| state.status == Status::Starting;
        let waited = self.shared.changed.wait_timeout_while(state, limit, starts);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match &state.status {
            Status::Running | Status::Finished => Ok(()),
            status => Err(not_running(&self.shared.name, status)),
        }
    }

    /// Waits until it runs, if it is about to: `true` if it then does, `false` if it is stopped or has ended,
    /// so that somebody has to start it.
    ///
    /// # Errors
    ///
    /// If it does not run by `until`: it starts, or starts again and again.
    pub fn wait_if_starting(&self, until: Instant) -> Result<bool, Refusal> {
        let is_over = |state: &State| {
            let has_ended = matches!(state.status, Status::Finished | Status::Failed { .. });
            state.wanted != Wanted::Run || has_ended
        };
        let runs = |state: &State| state.child.is_some() && state.status == Status::Running;
        let waits = |state: &mut State| !is_over(state) && !runs(state);
        let limit = until.saturating_duration_since(Instant::now());
        let state = self.shared.state();
        let waited = self.shared.changed.wait_timeout_while(state, limit, waits);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match is_over(&state) {
            true => Ok(false),
            false if runs(&state) => Ok(true),
            false => Err(not_running(&self.shared.name, &state.status)),
        }
    }

    /// A conversation with its process: one that another reader has ended well, or a new one.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn talk(&self) -> Result<Talk, Refusal> {
        let state = self.shared.state();
        let starts = |state: &mut State| state.wanted == Wanted::Run && state.child.is_none();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(state, START_PATIENCE, starts);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(talk) = state.talks.pop() {
            return Ok(talk);
        }
        let Some(child) = &state.child else {
            return Err(not_running(&self.shared.name, &state.status));
        };
        let failed = |error: std::io::Error| Refusal::new(Kind::Limit, error.to_string());
        let (talk, theirs) = Talk::pair().map_err(failed)?;
        let told = child.channel.send(&ToJob::Talk, &[theirs.as_fd()]);
        told.map_err(|error| match error.kind() {
            // It has ended, and its thread has not noticed yet.
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => gone(),
            _ => failed(error),
        })?;
        Ok(talk)
    }

    /// Keeps a conversation for the next reader, if all that was asked has been answered.
    pub fn keep(&self, talk: Talk) {
        let mut state = self.shared.state();
        if state.talks.len() < TALKS_KEPT && state.child.is_some() {
            state.talks.push(talk);
        }
    }

    /// Ends it for good, with its process.
    pub fn remove(&self, patience: Duration) {
        self.shared.want(Wanted::Remove);
        self.wait_until_stopped(patience);
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            let of = Incarnation {
                job: &self.shared.name,
                number: 0,
            };
            self.shared
                .log
                .job(Level::Error, of, "the thread of the job has panicked");
        }
    }
}

/// A thread that waits and reads lines needs little.
const STACK_BYTES: usize = 256 << 10;

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn want(&self, wanted: Wanted) {
        let mut state = self.state();
        state.asked += 1;
        state.wanted = wanted;
        match &state.child {
            // It is told once more, if it was told before; if it is gone, its end is about to be noticed.
            Some(child) => drop(child.channel.send(&ToJob::Stop, &[])),
            None if !matches!(state.status, Status::Finished) => state.status = Status::Stopped,
            None => {}
        }
        self.changed.notify_all();
    }

    /// Runs the job whenever it is wanted, until it is removed.
    fn attend(&self) {
        let mut deaths = VecDeque::new();
        while let Some((begin, number)) = self.next() {
            let ending = match Child::start(&begin) {
                Ok(child) => self.watch(child, number),
                Err(error) => Ending::Died(format!("no process could be started: {error}")),
            };
            let of = Incarnation {
                job: &self.name,
                number,
            };
            let died = match ending {
                Ending::Finished => {
                    self.log
                        .job(Level::Info, of, "finished: its inputs have ended");
                    self.settle(Status::Finished, Some(""));
                    continue;
                }
                Ending::Stopped => {
                    self.log.job(Level::Info, of, "stopped");
                    self.settle(Status::Stopped, None);
                    continue;
                }
                Ending::Failed(reason) => {
                    self.fail(of, reason);
                    continue;
                }
                Ending::Died(how) => how,
            };
            let now = Instant::now();
            deaths.retain(|at: &Instant| now.duration_since(*at) < DEATHS_WITHIN);
            deaths.push_back(now);
            if deaths.len() > RESTARTS {
                let minutes = DEATHS_WITHIN.as_secs() / 60;
                let reason = format!(
                    "its process died {} times in {minutes} minutes; the last one {died}",
                    deaths.len()
                );
                deaths.clear();
                self.fail(of, reason);
                continue;
            }
            let pause = PAUSE_MAX.min(PAUSE * (1 << (deaths.len() - 1).min(16)));
            let message = format!(
                "its process {died}; it is started again in {} ms",
                pause.as_millis()
            );
            self.log.job(Level::Warning, of, &message);
            self.pause(pause);
        }
    }

    fn fail(&self, of: Incarnation<'_>, reason: String) {
        self.log.job(Level::Error, of, &reason);
        let why = reason.clone();
        self.settle(Status::Failed { reason }, Some(&why));
    }

    /// The SQL and the number of the next incarnation, once the job is to run; `None` when it is removed.
    fn next(&self) -> Option<(Begin, u64)> {
        let waits = |state: &mut State| matches!(state.wanted, Wanted::Stop | Wanted::Nothing);
        let waited = self.changed.wait_while(self.state(), waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.wanted == Wanted::Remove {
            return None;
        }
        state.status = Status::Starting;
        state.starts += 1;
        Some((state.begin.clone(), state.starts))
    }

    /// Waits until it is time to start again, or something else is wanted.
    fn pause(&self, pause: Duration) {
        let state = self.state();
        let asked = state.asked;
        let waited = self
            .changed
            .wait_timeout_while(state, pause, |state| state.asked == asked);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Nothing more is to be done until somebody asks: unless somebody has meanwhile.
    fn settle(&self, status: Status, ended: Option<&str>) {
        let mut state = self.state();
        if state.wanted == Wanted::Run {
            state.wanted = Wanted::Nothing;
        }
        state.status = status;
        self.changed.notify_all();
        drop(state);
        if let Some(why) = ended {
            (self.ended)(&self.name, why);
        }
    }

    /// Listens to a process until it is gone.
    fn watch(&self, child: Child, number: u64) -> Ending {
        let of = Incarnation {
            job: &self.name,
            number,
        };
        let (mut listener, handle) = match child.split() {
            Ok(split) => split,
            Err(error) => return Ending::Died(format!("could not be listened to: {error}")),
        };
        {
            let mut state = self.state();
            if state.wanted != Wanted::Run {
                // What it is told now comes after its beginning.
                let _ = handle.channel.send(&ToJob::Stop, &[]);
            }
            state.child = Some(handle);
            self.changed.notify_all();
        }
        let mut ending = None;
        while let Some(said) = listener.next() {
            match said {
                Said::Line(line) => self.log.said(of, &line),
                Said::Message(FromJob::Running) => self.runs(of),
                Said::Message(FromJob::Listens(port)) => {
                    let hosts = self.state().begin.hosts.clone();
                    let most = hosts.map_or(0, |hosts| hosts.count.1);
                    // The server's host is one of them.
                    (self.wants)(&self.name, Some(port), most.saturating_sub(1));
                }
                Said::Message(FromJob::Finished) => {
                    ending = Some(Ending::Finished);
                    self.finished();
                }
                Said::Message(FromJob::Stopped) => ending = Some(Ending::Stopped),
                Said::Message(FromJob::Refused(reason) | FromJob::Failed(reason)) => {
                    ending = Some(Ending::Failed(reason));
                }
            }
        }
        let exit = listener.wait();
        (self.wants)(&self.name, None, 0);
        let mut state = self.state();
        let is_wanted = state.wanted == Wanted::Run;
        let ending = match ending {
            // It was to stay, so that its views can be read, and is gone.
            Some(Ending::Finished) if is_wanted && state.begin.stays => Ending::Died(exit),
            Some(Ending::Finished) if state.begin.stays => Ending::Stopped,
            Some(ending) => ending,
            None if is_wanted => Ending::Died(exit),
            // It was killed because it did not stop: its last checkpoint holds.
            None => Ending::Stopped,
        };
        state.child = None;
        state.talks.clear();
        if matches!(ending, Ending::Stopped) {
            // Before anybody who waited for its end asks for it.
            state.status = Status::Stopped;
        }
        self.changed.notify_all();
        ending
    }

    fn runs(&self, of: Incarnation<'_>) {
        let mut state = self.state();
        state.status = Status::Running;
        self.changed.notify_all();
        drop(state);
        self.log.job(Level::Info, of, "running");
    }

    /// Its inputs have ended, and its process stays.
    fn finished(&self) {
        let mut state = self.state();
        state.status = Status::Finished;
        self.changed.notify_all();
        drop(state);
        (self.ended)(&self.name, "");
    }
}
