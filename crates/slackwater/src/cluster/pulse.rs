//! An agent's lease: beats while its processes work, and none in a silence.
//!
//! A process that was asked reports when it next does something. So a beat asks all processes, and the next
//! one says whether one of them has reported meanwhile. In a silence nothing wakes up (I7).
//! [`slackwater_control::lease`] decides when to beat, and when the processes have to end.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use slackwater_control::clock::{ClockEstimate, Exchange};
use slackwater_control::lease::{Answer, Beat, Do, Holder, Terms};
use slackwater_engine::time::now_ns;

use super::messages::{ClockKnown, FromAgent};
use super::session::Session;
use crate::hosts::{HostProcesses, ProcessCommand};

/// The lease of an agent's processes, and its thread.
pub struct Pulse {
    shared: Arc<Shared>,
}

/// What an agent has to do about the processes of an incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Nothing.
    Nothing,
    /// Start them.
    Start,
    /// Kill them: the lease has ended.
    Kill,
}

struct Shared {
    session: Arc<Session>,
    terms: Terms,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    holder: Option<Holder>,
    processes: BTreeMap<usize, Arc<dyn HostProcesses>>,
    /// Whether a process has worked since the last beat.
    has_worked: bool,
    /// When beats were sent, by the clock that links use; the orchestrator answers in order.
    sent: BTreeMap<u64, u64>,
    clock: ClockEstimate,
    is_over: bool,
}

impl State {
    fn clock_known(&self, now_ns: u64) -> Option<ClockKnown> {
        let clock = self.clock.at(now_ns)?;
        Some(ClockKnown {
            offset_ns: clock.offset_ns,
            error_ns: clock.error_ns,
        })
    }
}

/// The time of leases, which goes on while the machine sleeps.
fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Pulse {
    /// A thread that keeps the leases that [`Pulse::begin`] asks for.
    ///
    /// # Errors
    ///
    /// If the thread can't be started.
    pub fn start(session: &Arc<Session>, terms: Terms) -> io::Result<Pulse> {
        let shared = Arc::new(Shared {
            session: Arc::clone(session),
            terms,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let beating = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("pulse".to_string())
            .spawn(move || beating.run())?;
        Ok(Pulse { shared })
    }

    /// Asks for the lease of an incarnation; [`Pulse::answered`] says when its processes may start.
    pub fn begin(&self, epoch: u64) {
        let mut state = self.shared.state();
        let (holder, beat) = Holder::begin(self.shared.terms, epoch, boot_ns());
        state.holder = Some(holder);
        state.sent.clear();
        self.shared.send(&mut state, beat);
        drop(state);
        self.shared.changed.notify_one();
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
        state.has_worked = true;
        let beat = state.holder.as_mut();
        if let Some(beat) = beat.and_then(|holder| holder.worked(boot_ns())) {
            self.shared.send(&mut state, beat);
            self.shared.ask(&mut state);
            drop(state);
            self.shared.changed.notify_one();
        }
    }

    /// A beat was answered, with the orchestrator's stamps. Returns what to do, and what is known of the
    /// orchestrator's clock.
    pub fn answered(&self, answer: &Answer, received_ns: u64, answered_ns: u64) -> Order {
        let mut state = self.shared.state();
        if let Some(sent_ns) = state.sent.remove(&answer.number) {
            state.clock.add(&Exchange {
                sent_ns,
                received_there_ns: received_ns,
                answered_there_ns: answered_ns,
                received_ns: now_ns(),
            });
        }
        let holder = state.holder.as_mut();
        let order = holder.map_or(Do::Nothing, |holder| holder.answered(boot_ns(), answer));
        // Its next deadline has changed.
        drop(state);
        self.shared.changed.notify_one();
        match order {
            Do::Nothing | Do::Beat(_) => Order::Nothing,
            Do::Start => Order::Start,
            Do::Kill => Order::Kill,
        }
    }

    /// What is known of the orchestrator's clock.
    pub fn clock(&self) -> Option<ClockKnown> {
        self.shared.state().clock_known(now_ns())
    }

    /// The processes have ended.
    pub fn forget(&self) {
        let processes = {
            let mut state = self.shared.state();
            state.holder = None;
            state.has_worked = false;
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
            let now_ns = boot_ns();
            let has_worked = state.has_worked;
            let holder = state.holder.as_mut();
            match holder.map_or(Do::Nothing, |holder| holder.due(now_ns, has_worked)) {
                Do::Beat(beat) => {
                    state.has_worked = false;
                    self.send(&mut state, beat);
                    self.ask(&mut state);
                }
                Do::Kill => {
                    drop(state);
                    // The orchestrator can't be asked whether it still leads. Without the session the
                    // processes end, and the agent joins again.
                    let timeout_s = Duration::from_nanos(self.terms.host_timeout_ns).as_secs_f64();
                    let reason = format!("the orchestrator has not answered for {timeout_s} s");
                    self.session.end(&reason);
                    return;
                }
                Do::Nothing | Do::Start => {}
            }
            let next_ns = state.holder.as_ref().and_then(Holder::next_ns);
            state = match next_ns {
                None => {
                    let waited = self.changed.wait(state);
                    waited.expect("no thread panics under it")
                }
                Some(next_ns) => {
                    let left = Duration::from_nanos(next_ns.saturating_sub(now_ns));
                    let waited = self.changed.wait_timeout(state, left);
                    waited.expect("no thread panics under it").0
                }
            };
        }
    }

    fn send(&self, state: &mut State, beat: Beat) {
        let sent_ns = now_ns();
        // Answers that were lost never come.
        state.sent.retain(|number, _| *number + 16 > beat.number);
        state.sent.insert(beat.number, sent_ns);
        let clock = state.clock_known(sent_ns);
        self.session.send_urgent(&FromAgent::Beat { beat, clock });
    }

    /// Asks all processes to report when they next do something, and tells them the time.
    fn ask(&self, state: &mut State) {
        let clock = state.clock.at(now_ns());
        for (process, processes) in &state.processes {
            if let Some(clock) = clock {
                let command = ProcessCommand::Clock {
                    offset_ns: clock.offset_ns,
                };
                processes.tell(*process, command, None);
            }
            processes.tell(*process, ProcessCommand::ReportActivity, None);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics under it")
    }
}
