//! Idling: what a worker does when it has found nothing to do.
//!
//! ```text
//! worked ─────────────► idle ──► Spin: look again at once
//!   ▲                     └────► Wait: announce → look again → sleep ──► woke ─┐
//!   └──────────────────── found something ◄── look ◄───────────────────────────┘
//! ```
//!
//! One strategy serves all links, descriptors and other threads of a worker, because it knows none of
//! them: it is told whether the worker found something, and how long it waited. It has neither a clock
//! nor I/O of its own, so that it can be simulated (`idle/simulation.rs`).
//!
//! Invariants:
//! - **Idle costs nothing** (except in mode `poll`): after a bounded number of empty waits in a row every
//!   mode waits for everything, without a time-out. Only finding something ends that.
//! - A timed sleep listens for urgent things only and ignores descriptors: this is what saves CPU time.
//! - No sleep is longer than the mode's time.
//! - The clock is read twice per wait, and never between the empty looks of a poll loop.
//! - Nothing here allocates, locks or fails.
//!
//! Sources: the modes are those of Akram and Bilas' "A Sleep-based Communication Mechanism to Save
//! Processor Utilization in Distributed Streaming Systems", the back-off is that of Agrona. The choice
//! between them is ours: `idle/choice.rs` and `docs/internals/waiting.md`.

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

/// The number of empty sleeps in a row after which the mode `sleep:T` waits without a time-out: a hundred
/// cost some 2 ms of CPU time once per silence. So the mode sleeps at every rate where that matters: at
/// 0.07 messages per sleep, a hundred sleeps in a row are empty once in a thousand times.
const EMPTY_SLEEPS_ASKED_MAX: u32 = 100;

/// The same limit as a time: a hundred sleeps of 10 s would be a quarter of an hour of wake-ups.
const EMPTY_ASKED_MAX: Duration = Duration::from_secs(2);

/// Sleeps that last this much longer than asked were held up: another program had the core, or the
/// hypervisor. Without that, one in a hundred lasts some 0.1 ms longer.
pub const OVERSLEEP_USUAL: Duration = Duration::from_micros(500);

/// The number of looks before the back-off's first sleep.
const BACK_OFF_LOOKS: u32 = 10;

/// The back-off's first sleep. Ten doublings make it 1.024 ms.
const BACK_OFF_FIRST: Duration = Duration::from_micros(1);
const BACK_OFF_DOUBLINGS: u32 = 10;

/// Looks between two readings of the clock while spinning: a reading takes about 47 ns, a look at
/// a few links 10 to 100.
const LOOKS_PER_READING: u32 = 8;

/// What to do after a look that found nothing.
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
    /// What ends the wait besides its time-out.
    pub sources: Sources,
}

impl Wait {
    /// Waits until anything comes.
    pub const FOR_EVERYTHING: Wait = Wait {
        listen: Listen::Everything,
        timeout: None,
        sources: Sources::All,
    };

    /// Waits until something urgent comes, or the time is over.
    fn sleep(time: Duration) -> Wait {
        Wait {
            listen: Listen::Urgent,
            timeout: Some(time),
            sources: Sources::Doorbell,
        }
    }

    /// The same wait, but at most until a deadline of the worker's own. Without `descriptors` (a source
    /// lingers and wants none of them), descriptors don't end a wait that has a deadline.
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

/// The counters of a worker's waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleCounters {
    /// Timed sleeps.
    pub sleeps: u64,
    /// Timed sleeps that were woken before their time.
    pub sleeps_ended_early: u64,
    /// Waits for everything.
    pub parks: u64,
    /// The total time that sleeps were meant to last.
    pub asked_ns: u64,
    /// The total time that sleeps lasted.
    pub slept_ns: u64,
    /// By how much sleeps exceeded their time that lasted more than [`OVERSLEEP_USUAL`] longer than meant.
    pub overslept_ns: u64,
    /// How often `auto` switched modes.
    pub changes: u64,
}

/// A wait that was handed out.
#[derive(Clone, Copy, Debug)]
struct Handed {
    since_ns: u64,
    /// The time of a sleep; `None` for a wait for everything.
    asked_ns: Option<u64>,
}

/// A wait that is over, and of which it is not known yet whether it found something.
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
    /// Empty looks since the last one that found something, while spinning.
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

    /// Notes that the worker found something to do: after a wait, in the look between announcement and
    /// wait, or in any other look.
    #[inline]
    pub fn worked(&mut self) {
        self.looks = 0;
        self.empty_sleeps = 0;
        self.handed = None;
        if self.over.is_some() {
            self.settle(true);
        }
    }

    /// What to do now that the worker found nothing. `now_ns` reads a monotonic clock, and is called only
    /// if the time matters.
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

    /// Notes that a wait that [`IdleStrategy::idle`] asked for is over. The worker looks for something to
    /// do next.
    pub fn woke(&mut self, now_ns: u64, woken: Woken) {
        let Some(Handed { since_ns, asked_ns }) = self.handed.take() else {
            return;
        };
        let took_ns = now_ns.saturating_sub(since_ns);
        if let Some(asked_ns) = asked_ns {
            self.counters.sleeps += 1;
            self.counters.sleeps_ended_early += u64::from(woken == Woken::Waker);
            self.counters.asked_ns = self.counters.asked_ns.saturating_add(asked_ns);
            self.counters.slept_ns = self.counters.slept_ns.saturating_add(took_ns);
            let over_ns = took_ns.saturating_sub(asked_ns);
            if over_ns > OVERSLEEP_USUAL.as_nanos() as u64 {
                let sum_ns = &mut self.counters.overslept_ns;
                *sum_ns = sum_ns.saturating_add(over_ns);
            }
        } else {
            self.counters.parks += 1;
        }
        self.over = Some(Over {
            asked_ns,
            took_ns,
            woken,
        });
    }

    /// Changes the mode. `found_ns` is the CPU time that finding something costs besides the waiting,
    /// however little is found: interrupts pay it per arrival, sleeping per sleep.
    pub fn change(&mut self, mode: WaitMode, found_ns: u64) {
        let delay = |mode: WaitMode| match mode {
            WaitMode::Auto { delay } => Some(delay),
            _ => None,
        };
        match (delay(self.mode), delay(mode)) {
            // What was learned about arrivals is kept.
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

    /// The mode in use: the requested one, or the one that `auto` has chosen.
    pub fn mode(&self) -> WaitMode {
        match (self.mode, self.choice.sleep_ns()) {
            (WaitMode::Auto { .. }, Some(time_ns)) => {
                WaitMode::Sleep(Duration::from_nanos(time_ns))
            }
            (WaitMode::Auto { .. }, None) => WaitMode::Interrupt,
            (mode, _) => mode,
        }
    }

    /// The counters of the waits so far.
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
        // Until something is found, every further look would read the clock and come here again.
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

    /// Evaluates the last wait, now that it is known whether it found something.
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
            (None, Woken::Waker | Woken::Descriptor) => self.choice.woken(over.took_ns),
            (None, Woken::TimedOut) => self.choice.due(over.took_ns),
            (Some(asked_ns), Woken::TimedOut) if over.took_ns >= asked_ns => {
                self.choice.slept(found);
            }
            // Ended by a deadline of the worker's own, which costs the same in either mode.
            (Some(_), Woken::TimedOut) => {}
            (Some(_), Woken::Waker | Woken::Descriptor) => {
                self.choice.woken_early(over.took_ns, found);
            }
            (_, Woken::Interrupted) => {}
        }
    }
}

/// Five hundred years are as good as any longer time.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
