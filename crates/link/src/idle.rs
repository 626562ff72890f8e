//! Idling: what a worker does when it has found nothing to do.
//!
//! ```text
//! worked ─────────────► idle ──► Spin: look again at once
//!   ▲                     └────► Wait: announce → look again → sleep ──► woke ─┐
//!   └──────────────────── found something ◄── look ◄───────────────────────────┘
//! ```
//!
//! One strategy serves all links, descriptors and foreign threads of a worker, because it knows
//! none of them: it is told whether the worker found something, and for how long it waited. It has
//! neither a clock nor I/O of its own, so that it can be simulated (`idle/simulation.rs`).
//!
//! Invariants:
//! - **Idle costs nothing** (`poll` apart): after a bounded number of empty waits in a row every
//!   mode waits for everything, without a time-out. Only finding something ends that.
//! - A timed sleep listens for urgent things and leaves descriptors alone: that is the saving.
//! - No sleep is longer than the mode's time.
//! - The clock is read twice a wait, and never between the empty looks of a poll loop.
//! - Nothing here allocates, locks or fails.
//!
//! Sources: the modes are those of Akram and Bilas' "A Sleep-based Communication Mechanism to Save
//! Processor Utilization in Distributed Streaming Systems", the back-off is that of Agrona. The
//! choice between them is ours: `idle/choice.rs` and `docs/internals/waiting.md`.

mod choice;
mod mode;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use choice::Costs;
pub use mode::{DELAY_DEFAULT, SLEEP_MAX, WaitMode, WaitModeError};

use crate::doorbell::Listen;
use crate::waiter::{Sources, Woken};

use choice::{Choice, EMPTY_SLEEPS_MAX};

/// Empty sleeps in a row after which the mode `sleep:T` waits without a time-out: a hundred cost
/// some 2 ms of CPU time once per silence. Who asks for sleeps gets them at every rate that makes a
/// difference: at 0.07 messages per sleep a hundred in a row miss once in a thousand times.
const EMPTY_SLEEPS_ASKED_MAX: u32 = 100;

/// The same as time: a hundred sleeps of 10 s would be a quarter of an hour of wake-ups.
const EMPTY_ASKED_MAX: Duration = Duration::from_secs(2);

/// Looks of the back-off before its first sleep.
const BACK_OFF_LOOKS: u32 = 10;

/// The first sleep of the back-off. Ten doublings make it 1.024 ms.
const BACK_OFF_FIRST: Duration = Duration::from_micros(1);
const BACK_OFF_DOUBLINGS: u32 = 10;

/// Looks between two readings of the clock while spinning: a reading takes about 47 ns, a look at
/// a few links 10 to 100.
const LOOKS_PER_READING: u32 = 8;

/// What to do now that nothing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Look again at once, after a pause instruction.
    Spin,
    /// Announce, look again, and wait.
    Wait(Wait),
}

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What to announce.
    pub listen: Listen,
    /// For how long; `None` for as long as it takes.
    pub timeout: Option<Duration>,
    /// What ends the wait beside its time-out.
    pub sources: Sources,
}

impl Wait {
    /// Until something comes, whatever it is.
    pub const FOR_EVERYTHING: Wait = Wait {
        listen: Listen::Everything,
        timeout: None,
        sources: Sources::All,
    };

    /// Until something urgent comes, or the time is over.
    fn sleep(time: Duration) -> Wait {
        Wait {
            listen: Listen::Urgent,
            timeout: Some(time),
            sources: Sources::Doorbell,
        }
    }

    /// The same wait, but no longer than until a deadline of the worker's own. Without
    /// `descriptors` (a source lingers and wants none of them) they don't end a wait that has a
    /// deadline.
    pub fn bounded(self, deadline: Option<Duration>, descriptors: bool) -> Wait {
        let Some(deadline) = deadline else {
            return self;
        };
        Wait {
            timeout: Some(self.timeout.map_or(deadline, |time| time.min(deadline))),
            sources: if descriptors {
                self.sources
            } else {
                Sources::Doorbell
            },
            ..self
        }
    }
}

/// What a worker's waits came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleCounters {
    /// Timed sleeps.
    pub sleeps: u64,
    /// Timed sleeps that a ring ended before their time.
    pub sleeps_ended_early: u64,
    /// Waits for everything.
    pub parks: u64,
    /// What the sleeps were to last, in all.
    pub asked_ns: u64,
    /// What they lasted.
    pub slept_ns: u64,
    /// How often `auto` went from one mode to the other.
    pub changes: u64,
}

/// A wait that was handed out.
#[derive(Clone, Copy, Debug)]
struct Handed {
    since_ns: u64,
    /// Of a sleep; `None` for a wait for everything.
    asked_ns: Option<u64>,
}

/// A wait that is over, and of which is not known yet whether something was there.
#[derive(Clone, Copy, Debug)]
struct Over {
    asked_ns: Option<u64>,
    took_ns: u64,
    woken: Woken,
}

/// Decides how one worker waits.
#[derive(Debug)]
pub struct IdleStrategy {
    mode: WaitMode,
    choice: Choice,
    /// Empty looks since something was found, while spinning.
    looks: u32,
    /// When the spinning ends.
    spin_until_ns: u64,
    /// Empty sleeps in a row.
    empty_sleeps: u32,
    handed: Option<Handed>,
    over: Option<Over>,
    counters: IdleCounters,
}

impl IdleStrategy {
    /// A strategy for one worker on a host with these costs.
    pub fn new(mode: WaitMode, costs: Costs) -> IdleStrategy {
        let delay = match mode {
            WaitMode::Auto { delay } => delay,
            _ => DELAY_DEFAULT,
        };
        IdleStrategy {
            mode,
            choice: Choice::new(nanoseconds(delay), costs),
            looks: 0,
            spin_until_ns: 0,
            empty_sleeps: 0,
            handed: None,
            over: None,
            counters: IdleCounters::default(),
        }
    }

    /// The worker found something to do: after a wait, in the look between announcement and wait,
    /// or in any other.
    #[inline]
    pub fn worked(&mut self) {
        self.looks = 0;
        self.empty_sleeps = 0;
        self.handed = None;
        if self.over.is_some() {
            self.settle(true);
        }
    }

    /// The worker found nothing to do. `now_ns` reads a monotonic clock, and is called only where
    /// the time matters.
    pub fn idle(&mut self, now_ns: impl FnOnce() -> u64) -> Idle {
        if self.over.is_some() {
            self.settle(false);
        }
        let sleep = match self.mode {
            WaitMode::Poll => return Idle::Spin,
            WaitMode::Interrupt => None,
            WaitMode::Sleep(time) => {
                let asked = EMPTY_ASKED_MAX.as_nanos() / time.as_nanos().max(1);
                let most = asked.clamp(EMPTY_SLEEPS_MAX.into(), EMPTY_SLEEPS_ASKED_MAX.into());
                (u128::from(self.empty_sleeps) < most).then_some(time)
            }
            WaitMode::BackOff if self.looks < BACK_OFF_LOOKS => {
                self.looks += 1;
                return Idle::Spin;
            }
            WaitMode::BackOff => {
                let time = BACK_OFF_FIRST * (1 << self.empty_sleeps.min(BACK_OFF_DOUBLINGS));
                let most = BACK_OFF_DOUBLINGS + EMPTY_SLEEPS_ASKED_MAX;
                (self.empty_sleeps < most).then_some(time)
            }
            WaitMode::SpinThenPark { spin } => return self.spin(nanoseconds(spin), now_ns),
            WaitMode::Auto { .. } if self.empty_sleeps >= EMPTY_SLEEPS_MAX => None,
            WaitMode::Auto { .. } => self.choice.sleep_ns().map(Duration::from_nanos),
        };
        self.hand_out(sleep, now_ns())
    }

    /// A wait is over that [`IdleStrategy::idle`] asked for. Looking for something to do comes next.
    pub fn woke(&mut self, now_ns: u64, woken: Woken) {
        let Some(Handed { since_ns, asked_ns }) = self.handed.take() else {
            return;
        };
        let took_ns = now_ns.saturating_sub(since_ns);
        if let Some(asked_ns) = asked_ns {
            self.counters.sleeps += 1;
            self.counters.sleeps_ended_early += u64::from(woken == Woken::Rung);
            self.counters.asked_ns = self.counters.asked_ns.saturating_add(asked_ns);
            self.counters.slept_ns = self.counters.slept_ns.saturating_add(took_ns);
        } else {
            self.counters.parks += 1;
        }
        self.over = Some(Over {
            asked_ns,
            took_ns,
            woken,
        });
    }

    /// Waits like this from now on. `found_ns` is the CPU time that finding something costs beside
    /// the waiting, however little it is: what interrupts pay per arrival and sleeping per sleep.
    pub fn change(&mut self, mode: WaitMode, found_ns: u64) {
        let delay = |mode: WaitMode| match mode {
            WaitMode::Auto { delay } => Some(delay),
            _ => None,
        };
        match (delay(self.mode), delay(mode)) {
            // What is known of the arrivals stays known.
            (Some(_), Some(delay)) => self.choice.set_delay(nanoseconds(delay)),
            (None, Some(delay)) => {
                self.choice = Choice::new(nanoseconds(delay), self.choice.costs());
            }
            _ => {}
        }
        self.choice.set_found(found_ns);
        if mode != self.mode {
            self.mode = mode;
            self.looks = 0;
        }
    }

    /// The mode in use: what was asked for, or what `auto` has chosen.
    pub fn mode(&self) -> WaitMode {
        match (self.mode, self.choice.sleep_ns()) {
            (WaitMode::Auto { .. }, Some(time_ns)) => {
                WaitMode::Sleep(Duration::from_nanos(time_ns))
            }
            (WaitMode::Auto { .. }, None) => WaitMode::Interrupt,
            (mode, _) => mode,
        }
    }

    /// What the waits so far came to.
    pub fn counters(&self) -> IdleCounters {
        IdleCounters {
            changes: self.choice.changes(),
            ..self.counters
        }
    }

    fn spin(&mut self, spin_ns: u64, now_ns: impl FnOnce() -> u64) -> Idle {
        let looks = self.looks;
        self.looks = looks.wrapping_add(1).max(1);
        if !looks.is_multiple_of(LOOKS_PER_READING) {
            return Idle::Spin;
        }
        let now_ns = now_ns();
        if looks == 0 {
            self.spin_until_ns = now_ns.saturating_add(spin_ns);
        }
        if now_ns < self.spin_until_ns {
            return Idle::Spin;
        }
        // Until something is found every further look would read the clock and come here again.
        self.looks = looks;
        self.hand_out(None, now_ns)
    }

    fn hand_out(&mut self, sleep: Option<Duration>, now_ns: u64) -> Idle {
        self.handed = Some(Handed {
            since_ns: now_ns,
            asked_ns: sleep.map(nanoseconds),
        });
        Idle::Wait(sleep.map_or(Wait::FOR_EVERYTHING, Wait::sleep))
    }

    /// Takes in what the last wait has shown, now that it is known whether something was there.
    fn settle(&mut self, found: bool) {
        let Some(over) = self.over.take() else {
            return;
        };
        if over.asked_ns.is_some() && !found {
            self.empty_sleeps = self.empty_sleeps.saturating_add(1);
        }
        if !matches!(self.mode, WaitMode::Auto { .. }) {
            return;
        }
        match (over.asked_ns, over.woken) {
            (None, Woken::Rung | Woken::Descriptor) => self.choice.rung(over.took_ns),
            (None, Woken::TimedOut) => self.choice.due(over.took_ns),
            (Some(asked_ns), Woken::TimedOut) if over.took_ns >= asked_ns => {
                self.choice.slept(found);
            }
            // Ended by a deadline of the worker's own, which costs either mode the same.
            (Some(_), Woken::TimedOut) => {}
            (Some(_), Woken::Rung | Woken::Descriptor) => {
                self.choice.rung_early(over.took_ns, found);
            }
            (_, Woken::Interrupted) => {}
        }
    }
}

/// Five hundred years are as good as any longer time.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
