//! A host that has joined: its agent, as the orchestrator sees it.
//!
//! Invariants:
//! - What an agent says of an earlier incarnation is dropped and counted: each incarnation has its own
//!   [`Run`], and only the last one is heard.
//! - A session that ends has ended all its processes, as far as the query is concerned: each of them is
//!   reported as left, once.

mod processes;

pub use processes::Joined;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use slackwater_control::lease::{Answer, Grantor, Standing, Terms};
use slackwater_engine::time::now_ns;

use super::messages::{ClockKnown, FromAgent, HostStatus, ToAgent};
use super::session::{Beside, Receiver, Session};
use super::traffic::Bytes;
use crate::hosts::{Exit, Facts, Found, Group, Hear, News, What};

/// A host that has joined.
pub struct JoinedHost {
    facts: Facts,
    session: Arc<Session>,
    state: Mutex<State>,
    changed: Condvar,
    terms: Terms,
}

#[derive(Default)]
struct State {
    run: Option<Run>,
    /// The answer to the last question.
    found: Option<Found>,
    /// Why it is lost.
    lost: Option<String>,
    /// What it knows of the orchestrator's clock.
    clock: Option<ClockKnown>,
    /// Messages of earlier incarnations that were dropped.
    fenced: u64,
    /// Who has asked it to leave.
    leaving: Option<Leaving>,
    /// Why it can't, if it was asked to.
    kept: Option<String>,
}

/// Who wants a host to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// Its agent, which ends in any case.
    Agent,
    /// Somebody else, whom the orchestrator answers.
    Other,
}

/// The processes of an incarnation.
struct Run {
    group: Group,
    lease: Grantor,
    hear: Hear,
    /// The answer to the request to start them.
    started: Option<Result<Vec<u32>, String>>,
    /// Those that have not left.
    running: BTreeSet<usize>,
    has_ended: bool,
}

impl std::fmt::Debug for JoinedHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("JoinedHost").field(&self.facts.name).finish()
    }
}

impl JoinedHost {
    /// A host whose agent has been welcomed.
    pub fn new(facts: Facts, session: Arc<Session>, terms: Terms) -> JoinedHost {
        JoinedHost {
            facts,
            session,
            state: Mutex::default(),
            changed: Condvar::new(),
            terms,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// Where its agent is.
    pub fn peer(&self) -> SocketAddr {
        self.session.stream().peer_address()
    }

    /// Whether it was asked to leave.
    pub fn leaves(&self) -> bool {
        self.state().leaving.is_some()
    }

    /// Asks it to leave, and waits until it has left.
    ///
    /// # Errors
    ///
    /// If it can't leave, or does not within that time, as a sentence about it.
    pub fn drain(&self, patience: Duration, changed: impl Fn()) -> Result<(), String> {
        {
            let mut state = self.state();
            state.leaving.get_or_insert(Leaving::Other);
            state.kept = None;
        }
        changed();
        let state = self.wait_for(patience, |state| state.kept.is_some());
        match (&state.lost, &state.kept) {
            (Some(_), _) => Ok(()),
            (None, Some(reason)) => Err(reason.clone()),
            (None, None) => Err(format!(
                "it has not left within {} s, and leaves as soon as it can",
                patience.as_secs()
            )),
        }
    }

    /// How it stands.
    pub fn status(&self) -> HostStatus {
        let state = self.state();
        HostStatus {
            name: self.facts.name.clone(),
            address: self.facts.address,
            cores: self.facts.machine().topology.allowed().len(),
            processes: state.run.as_ref().map_or(0, |run| run.running.len()),
            is_leaving: state.leaving.is_some(),
        }
    }

    /// Tells whoever wants it to leave that it can't without harm.
    pub fn keep(&self, reason: &str) {
        let leaving = {
            let mut state = self.state();
            state.kept = Some(reason.to_string());
            state.leaving.take()
        };
        self.changed.notify_all();
        if leaving == Some(Leaving::Agent) {
            let reason = reason.to_string();
            self.session
                .send(&ToAgent::Stay { reason }, Beside::Nothing);
        }
    }

    /// Whether its session goes on.
    pub fn is_there(&self) -> bool {
        self.state().lost.is_none()
    }

    /// When to call [`JoinedHost::look`], by this host's clock; `None` while no beat is expected.
    pub fn due_ns(&self) -> Option<u64> {
        let state = self.state();
        let run = state.run.as_ref().filter(|_| state.lost.is_none());
        run.and_then(|run| run.lease.next_ns())
    }

    /// Gives the host up if nothing was heard of it for too long.
    pub fn look(&self) {
        let is_lost = {
            let mut state = self.state();
            let run = state.run.as_mut();
            run.is_some_and(|run| {
                let standing = run.lease.look(now_ns());
                !matches!(standing, Standing::Held | Standing::Silent)
            })
        };
        if is_lost {
            let timeout_s = Duration::from_nanos(self.terms.host_timeout_ns).as_secs_f64();
            self.give_up(&format!("nothing was heard of it for {timeout_s} s"));
        }
    }

    /// Messages of earlier incarnations that were dropped.
    pub fn fenced(&self) -> u64 {
        self.state().fenced
    }

    /// The bytes of messages so far.
    pub fn traffic(&self) -> Bytes {
        self.session.traffic.bytes()
    }

    /// What it knows of the orchestrator's clock.
    pub fn clock(&self) -> Option<ClockKnown> {
        self.state().clock
    }

    /// Gives it up.
    pub fn give_up(&self, reason: &str) {
        self.session.end(reason);
    }

    /// Tells the agent that it isn't needed any more: the query is over, or goes on without it.
    pub fn dismiss(&self) {
        let is_drained = self.leaves();
        self.session
            .send(&ToAgent::Over { is_drained }, Beside::Nothing);
        self.session.finish();
    }

    /// Hears the agent until the session ends; returns the reason. `changed` is called when there is another
    /// time at which it is due.
    pub fn hear<R: io::Read>(
        &self,
        receiver: &mut Receiver<R>,
        mut changed: impl FnMut(),
    ) -> String {
        let reason = loop {
            match receiver.receive::<FromAgent>() {
                Ok(Some((message, beside))) => self.take(message, beside, &mut changed),
                Ok(None) => break ("its agent has ended".to_string(), true),
                Err(error) => break (error.to_string(), is_end(&error)),
            }
        };
        let (reason, is_end) = match self.session.ended() {
            // This side has given it up.
            Some(reason) => (reason, false),
            None => reason,
        };
        self.session.end(&reason);
        self.lose(&reason, is_end);
        reason
    }

    fn take(&self, message: FromAgent, beside: Beside, changed: &mut impl FnMut()) {
        match message {
            FromAgent::Leaving => {
                self.state().leaving = Some(Leaving::Agent);
                changed();
            }
            FromAgent::Looked(found) => {
                self.state().found = Some(found);
                self.changed.notify_all();
            }
            FromAgent::Started { epoch, pids, clock } => {
                let mut state = self.state();
                state.clock = clock.or(state.clock);
                drop(state);
                self.answer(epoch, Ok(pids));
            }
            FromAgent::NotStarted { epoch, reason } => self.answer(epoch, Err(reason)),
            FromAgent::Said {
                epoch,
                process,
                event,
            } => {
                let (bytes, state) = match beside {
                    Beside::Nothing => (Vec::new(), None),
                    Beside::Bytes(bytes) => (bytes, None),
                    Beside::File(file) => (Vec::new(), Some(file)),
                };
                let what = What::Said {
                    event,
                    bytes,
                    state,
                };
                self.pass_on(epoch, process, what);
            }
            FromAgent::Left {
                epoch,
                process,
                exit,
            } => {
                let is_new = {
                    let mut state = self.state();
                    let run = state.run_of(epoch);
                    run.is_some_and(|run| run.running.remove(&process))
                };
                if is_new {
                    self.pass_on(epoch, process, What::Left(exit));
                }
            }
            FromAgent::Ended { epoch } => {
                let mut state = self.state();
                if let Some(run) = state.run_of(epoch) {
                    run.has_ended = true;
                    run.lease.confirmed();
                }
                drop(state);
                self.changed.notify_all();
            }
            FromAgent::Beat { beat, clock } => {
                let received_ns = now_ns();
                let answer = {
                    let mut state = self.state();
                    state.clock = clock.or(state.clock);
                    match state.run.as_mut() {
                        Some(run) => run.lease.heard(received_ns, &beat),
                        // Of an incarnation that is over.
                        None => Some(Answer {
                            epoch: beat.epoch,
                            number: beat.number,
                            is_granted: false,
                        }),
                    }
                };
                if let Some(answer) = answer {
                    self.state().fenced += u64::from(!answer.is_granted);
                    self.session.send_urgent(&ToAgent::Answer {
                        answer,
                        received_ns,
                        answered_ns: now_ns(),
                    });
                }
                changed();
            }
        }
    }

    fn answer(&self, epoch: u64, answer: Result<Vec<u32>, String>) {
        let mut state = self.state();
        if let Some(run) = state.run_of(epoch) {
            run.started = Some(answer);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Passes on what is heard of a process of the last incarnation.
    fn pass_on(&self, epoch: u64, process: usize, what: What) {
        let hear = {
            let mut state = self.state();
            let run = state.run_of(epoch);
            let run = run.filter(|run| run.group.has(process));
            let hear = run.map(|run| Arc::clone(&run.hear));
            state.fenced += u64::from(hear.is_none());
            hear
        };
        if let Some(hear) = hear {
            hear(News { process, what });
        }
    }

    /// The session has ended; `is_end` says that the agent has ended it, or has ended with it.
    fn lose(&self, reason: &str, is_end: bool) {
        let left = {
            let mut state = self.state();
            state.lost = Some(reason.to_string());
            let run = state.run.as_mut();
            run.map(|run| {
                match is_end {
                    true => {
                        run.has_ended = true;
                        run.lease.confirmed();
                    }
                    false => run.lease.give_up(),
                }
                (Arc::clone(&run.hear), std::mem::take(&mut run.running))
            })
        };
        self.changed.notify_all();
        let (hear, running) = match left {
            Some((hear, running)) => (hear, running),
            None => return,
        };
        for process in running {
            let exit = Exit {
                reason: format!("was lost with its host {}: {reason}", self.facts.name),
                is_crash: false,
                noted: Vec::new(),
            };
            hear(News {
                process,
                what: What::Left(exit),
            });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics under it")
    }

    /// Waits until `is_so` of the incarnation, the host is lost, or the time is over.
    fn wait(&self, patience: Duration, is_so: impl Fn(&Run) -> bool) -> MutexGuard<'_, State> {
        self.wait_for(patience, |state| state.run.as_ref().is_some_and(&is_so))
    }

    fn wait_for(
        &self,
        patience: Duration,
        is_so: impl Fn(&State) -> bool,
    ) -> MutexGuard<'_, State> {
        let until = Instant::now() + patience;
        let mut state = self.state();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if is_so(&state) || state.lost.is_some() || left.is_zero() {
                return state;
            }
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.expect("no thread panics under it");
        }
    }
}

/// Whether the other end of a connection says that it is over. Processes die with their agent, and an agent
/// without a session kills them. Only when nothing is heard of it, they may go on until their lease ends.
pub fn is_end(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
    kinds.contains(&error.kind())
}

impl State {
    fn run_of(&mut self, epoch: u64) -> Option<&mut Run> {
        self.run.as_mut().filter(|run| run.group.epoch == epoch)
    }
}

#[cfg(test)]
mod tests;
