//! An agent's beats: once a second while its processes work, none in a silence.
//!
//! A process that was asked reports when it next does something. So a beat asks all processes, and the next
//! beat is sent if one of them has reported meanwhile. In a silence nothing wakes up (I7).
//!
//! The answers are a lease: an answer to a beat that was sent at `t` is good until `t` plus the host's
//! time-out. Then the orchestrator may have begun the next incarnation elsewhere, and the session is ended,
//! which ends all processes.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use slackwater_engine::time::now_ns;

use super::messages::{Exchange, FromAgent};
use super::session::{Beside, Session};
use crate::hosts::{HostProcesses, ProcessCommand};

/// The time between two beats.
const BEAT: Duration = Duration::from_secs(1);

/// The beats of an agent that has joined.
pub struct Pulse {
    shared: Arc<Shared>,
}

struct Shared {
    session: Arc<Session>,
    host_timeout: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    processes: BTreeMap<usize, Arc<dyn HostProcesses>>,
    /// Whether a process has worked since the last beat.
    is_active: bool,
    /// Whether the orchestrator expects beats.
    beats: bool,
    next: Option<Instant>,
    /// When the lease ends, while it counts.
    lease: Option<Instant>,
    last: Option<Exchange>,
    is_over: bool,
}

impl Pulse {
    /// A thread that beats for the processes that it is told to watch.
    ///
    /// # Errors
    ///
    /// If the thread can't be started.
    pub fn start(session: &Arc<Session>, host_timeout: Duration) -> io::Result<Pulse> {
        let shared = Arc::new(Shared {
            session: Arc::clone(session),
            host_timeout,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let beating = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("pulse".to_string())
            .spawn(move || beating.run())?;
        Ok(Pulse { shared })
    }

    /// Watches a process that begins to run.
    pub fn watch(&self, process: usize, processes: &Arc<dyn HostProcesses>) {
        let mut state = self.shared.state();
        state.processes.insert(process, Arc::clone(processes));
        processes.tell(process, ProcessCommand::ReportActivity, None);
    }

    /// A process has done something.
    pub fn is_active(&self, process: usize) {
        let mut state = self.shared.state();
        if !state.processes.contains_key(&process) {
            return;
        }
        state.is_active = true;
        if !state.beats {
            state.next = Some(Instant::now());
            drop(state);
            self.shared.changed.notify_one();
        }
    }

    /// A beat was answered.
    pub fn answered(&self, exchange: Exchange) {
        let mut state = self.shared.state();
        state.last = Some(exchange);
        let since = Duration::from_nanos(now_ns().saturating_sub(exchange.sent_ns));
        let left = self.shared.host_timeout.saturating_sub(since);
        if state.beats {
            state.lease = Some(Instant::now() + left);
        }
    }

    /// The processes have ended.
    pub fn forget(&self) {
        let processes = {
            let mut state = self.shared.state();
            if std::mem::take(&mut state.beats) {
                let silent = &FromAgent::Silent;
                self.shared.session.send(silent, Beside::Nothing);
            }
            state.is_active = false;
            (state.next, state.lease) = (None, None);
            std::mem::take(&mut state.processes)
        };
        // Without the lock: the last owner of processes waits for their end, which is reported here.
        drop(processes);
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.shared.state().is_over = true;
        self.shared.changed.notify_one();
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.state();
        while !state.is_over {
            let now = Instant::now();
            if state.lease.is_some_and(|lease| lease <= now) {
                drop(state);
                let timeout_s = self.host_timeout.as_secs_f64();
                self.session.end(&format!(
                    "the orchestrator has not answered for {timeout_s} s"
                ));
                return;
            }
            if state.next.is_some_and(|next| next <= now) {
                self.beat(&mut state, now);
            }
            let due = [state.next, state.lease].into_iter().flatten().min();
            state = match due {
                None => {
                    let waited = self.changed.wait(state);
                    waited.expect("no thread panics under it")
                }
                Some(due) => {
                    let left = due.saturating_duration_since(now);
                    let waited = self.changed.wait_timeout(state, left);
                    waited.expect("no thread panics under it").0
                }
            };
        }
    }

    fn beat(&self, state: &mut State, now: Instant) {
        if !std::mem::take(&mut state.is_active) {
            (state.beats, state.next, state.lease) = (false, None, None);
            self.session.send(&FromAgent::Silent, Beside::Nothing);
            return;
        }
        state.beats = true;
        state.next = Some(now + BEAT);
        state.lease.get_or_insert(now + self.host_timeout);
        self.session.send_urgent(&FromAgent::Beat {
            sent_ns: now_ns(),
            last: state.last,
        });
        for (process, processes) in &state.processes {
            processes.tell(*process, ProcessCommand::ReportActivity, None);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics under it")
    }
}
