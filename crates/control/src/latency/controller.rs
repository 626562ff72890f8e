//! Corrects how long a source's worker may sleep, from the measured latency.
//!
//! A pure state machine: no clock, no I/O. The caller, who has both, calls [`Controller::correct`] about
//! twice a second while there is work, and at once when rows are late.
//!
//! The law: with a permitted delay T, s sleeping workers in a row (mostly one) and a busy share u, a row
//! leaves `T · (s + u) + e` after the earliest time at which it may have arrived: the sleeps, the work on
//! what has arrived during one, and an *excess* e: oversleep, wake-ups, work that doesn't depend on T, and
//! stalls of the host. u is known at once from rates and costs; e is the rest of each measured latency.
//! What the host took from the workers meanwhile ([`Lost`]) says which of it were stalls, to which another
//! T adds less. Both are kept as a distribution (`spread`), and that gives p99 as a function of T:
//!
//! ```text
//! T = the longest delay with p99(T) <= max(target · (1 − margin), 1.1 · p99(0))
//! and T <= α · free capacity / rate
//! ```
//!
//! - **What shorter sleeps can't change doesn't shorten them**: a delay is shortened only if that meets
//!   the target, or lowers p99 by more than [`WORSE_MAX`].
//! - **Down at once, up slowly**: a shorter delay is set at once, a longer one by at most a quarter per
//!   correction, and only if it is more than 5 % longer. So a delay that fits is left alone.
//! - **The fast path**: when more than [`LATE_SHARE`] of the rows since the last correction were late, and
//!   not by the host, the past counts for less: e is then at least the 99th percentile of those rows alone.
//! - **A target that changes** while the query runs needs no steps: the next delay is set at once, up or
//!   down, for what was learned of latencies does not depend on the target.
//! - **Clocks of several hosts** are known to within an error: a row counts as late that may have been, and
//!   the budget is less by the error. What is learned of latencies does not depend on it.
//! - **A cold start** is no measurement: latencies of the first interval count as late, but nothing is
//!   learned from them.
//! - **Floors**: below [`DELAY_MIN_NS`] a sleep costs more than the interrupts that it saves, and the delay
//!   is zero (interrupts) until a delay half as long again would do. Chunks have at least
//!   [`CHUNK_ROWS_MIN`] rows.

mod spread;

use super::lateness::{Late, Lost};
use super::model::HostCosts;
use super::planner::{CHUNK_ROWS_MIN, MARGIN, chunk_rows};

use spread::{Spread, Way};

/// The shortest delay other than none.
pub const DELAY_MIN_NS: u64 = 100_000;

/// The share of the source's buffer that may fill during a sleep: beyond it the writer would be held up,
/// and rows would be late without being seen here.
const FILL_MAX: f64 = 0.5;

/// Where no delay meets the target, the share by which p99 may be above the lowest that any delay reaches.
pub const WORSE_MAX: f64 = 0.1;

/// How many times [`DELAY_MIN_NS`] a delay must be before the worker sleeps again.
const SLEEP_AGAIN: f64 = 1.5;

/// A larger share of late rows than this makes the controller forget the past.
const LATE_SHARE: f64 = 0.05;

/// A longer delay is set by at most this factor, and only if it is longer by this factor.
const UP_MAX: f64 = 1.25;
const UP_MIN: f64 = 1.05;

/// How many times more slowly the past is forgotten while workers wait to be woken.
const UNSEEN: f64 = 8.0;

/// How often an interval of delays is halved to find the longest: to a thousandth of the target.
const STEPS: u32 = 10;

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
    /// By how much a latency may be wrong, in nanoseconds: between two hosts, by the error of their clocks.
    pub error_ns: u64,
    /// The highest fill of the source's buffer, 0 to 1; 0 if it isn't known.
    pub fill: f64,
    /// What the host took from the path's workers.
    pub lost: Lost,
}

/// The controller of one path.
#[derive(Debug, Clone)]
pub struct Controller {
    goal: Goal,
    setting: Setting,
    /// By how much a latency may be wrong, in nanoseconds.
    error_ns: u64,
    /// The other delay, besides the setting's, that the latencies of the next observation may belong to.
    before_ns: u64,
    spread: Spread,
    /// Whether the next delay may be longer at once, for a target that was changed.
    may_leap: bool,
    /// Whether nothing was learned yet: the first rows meet cold code and memory that was never touched.
    is_cold: bool,
    late: Late,
    changes: u64,
    violated: u64,
}

impl Controller {
    /// A controller that starts with the planner's choice.
    pub fn new(goal: Goal, setting: Setting) -> Controller {
        Controller {
            goal,
            setting,
            error_ns: 0,
            before_ns: setting.delay_ns,
            spread: Spread::default(),
            may_leap: false,
            is_cold: true,
            late: Late::default(),
            changes: 0,
            violated: 0,
        }
    }

    /// The current setting of the path.
    pub fn setting(&self) -> Setting {
        self.setting
    }

    /// Changes the target. A delay that is too long for it is shortened at once; a longer one is set by the
    /// next correction, which knows how latencies spread.
    pub fn retarget(&mut self, target_ns: u64) {
        self.goal.target_ns = target_ns;
        self.may_leap = true;
        let most_ns = self.budget_ns() as u64;
        if self.setting.delay_ns > most_ns {
            self.before_ns = self.setting.delay_ns;
            self.setting.delay_ns = if most_ns < DELAY_MIN_NS { 0 } else { most_ns };
            self.changes += 1;
        }
    }

    /// How often the setting was changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The number of corrections at which more than one row in a hundred had been late.
    pub fn violated(&self) -> u64 {
        self.violated
    }

    /// The rows that were late, and by what.
    pub fn late(&self) -> Late {
        self.late
    }

    /// Takes an observation, and returns the new setting.
    pub fn correct(&mut self, seen: &Observation<'_>) -> Setting {
        self.error_ns = seen.error_ns;
        let way = Way::of(seen, self.goal.target_ns);
        let own = self.learn(seen, &way);
        let way = way.at_its_busiest(&self.spread);
        let mut delay_ns = self.delay_for(&way);
        if let Some(excess_ns) = own {
            delay_ns = delay_ns.min(self.delay_beside(excess_ns, &way));
        }
        if seen.fill > FILL_MAX {
            delay_ns = delay_ns.min(self.setting.delay_ns as f64 * FILL_MAX / seen.fill);
        }
        let wanted_ns = delay_ns;
        let now_ns = self.setting.delay_ns as f64;
        let may_leap = std::mem::take(&mut self.may_leap);
        if delay_ns > now_ns && !may_leap {
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

    /// The longest measured latency that is certainly within the target.
    fn certain_ns(&self) -> u64 {
        self.goal.target_ns.saturating_sub(self.error_ns)
    }

    /// What rows are to keep, without the margin.
    fn budget_ns(&self) -> f64 {
        self.certain_ns() as f64 * (1.0 - MARGIN)
    }

    /// The longest delay that the measured latencies allow.
    fn delay_for(&self, way: &Way) -> f64 {
        // The calibrated oversleep counts before anything was observed.
        let costs = &self.goal.costs;
        let known_ns = match self.spread.is_empty() {
            true => costs.oversleep_p99_ns,
            false => costs.oversleep_p50_ns.min(costs.oversleep_p99_ns),
        };
        let most_ns = ((self.budget_ns() - known_ns) / way.delays()).max(0.0);
        let spread = self.spread.look();
        let mut limit_ns = self.budget_ns();
        if spread.keeps(limit_ns, most_ns, way) {
            return most_ns;
        }
        // If the budget leaves room for tiny delays only, this is still within the target.
        limit_ns = limit_ns.max(spread.p99_ns(0.0, way) * (1.0 + WORSE_MAX));
        let (mut keeps_ns, mut breaks_ns) = (0.0, most_ns);
        for _ in 0..STEPS {
            let middle_ns = (keeps_ns + breaks_ns) / 2.0;
            match spread.keeps(limit_ns, middle_ns, way) {
                true => keeps_ns = middle_ns,
                false => breaks_ns = middle_ns,
            }
        }
        keeps_ns
    }

    /// The longest delay that leaves room for an excess, or hardly adds to it where there is no room.
    fn delay_beside(&self, excess_ns: f64, way: &Way) -> f64 {
        let room_ns = self.budget_ns() - excess_ns;
        let most_ns = self.budget_ns().min(excess_ns * WORSE_MAX);
        room_ns.max(most_ns) / way.delays()
    }

    /// Learns from the latencies. Returns the excess of these rows alone if many of them were late, and not
    /// by the host.
    fn learn(&mut self, seen: &Observation<'_>, way: &Way) -> Option<f64> {
        // Rows that were on their way while the delay changed may belong to either delay.
        let slept_ns = self.before_ns.max(self.setting.delay_ns) as f64;
        let slept_ns = if seen.slept { slept_ns } else { 0.0 };
        // A worker that waited for arrivals doesn't see what the host does to sleeps: it takes as long to
        // forget that as [`UNSEEN`] sleeping ones.
        let pace = if seen.slept { 1.0 } else { 1.0 / UNSEEN };
        let time_s = seen.interval_ns as f64 / 1e9 * pace;
        self.spread.age(time_s, slept_ns, way);
        let rows = seen.latencies.iter().map(|(_, rows)| rows).sum::<u64>();
        let (mut late, mut by_host) = (0, 0);
        let mut fresh = Spread::default();
        // Seconds have equal weight, however many rows they had: a burst is no reason to forget.
        let weight = time_s / rows.max(1) as f64;
        let lost_ns = seen.lost.at_once_ns() as f64;
        let is_cold = rows > 0 && std::mem::replace(&mut self.is_cold, false);
        for &(ns, rows) in seen.latencies {
            let excess = way.excess(ns as f64, slept_ns, lost_ns);
            if !is_cold {
                self.spread.add(&excess, weight * rows as f64);
            }
            fresh.add(&excess.without_host(), rows as f64);
            if ns > self.certain_ns() {
                late += rows;
                let in_time = ns as f64 - excess.host_ns <= self.certain_ns() as f64;
                let is_hosts = in_time && excess.is_stall();
                by_host += if is_hosts { rows } else { 0 };
            }
        }
        self.late.add(late, by_host, &seen.lost, seen.interval_ns);
        if !seen.slept {
            self.late.add_unseen(&seen.lost, seen.interval_ns);
        }
        self.violated += u64::from(late * 100 > rows);
        let own = late - by_host;
        (!is_cold && own as f64 > LATE_SHARE * rows as f64).then(|| fresh.look().p99_ns(0.0, way))
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
mod changed;
#[cfg(test)]
mod disturbed;
#[cfg(test)]
mod simulation;
