//! Decides how a query is restarted after a part of it has died, and when to give up.
//!
//! A pure state machine, used like the [coordinator](crate::coordinator): one for the whole life of a
//! query, while each incarnation has a coordinator of its own.
//!
//! ```text
//!            ┌────────────────────────── wait ◄─── stop ◄──────────┐ failed
//!            ▼                                                     │
//! start ─► claim ─► restore from n ─► commit what n has pending ─► run ─► finished
//!            ▲            │ n is corrupt
//!            └─ before n ◄┘
//! ```
//!
//! - Nothing of the earlier incarnation runs before the next one claims, as far as can be known; anything
//!   else is fenced by the claim ([`crate::Store::begin`]).
//! - The pending commits of the restored checkpoint are made before anything runs, and no other commits of
//!   earlier incarnations ever are. Sinks commit by name, so that committing again does nothing, and discard
//!   what they find prepared and not pending.
//! - Events of an incarnation that has ended are ignored.
//! - More than `restarts_max` failures within `window_ns` end the query with the last cause (Flink's
//!   failure-rate strategy). The wait before a restart doubles with each failure within the window.
//! - A checkpoint that turns out to be corrupt while it is read does not count as a failure: the one before
//!   it is tried, and their number is finite. The same holds for a checkpoint whose prepared rows are gone.
//!   If none is left the query ends: starting from nothing would emit everything again. Only if the rows of
//!   the very first checkpoint are gone, nothing was ever emitted, and the query does start from nothing.

use std::collections::VecDeque;

use crate::clock::Elapsed;

/// How often a query may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many failures within the window lead to a restart; one more ends the query.
    pub restarts_max: usize,
    /// The window.
    pub window_ns: u64,
    /// The wait before the first restart.
    pub wait_min_ns: u64,
    /// The longest wait.
    pub wait_max_ns: u64,
    /// How long the rest of a failed incarnation may take to stop before it is killed, and then to die before
    /// it is abandoned.
    pub stop_ns: u64,
}

impl Default for Limits {
    /// Ten restarts in ten minutes, after 0.1 to 10 seconds each.
    fn default() -> Limits {
        Limits {
            restarts_max: 10,
            window_ns: 600_000_000_000,
            wait_min_ns: 100_000_000,
            wait_max_ns: 10_000_000_000,
            stop_ns: 5_000_000_000,
        }
    }
}

/// An event for the recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// The query should run.
    Start,
    /// [`Output::Claim`] has succeeded.
    Claimed {
        /// The epoch of the new incarnation.
        epoch: u64,
        /// The checkpoint to resume from; `None` starts from nothing.
        restore: Option<u64>,
        /// Whether the query had finished, according to that checkpoint.
        finished: bool,
    },
    /// [`Output::Claim`] has failed.
    ClaimFailed {
        /// Why.
        reason: String,
        /// Whether a retry would be useless: another run has taken over, or a later version has written
        /// there. (The store's error is neither [`crate::Kind::Unavailable`] nor [`crate::Kind::Missing`].)
        is_fatal: bool,
    },
    /// Every instance has its state and positions, and waits.
    Restored {
        /// The incarnation.
        epoch: u64,
    },
    /// A part of the checkpoint is not what was written.
    Corrupt {
        /// The incarnation.
        epoch: u64,
        /// The object, and what is wrong with it.
        reason: String,
    },
    /// The pending commits of the checkpoint can't be made any more, and none of them was: a sink's system
    /// has discarded them.
    Lost {
        /// The incarnation.
        epoch: u64,
        /// Whether it was the query's first one ([`crate::Store::is_first`]), so that nothing was ever
        /// committed.
        is_first: bool,
    },
    /// All pending commits are made.
    Recommitted {
        /// The incarnation.
        epoch: u64,
    },
    /// Everything that was read is saved, and the query is to go on elsewhere: not a failure.
    Yielded {
        /// The incarnation.
        epoch: u64,
    },
    /// A process or an instance has died, or a step of its start failed. Only after [`Input::Claimed`].
    Failed {
        /// The incarnation.
        epoch: u64,
        /// Why.
        reason: String,
    },
    /// Nothing of the incarnation runs any more.
    Stopped {
        /// The incarnation.
        epoch: u64,
    },
    /// The coordinator reports that everything is committed.
    Finished {
        /// The incarnation.
        epoch: u64,
    },
    /// A restart would be useless (the coordinator has given up, the query is incompatible).
    Fatal {
        /// The incarnation.
        epoch: u64,
        /// Why.
        reason: String,
    },
}

/// An action for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Start an incarnation in the store.
    Claim {
        /// Resume from a checkpoint before this one.
        before: Option<u64>,
    },
    /// Start processes, and give instances their state and positions; they process nothing yet.
    Restore {
        /// The incarnation.
        epoch: u64,
        /// The checkpoint; `None` starts from nothing.
        checkpoint: Option<u64>,
    },
    /// Make the pending commits of the checkpoint; sinks discard whatever else they find prepared.
    Recommit {
        /// The incarnation.
        epoch: u64,
        /// The checkpoint.
        checkpoint: u64,
    },
    /// Let the instances run.
    Run {
        /// The incarnation.
        epoch: u64,
    },
    /// Stop everything that is left of it, and report [`Input::Stopped`].
    Stop {
        /// The incarnation.
        epoch: u64,
    },
    /// It doesn't stop, so kill it.
    Kill {
        /// The incarnation.
        epoch: u64,
    },
    /// The query has finished.
    End,
    /// The query ends with this error.
    GiveUp {
        /// The cause, and the number of failures.
        reason: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Claiming,
    Restoring {
        epoch: u64,
        checkpoint: Option<u64>,
    },
    Recommitting {
        epoch: u64,
        checkpoint: u64,
        finished: bool,
    },
    Running {
        epoch: u64,
    },
    /// Until when it may take to stop or to die, and how long to wait after that.
    Stopping {
        epoch: u64,
        until_ns: u64,
        is_killed: bool,
        wait_ns: u64,
    },
    Waiting {
        until_ns: u64,
    },
    Over,
}

/// Restarts one query.
#[derive(Debug, Clone)]
pub struct Recovery {
    limits: Limits,
    clock: Elapsed,
    state: State,
    /// The times of the last failures within the window; at most [`Limits::restarts_max`].
    failures: VecDeque<u64>,
    /// Resume from a checkpoint before this one: it and the later ones are corrupt.
    before: Option<u64>,
    /// Whether that one was the first, and committed nothing.
    may_begin: bool,
    /// Whether the query had finished, according to the incarnation's checkpoint.
    finished: bool,
    /// Whether the query has run, or tried to.
    has_begun: bool,
    restarts: u64,
}

impl Recovery {
    /// A query that has not been started.
    pub fn new(limits: Limits) -> Recovery {
        Recovery {
            limits,
            clock: Elapsed::new(limits.window_ns.saturating_add(1)),
            state: State::New,
            failures: VecDeque::new(),
            before: None,
            may_begin: false,
            finished: false,
            has_begun: false,
            restarts: 0,
        }
    }

    /// How often it was restarted.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// The time at which it must be called at the latest, on the caller's clock; `None` while there is
    /// nothing to wait for.
    pub fn next_ns(&self) -> Option<u64> {
        let due_ns = match self.state {
            State::Stopping { until_ns, .. } | State::Waiting { until_ns } => until_ns,
            _ => return None,
        };
        Some(self.clock.clock_ns(due_ns))
    }

    /// Handles an event, and returns what to do, in that order.
    pub fn handle(&mut self, now_ns: u64, input: Input) -> Vec<Output> {
        let now_ns = self.clock.advance(now_ns);
        let mut outputs = Vec::new();
        match (self.state, input) {
            (State::Over, _) => {}
            (State::New, Input::Start) => self.claim(&mut outputs),
            (
                State::Claiming,
                Input::Claimed {
                    epoch,
                    restore,
                    finished,
                },
            ) => {
                self.has_begun = true;
                self.finished = finished;
                if self.before.is_some() && restore.is_none() && !self.may_begin {
                    let reason = "no checkpoint is left that can be read".to_string();
                    self.give_up(reason, &mut outputs);
                    return outputs;
                }
                self.state = State::Restoring {
                    epoch,
                    checkpoint: restore,
                };
                // A finished query has nothing to restore, only something to commit.
                if finished {
                    self.restored(epoch, restore, &mut outputs);
                } else {
                    let checkpoint = restore;
                    outputs.push(Output::Restore { epoch, checkpoint });
                }
            }
            (State::Claiming, Input::ClaimFailed { reason, is_fatal }) => {
                if self.has_begun && !is_fatal {
                    self.failed(None, reason, &mut outputs);
                } else {
                    // At the first start the user is present, and can fix the problem.
                    self.give_up(reason, &mut outputs);
                }
            }
            (State::Restoring { epoch, checkpoint }, Input::Restored { epoch: seen })
                if seen == epoch =>
            {
                self.restored(epoch, checkpoint, &mut outputs);
            }
            (State::Restoring { epoch, checkpoint }, Input::Corrupt { epoch: seen, .. })
                if seen == epoch =>
            {
                self.before = checkpoint;
                self.may_begin = false;
                self.stop(epoch, 0, &mut outputs);
            }
            (
                State::Recommitting {
                    epoch, checkpoint, ..
                },
                Input::Lost {
                    epoch: seen,
                    is_first,
                },
            ) if seen == epoch => {
                self.before = Some(checkpoint);
                self.may_begin = is_first;
                self.stop(epoch, 0, &mut outputs);
            }
            (
                State::Recommitting {
                    epoch, finished, ..
                },
                Input::Recommitted { epoch: seen },
            ) if seen == epoch => {
                if finished {
                    self.state = State::Over;
                    outputs.push(Output::End);
                } else {
                    self.state = State::Running { epoch };
                    outputs.push(Output::Run { epoch });
                }
            }
            (State::Running { epoch }, Input::Yielded { epoch: seen }) if seen == epoch => {
                self.stop(epoch, 0, &mut outputs);
            }
            (State::Running { epoch }, Input::Finished { epoch: seen }) if seen == epoch => {
                self.state = State::Over;
                outputs.push(Output::End);
            }
            (
                State::Restoring { epoch, .. }
                | State::Recommitting { epoch, .. }
                | State::Running { epoch },
                Input::Failed {
                    epoch: seen,
                    reason,
                },
            ) if seen == epoch => self.failed(Some(epoch), reason, &mut outputs),
            (
                State::Restoring { epoch, .. }
                | State::Recommitting { epoch, .. }
                | State::Running { epoch },
                Input::Fatal {
                    epoch: seen,
                    reason,
                },
            ) if seen == epoch => {
                outputs.push(Output::Stop { epoch });
                self.give_up(reason, &mut outputs);
            }
            (State::Stopping { epoch, wait_ns, .. }, Input::Stopped { epoch: seen })
                if seen == epoch =>
            {
                self.state = State::Waiting {
                    until_ns: now_ns.saturating_add(wait_ns),
                };
            }
            _ => {}
        }
        self.pass_time(&mut outputs);
        outputs
    }

    fn pass_time(&mut self, outputs: &mut Vec<Output>) {
        let now_ns = self.clock.ns();
        match &mut self.state {
            State::Stopping {
                epoch,
                until_ns,
                is_killed: is_killed @ false,
                ..
            } if *until_ns <= now_ns => {
                *is_killed = true;
                *until_ns = now_ns.saturating_add(self.limits.stop_ns);
                outputs.push(Output::Kill { epoch: *epoch });
            }
            // Whether it is dead can't be found out: the claim fences it.
            State::Stopping {
                until_ns, wait_ns, ..
            } if *until_ns <= now_ns => {
                let until_ns = now_ns.saturating_add(*wait_ns);
                self.state = State::Waiting { until_ns };
            }
            State::Waiting { until_ns } if *until_ns <= now_ns => {
                self.restarts += 1;
                self.claim(outputs);
            }
            _ => {}
        }
    }

    fn claim(&mut self, outputs: &mut Vec<Output>) {
        self.state = State::Claiming;
        let before = self.before;
        outputs.push(Output::Claim { before });
    }

    fn restored(&mut self, epoch: u64, checkpoint: Option<u64>, outputs: &mut Vec<Output>) {
        self.before = None;
        self.may_begin = false;
        match checkpoint {
            Some(checkpoint) => {
                let finished = self.finished;
                self.state = State::Recommitting {
                    epoch,
                    checkpoint,
                    finished,
                };
                outputs.push(Output::Recommit { epoch, checkpoint });
            }
            None => {
                self.state = State::Running { epoch };
                outputs.push(Output::Run { epoch });
            }
        }
    }

    fn failed(&mut self, epoch: Option<u64>, reason: String, outputs: &mut Vec<Output>) {
        let now_ns = self.clock.ns();
        let begin_ns = now_ns.saturating_sub(self.limits.window_ns);
        self.failures.retain(|&at| at >= begin_ns);
        if self.failures.len() >= self.limits.restarts_max {
            if let Some(epoch) = epoch {
                outputs.push(Output::Stop { epoch });
            }
            let seconds = self.limits.window_ns as f64 / 1e9;
            let times = self.failures.len() + 1;
            let reason = format!("it failed {times} times within {seconds} s; the last: {reason}");
            self.give_up(reason, outputs);
            return;
        }
        let doubled = 1u64 << self.failures.len().min(32);
        let wait_ns = self.limits.wait_min_ns.saturating_mul(doubled);
        let wait_ns = wait_ns.min(self.limits.wait_max_ns);
        self.failures.push_back(now_ns);
        match epoch {
            Some(epoch) => self.stop(epoch, wait_ns, outputs),
            None => {
                self.state = State::Waiting {
                    until_ns: now_ns.saturating_add(wait_ns),
                };
            }
        }
    }

    fn stop(&mut self, epoch: u64, wait_ns: u64, outputs: &mut Vec<Output>) {
        self.state = State::Stopping {
            epoch,
            until_ns: self.clock.ns().saturating_add(self.limits.stop_ns),
            is_killed: false,
            wait_ns,
        };
        outputs.push(Output::Stop { epoch });
    }

    fn give_up(&mut self, reason: String, outputs: &mut Vec<Output>) {
        self.state = State::Over;
        outputs.push(Output::GiveUp { reason });
    }
}

#[cfg(test)]
mod tests;
