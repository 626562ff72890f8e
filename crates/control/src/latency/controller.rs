//! Corrects how long a source's worker may sleep, from the measured latency.
//!
//! A pure state machine: no clock, no I/O. The caller, who has both, calls [`Controller::correct`] about
//! twice a second while there is work, and at once when rows are late.
//!
//! The law: with a permitted delay T, s sleeping workers in a row (mostly one) and a busy share u, a row
//! leaves `T · (s + u) + e` after the earliest time at which it may have arrived: the sleeps, the work on
//! what has arrived during one, and an *excess* e (oversleep, wake-ups, work that doesn't depend on T,
//! and anything else that the host does). u is known at once from rates and costs; e is the rest of each
//! measured latency, kept as a distribution over the last seconds. Hence
//!
//! ```text
//! T = (target · (1 − margin) − Q99(e)) / (s + u)      and  T ≤ α · free capacity / rate
//! ```
//!
//! - **Down at once, up slowly**: a shorter delay is set at once, a longer one by at most a quarter per
//!   correction, and only if it is more than 5 % longer. So a delay that fits is left alone.
//! - **The fast path**: when more than [`LATE_SHARE`] of the rows since the last correction were late,
//!   the past counts for less: e is then at least the 99th percentile of those rows alone.
//! - **Floors**: the delay is never less than a tenth of the target, which is what the margin reserves:
//!   if the excess alone is more than the target allows, no delay meets it, and a worker that falls
//!   behind does not catch up by working in smaller pieces. Below [`DELAY_MIN_NS`] a sleep costs more
//!   than the interrupts that it saves, and the delay is zero (interrupts) until a delay half as long
//!   again would do. Chunks have at least [`CHUNK_ROWS_MIN`] rows.

use super::model::HostCosts;
use super::planner::{CHUNK_ROWS_MIN, MARGIN, chunk_rows};

/// How long the excess is remembered: this many delays, in each of which one chunk or a few leave, within
/// limits in seconds of activity. After that time a latency counts a third.
const MEMORY_DELAYS: f64 = 150.0;
const MEMORY_MIN_S: f64 = 3.0;
const MEMORY_MAX_S: f64 = 20.0;

/// The shortest delay other than none.
pub const DELAY_MIN_NS: u64 = 100_000;

/// The share of the source's buffer that may fill during a sleep: beyond it the writer would be held up,
/// and rows would be late without being seen here.
const FILL_MAX: f64 = 0.5;

/// The shortest delay, as a share of the target.
const LEAST_SHARE: f64 = 0.1;

/// How many times [`DELAY_MIN_NS`] a delay must be before the worker sleeps again.
const SLEEP_AGAIN: f64 = 1.5;

/// A larger share of late rows than this makes the controller forget the past.
const LATE_SHARE: f64 = 0.05;

/// A longer delay is set by at most this factor, and only if it is longer by this factor.
const UP_MAX: f64 = 1.25;
const UP_MIN: f64 = 1.05;

/// What the controller must achieve.
#[derive(Debug, Clone, Copy)]
pub struct Goal {
    /// The latency that 99 of 100 rows are to keep, in nanoseconds.
    pub target_ns: u64,
    /// The costs of waiting on this host.
    pub costs: HostCosts,
}

/// The current setting of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// How long the source's worker may sleep, or collect rows; zero is interrupts.
    pub delay_ns: u64,
    /// The most rows per chunk.
    pub chunk_rows: usize,
}

/// What was observed since the last correction.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// The time since the last correction, in nanoseconds.
    pub interval_ns: u64,
    /// Latencies in nanoseconds, each with its number of rows.
    pub latencies: &'a [(u64, u64)],
    /// The number of rows that came in.
    pub rows: u64,
    /// The share of the busiest worker's time that work took, without waiting.
    pub utilisation: f64,
    /// The cost of a row on the whole path, in nanoseconds of CPU time.
    pub per_row_ns: f64,
    /// Whether the source's worker slept: under interrupts the delay says nothing about the latency.
    pub slept: bool,
    /// How many sleeping workers a row passes one after the other; 1 if it stays on the source's worker,
    /// or goes on to workers that are woken.
    pub sleeps: f64,
    /// The highest fill of the source's buffer, 0 to 1; 0 if it isn't known.
    pub fill: f64,
}

/// How many delays a row waits: the sleeps, and the work on what has arrived during one.
fn delays(seen: &Observation<'_>) -> f64 {
    seen.sleeps.max(1.0) + seen.utilisation.clamp(0.0, 1.0)
}

/// A distribution that forgets: log-linear slots, 32 to a doubling, from a microsecond.
#[derive(Debug, Clone)]
struct Recent {
    weights: Vec<f64>,
    total: f64,
}

const PER_DOUBLING: u64 = 32;
const SLOTS: usize = 28 * PER_DOUBLING as usize;

fn slot(ns: u64) -> usize {
    let us = ns / 1_000;
    if us < PER_DOUBLING {
        return us as usize;
    }
    let doubling = u64::from(us.ilog2() - PER_DOUBLING.ilog2());
    let within = (us >> doubling) - PER_DOUBLING;
    (((doubling + 1) * PER_DOUBLING + within) as usize).min(SLOTS - 1)
}

fn upper_ns(slot: usize) -> u64 {
    let (doubling, within) = (slot as u64 / PER_DOUBLING, slot as u64 % PER_DOUBLING);
    match doubling {
        0 => (within + 1) * 1_000,
        doubling => ((PER_DOUBLING + within + 1) << (doubling - 1)) * 1_000,
    }
}

impl Recent {
    fn new() -> Recent {
        Recent {
            weights: vec![0.0; SLOTS],
            total: 0.0,
        }
    }

    fn forget(&mut self, kept: f64) {
        self.weights.iter_mut().for_each(|weight| *weight *= kept);
        self.total *= kept;
    }

    fn add(&mut self, ns: u64, weight: f64) {
        self.weights[slot(ns)] += weight;
        self.total += weight;
    }

    /// The value below which this share lies; `None` if it is empty.
    fn quantile(&self, share: f64) -> Option<u64> {
        if self.total <= 0.0 {
            return None;
        }
        let mut left = self.total * share;
        for (slot, weight) in self.weights.iter().enumerate() {
            left -= weight;
            if left <= 0.0 && *weight > 0.0 {
                return Some(upper_ns(slot));
            }
        }
        self.weights
            .iter()
            .rposition(|&weight| weight > 0.0)
            .map(upper_ns)
    }
}

/// The controller of one path.
#[derive(Debug, Clone)]
pub struct Controller {
    goal: Goal,
    setting: Setting,
    /// The other delay, besides the setting's, that the latencies of the next observation may belong to.
    before_ns: u64,
    excess: Recent,
    corrections: u64,
    changes: u64,
    violated: u64,
}

impl Controller {
    /// A controller that starts with the planner's choice.
    pub fn new(goal: Goal, setting: Setting) -> Controller {
        Controller {
            goal,
            setting,
            before_ns: setting.delay_ns,
            excess: Recent::new(),
            corrections: 0,
            changes: 0,
            violated: 0,
        }
    }

    /// The current setting of the path.
    pub fn setting(&self) -> Setting {
        self.setting
    }

    /// How often the setting was changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The number of corrections at which more than one row in a hundred had been late.
    pub fn violated(&self) -> u64 {
        self.violated
    }

    /// The longest delay that leaves room for the excess.
    fn delay_for(&self, excess_ns: f64, seen: &Observation<'_>) -> f64 {
        let target_ns = self.goal.target_ns as f64;
        let budget_ns = target_ns * (1.0 - MARGIN) - excess_ns;
        (budget_ns / delays(seen)).max(target_ns * LEAST_SHARE)
    }

    /// Takes an observation, and returns the new setting.
    pub fn correct(&mut self, seen: &Observation<'_>) -> Setting {
        self.corrections += 1;
        let rows = seen.latencies.iter().map(|(_, rows)| rows).sum::<u64>();
        let late = seen
            .latencies
            .iter()
            .filter(|(ns, _)| *ns > self.goal.target_ns);
        let late = late.map(|(_, rows)| rows).sum::<u64>();
        self.violated += u64::from(late * 100 > rows);
        let excess_ns = self.learn(seen, rows, late);
        let mut delay_ns = self.delay_for(excess_ns, seen);
        if seen.fill > FILL_MAX {
            delay_ns = delay_ns.min(self.setting.delay_ns as f64 * FILL_MAX / seen.fill);
        }
        let wanted_ns = delay_ns;
        let now_ns = self.setting.delay_ns as f64;
        if delay_ns > now_ns {
            // From nothing the first step is the shortest delay.
            let most_ns = (now_ns * UP_MAX).max(DELAY_MIN_NS as f64);
            let near_full = seen.fill > FILL_MAX / UP_MAX;
            delay_ns = if delay_ns < now_ns * UP_MIN || near_full {
                now_ns
            } else {
                delay_ns.min(most_ns)
            };
        }
        let least_ns = DELAY_MIN_NS as f64 * if now_ns == 0.0 { SLEEP_AGAIN } else { 1.0 };
        let delay_ns = if wanted_ns < least_ns {
            0
        } else {
            (delay_ns as u64).max(DELAY_MIN_NS)
        };
        self.before_ns = self.setting.delay_ns;
        let setting = Setting {
            delay_ns,
            chunk_rows: self.chunk_rows(seen.per_row_ns),
        };
        self.changes += u64::from(setting != self.setting);
        self.setting = setting;
        setting
    }

    /// The excess to reckon with, in nanoseconds.
    fn learn(&mut self, seen: &Observation<'_>, rows: u64, late: u64) -> f64 {
        let seconds = seen.interval_ns as f64 / 1e9;
        let memory_s = MEMORY_DELAYS * self.setting.delay_ns as f64 / 1e9;
        let memory_s = memory_s.clamp(MEMORY_MIN_S, MEMORY_MAX_S);
        self.excess.forget((-seconds / memory_s).exp());
        // Rows that were on their way while the delay changed may belong to either delay.
        let slept_ns = self.before_ns.max(self.setting.delay_ns) as f64;
        let slept_ns = if seen.slept { slept_ns } else { 0.0 };
        let explained_ns = slept_ns * delays(seen);
        let excess = |ns: u64| ns.saturating_sub(explained_ns as u64);
        // Seconds have equal weight, however many rows they had: a burst is no reason to forget.
        let weight = seconds / rows.max(1) as f64;
        for &(ns, rows) in seen.latencies {
            self.excess.add(excess(ns), weight * rows as f64);
        }
        // The calibrated value counts before anything was observed, and while nobody sleeps.
        let known_ns = self.goal.costs.oversleep_p99_ns;
        let learned_ns = self.excess.quantile(0.99).map_or(0.0, |ns| ns as f64);
        let mut excess_ns = learned_ns.max(known_ns);
        if rows > 0 && late as f64 > LATE_SHARE * rows as f64 {
            let mut fresh = Recent::new();
            for &(ns, rows) in seen.latencies {
                fresh.add(excess(ns), rows as f64);
            }
            excess_ns = excess_ns.max(fresh.quantile(0.99).map_or(0.0, |ns| ns as f64));
        }
        excess_ns
    }

    /// Rows per chunk, changed only if the target value differs by more than one power of two, or keeps
    /// differing.
    fn chunk_rows(&self, per_row_ns: f64) -> usize {
        let wish = chunk_rows(self.goal.target_ns as f64, per_row_ns).max(CHUNK_ROWS_MIN);
        let now = self.setting.chunk_rows.max(1);
        let near = wish.max(now) <= 2 * wish.min(now);
        if near { now } else { wish }
    }
}

#[cfg(test)]
mod simulation;
