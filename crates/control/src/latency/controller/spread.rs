//! How latencies spread, and what they would be with another delay.
//!
//! A row's latency is the delay, the work on what arrived during one, and an excess. Two kinds of excess
//! depend on the delay differently:
//!
//! - **Own**: what the query and its peers do. It adds to every delay, and all rows of a batch count from
//!   the earliest time at which one may have arrived, as the engine measures them.
//! - **Stalls** of the host, of length D. One that is longer than the delay T holds up what arrived since
//!   the sleep before it began, which is T/2 earlier on average: the last of it leaves after D + T/2. One
//!   that is shorter only delays a wake-up, by D/2 on average: T + D/2. Rows arrive all the time and leave
//!   together, so their latencies lie between zero and that. The rows that a stall holds up are those of
//!   D + T/2, or of D + D²/2T: hardly more with long delays than with short ones.
//!
//! The past is kept in [`EPOCHS`] epochs, of which the oldest is dropped when the newest is over: a rare
//! stall weighs what it should for half a minute, and then nothing.

use std::collections::{BTreeMap, VecDeque};

use super::{Observation, WORSE_MAX};

/// The number of epochs that are kept.
const EPOCHS: usize = 6;

/// An epoch lasts as long as this many delays, in each of which one chunk or a few leave, within limits in
/// seconds of activity.
const EPOCH_DELAYS: f64 = 25.0;
const EPOCH_MIN_S: f64 = 5.0;
const EPOCH_MAX_S: f64 = 20.0;

/// Stalls count as a share of at least this time, in seconds: a single one in the first seconds says little
/// about how often they come.
const STALLS_MIN_S: f64 = EPOCHS as f64 * EPOCH_MIN_S;

/// The share of rows that may be later than the 99th percentile.
const LATER: f64 = 0.01;

/// An excess of less than this share of the target is an own one: sleeps vary by so much, and there is room
/// for it.
const STALL_MIN: f64 = 0.25;

/// The share of a stall that the host must have caused.
const HOSTS_MIN: f64 = 0.75;

/// Slots are log-linear, 32 to a doubling, from a microsecond.
const PER_DOUBLING: u64 = 32;
const SLOTS: usize = 28 * PER_DOUBLING as usize;

fn slot(ns: f64) -> usize {
    let us = ns.max(0.0) as u64 / 1_000;
    if us < PER_DOUBLING {
        return us as usize;
    }
    let doubling = u64::from(us.ilog2() - PER_DOUBLING.ilog2());
    let within = (us >> doubling) - PER_DOUBLING;
    (((doubling + 1) * PER_DOUBLING + within) as usize).min(SLOTS - 1)
}

fn upper_ns(slot: usize) -> f64 {
    let (doubling, within) = (slot as u64 / PER_DOUBLING, slot as u64 % PER_DOUBLING);
    let us = match doubling {
        0 => within + 1,
        doubling => (PER_DOUBLING + within + 1) << (doubling - 1),
    };
    us as f64 * 1e3
}

/// The way of a row from its source to its sink.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// Sleeping workers in a row.
    sleeps: f64,
    /// The busy share of the busiest worker.
    busy: f64,
    /// The shortest excess that is a stall.
    stall_min_ns: f64,
}

impl Way {
    /// The way of the rows of an observation.
    pub fn of(seen: &Observation<'_>, target_ns: u64) -> Way {
        Way {
            sleeps: seen.sleeps.max(1.0),
            busy: seen.utilisation.clamp(0.0, 1.0),
            stall_min_ns: target_ns as f64 * STALL_MIN,
        }
    }

    /// The way with the busy share of the busiest of recent intervals, if that is larger: a burst that
    /// comes again finds the delay that was chosen between bursts.
    #[must_use]
    pub fn at_its_busiest(self, spread: &Spread) -> Way {
        Way {
            busy: self.busy.max(spread.all.busy_max),
            ..self
        }
    }

    /// How many delays a row waits: the sleeps, and the work on what has arrived during one.
    pub fn delays(&self) -> f64 {
        self.sleeps + self.busy
    }

    /// The same without the sleep that a stall may fall into.
    fn other_delays(&self) -> f64 {
        self.delays() - 1.0
    }

    /// The excess of a row that left after `ns`, while its worker slept `slept_ns` at a time and the host
    /// took `lost_ns`.
    pub fn excess(&self, ns: f64, slept_ns: f64, lost_ns: f64) -> Excess {
        let excess_ns = (ns - slept_ns * self.delays()).max(0.0);
        let host_ns = excess_ns.min(lost_ns);
        let is_stall = host_ns >= excess_ns * HOSTS_MIN && excess_ns >= self.stall_min_ns;
        let stall_ns = if excess_ns * 2.0 <= slept_ns {
            excess_ns * 2.0
        } else {
            ns - slept_ns * self.other_delays() - slept_ns / 2.0
        };
        Excess {
            ns: excess_ns,
            host_ns,
            stall_ns: is_stall.then_some(stall_ns),
            slept_ns,
        }
    }
}

/// The part of a latency that the delay doesn't explain.
#[derive(Debug, Clone, Copy)]
pub struct Excess {
    ns: f64,
    /// The most of it that the host may have caused.
    pub host_ns: f64,
    /// The length of the stall that caused it, if one did.
    stall_ns: Option<f64>,
    slept_ns: f64,
}

impl Excess {
    /// Whether a stall of the host caused it.
    pub fn is_stall(&self) -> bool {
        self.stall_ns.is_some()
    }

    /// The part that the host can't have caused.
    pub fn without_host(self) -> Excess {
        Excess {
            ns: self.ns - self.host_ns,
            host_ns: 0.0,
            stall_ns: None,
            ..self
        }
    }
}

/// The time whose arrivals a stall holds up, with this delay.
fn held_up_ns(stall_ns: f64, delay_ns: f64) -> f64 {
    stall_ns + delay_ns.min(stall_ns * stall_ns / delay_ns.max(1.0)) / 2.0
}

/// Weights by slot, of those that have any: a path's latencies fill a few dozen of them.
#[derive(Debug, Clone, Default)]
struct Weights {
    slots: BTreeMap<usize, Weight>,
    /// The largest busy share of any interval.
    busy_max: f64,
}

/// The weight of rows with an excess of their own, and of seconds of stalls, of a slot's length.
#[derive(Debug, Clone, Copy, Default)]
struct Weight {
    own: f64,
    stalls: f64,
}

impl Weights {
    fn add(&mut self, excess: &Excess, weight: f64) {
        match excess.stall_ns {
            None => self.slots.entry(slot(excess.ns)).or_default().own += weight,
            Some(stall_ns) => {
                let share = stall_ns / held_up_ns(stall_ns, excess.slept_ns);
                self.slots.entry(slot(stall_ns)).or_default().stalls += weight * share;
            }
        }
    }

    fn add_all(&mut self, other: &Weights) {
        for (&slot, weight) in &other.slots {
            let sum = self.slots.entry(slot).or_default();
            sum.own += weight.own;
            sum.stalls += weight.stalls;
        }
        self.busy_max = self.busy_max.max(other.busy_max);
    }
}

/// The excess of recent rows.
#[derive(Debug, Clone)]
pub struct Spread {
    /// The sum of all epochs.
    all: Weights,
    /// The epochs that are over, the oldest first.
    over: VecDeque<Weights>,
    now: Weights,
    now_s: f64,
    is_empty: bool,
}

impl Default for Spread {
    fn default() -> Spread {
        Spread {
            all: Weights::default(),
            over: VecDeque::new(),
            now: Weights::default(),
            now_s: 0.0,
            is_empty: true,
        }
    }
}

impl Spread {
    /// Whether nothing was observed.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Lets time pass with a busy share, and drops the oldest epoch when the newest is over.
    pub fn age(&mut self, time_s: f64, delay_ns: f64, way: &Way) {
        let epoch_s = (EPOCH_DELAYS * delay_ns / 1e9).clamp(EPOCH_MIN_S, EPOCH_MAX_S);
        if self.now_s >= epoch_s {
            self.now_s = 0.0;
            self.over.push_back(std::mem::take(&mut self.now));
            if self.over.len() >= EPOCHS {
                self.over.pop_front();
            }
            self.all = Weights::default();
            for weights in &self.over {
                self.all.add_all(weights);
            }
        }
        // A longer time without rows says nothing about them.
        self.now_s += time_s.min(1.0);
        for weights in [&mut self.now, &mut self.all] {
            weights.busy_max = weights.busy_max.max(way.busy);
        }
    }

    /// Adds rows.
    pub fn add(&mut self, excess: &Excess, weight: f64) {
        self.all.add(excess, weight);
        self.now.add(excess, weight);
        self.is_empty = false;
    }

    /// The distribution as it is now.
    pub fn look(&self) -> Latencies {
        let filled = self.all.slots.iter().map(|(&slot, weight)| Filled {
            ns: upper_ns(slot),
            own: weight.own,
            stalls: weight.stalls,
        });
        Latencies(filled.collect())
    }
}

/// A slot with its weights: of rows with this excess, and of seconds of stalls of this length.
#[derive(Debug, Clone, Copy)]
struct Filled {
    ns: f64,
    own: f64,
    stalls: f64,
}

/// Latencies as a function of the delay.
#[derive(Debug, Clone)]
pub struct Latencies(Vec<Filled>);

impl Latencies {
    /// Whether 99 of 100 rows keep a limit with this delay.
    pub fn keeps(&self, limit_ns: f64, delay_ns: f64, way: &Way) -> bool {
        self.later(limit_ns, delay_ns, way) <= LATER
    }

    /// The share of rows that are later than a limit with this delay.
    fn later(&self, limit_ns: f64, delay_ns: f64, way: &Way) -> f64 {
        let (mut rows, mut later, mut stalled) = (0.0, 0.0, 0.0);
        let delays_ns = delay_ns * way.delays();
        for slot in &self.0 {
            rows += slot.own;
            if delays_ns + slot.ns > limit_ns {
                later += slot.own;
            }
            if slot.stalls > 0.0 {
                let (long_ns, short_ns) = (slot.ns.max(delay_ns), slot.ns.min(delay_ns));
                let last_ns = delay_ns * way.other_delays() + long_ns + short_ns / 2.0;
                let held_up = slot.stalls * held_up_ns(slot.ns, delay_ns) / slot.ns;
                rows += held_up;
                stalled += held_up * (1.0 - limit_ns / last_ns).max(0.0);
            }
        }
        later / rows.max(f64::MIN_POSITIVE) + stalled / rows.max(STALLS_MIN_S)
    }

    /// The 99th percentile of the latency with this delay, to a hundredth of [`WORSE_MAX`].
    pub fn p99_ns(&self, delay_ns: f64, way: &Way) -> f64 {
        let (mut breaks_ns, mut keeps_ns) = (0.0, 1e6);
        while !self.keeps(keeps_ns, delay_ns, way) {
            breaks_ns = keeps_ns;
            keeps_ns *= 2.0;
        }
        while keeps_ns - breaks_ns > keeps_ns * WORSE_MAX / 100.0 && keeps_ns > 1e3 {
            let middle_ns = (breaks_ns + keeps_ns) / 2.0;
            match self.keeps(middle_ns, delay_ns, way) {
                true => keeps_ns = middle_ns,
                false => breaks_ns = middle_ns,
            }
        }
        keeps_ns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: Way = Way {
        sleeps: 1.0,
        busy: 0.0,
        stall_min_ns: 1e6,
    };

    #[test]
    fn a_slot_holds_what_belongs_to_it() {
        for us in (0..100_000).chain((17..31).map(|bit| 1 << bit)) {
            let slot = slot(us as f64 * 1e3);
            let upper_us = upper_ns(slot) / 1e3;
            assert!(
                upper_us > us as f64 && upper_us <= us as f64 * 1.04 + 1.0,
                "{us}"
            );
        }
    }

    #[test]
    fn an_own_excess_adds_to_every_delay() {
        let mut spread = Spread::default();
        assert!(spread.look().keeps(1.0, 0.0, &ONE), "nothing is known");
        spread.add(&ONE.excess(16e6, 10e6, 0.0), 1.0);
        for delay_ns in [0.0, 5e6, 20e6] {
            let p99_ns = spread.look().p99_ns(delay_ns, &ONE);
            assert!((p99_ns / (delay_ns + 6e6) - 1.0).abs() < 0.04, "{p99_ns}");
        }
    }

    #[test]
    fn a_shorter_sleep_hardly_shortens_a_stall() {
        let mut spread = Spread::default();
        // One row in twenty waits for the end of a stall of 40 ms.
        spread.add(&ONE.excess(10.1e6, 10e6, 0.0), 95.0);
        spread.add(&ONE.excess(45e6, 10e6, 35e6), 5.0);
        let (short_ns, long_ns) = (
            spread.look().p99_ns(0.0, &ONE),
            spread.look().p99_ns(10e6, &ONE),
        );
        assert!(
            short_ns > 30e6 && long_ns < short_ns + 6e6,
            "{short_ns} {long_ns}"
        );
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut spread = Spread::default();
        spread.add(&ONE.excess(30e6, 10e6, 0.0), 1.0);
        for _ in 0..100 {
            spread.age(0.5, 10e6, &ONE);
            spread.add(&ONE.excess(11e6, 10e6, 0.0), 0.5);
        }
        assert!(spread.look().p99_ns(0.0, &ONE) < 2e6);
    }

    proptest! {
        #[test]
        fn p99_grows_with_the_delay(
            latencies in prop::collection::vec((0.0f64..1e8, 0.1f64..10.0), 1..20),
            slept_ns in 0.0f64..5e7, one_ns in 0.0f64..5e7, other_ns in 0.0f64..5e7,
        ) {
            let mut spread = Spread::default();
            for (ns, weight) in latencies {
                spread.add(&ONE.excess(ns, slept_ns, 0.0), weight);
            }
            let (less_ns, more_ns) = (one_ns.min(other_ns), one_ns.max(other_ns));
            let (less, more) = (spread.look().p99_ns(less_ns, &ONE), spread.look().p99_ns(more_ns, &ONE));
            prop_assert!(less <= more * (1.0 + WORSE_MAX / 50.0) + 1e3, "{} {}", less, more);
        }

        /// A longer delay lets stalls hold up more rows, up to half of them more. They count as rows, too, so
        /// that rows with an excess of their own are a smaller share; and of those that a short stall holds
        /// up, fewer are late.
        #[test]
        fn stalls_make_a_shorter_delay_hardly_worse(
            latencies in prop::collection::vec((0.0f64..1e8, 0.0f64..1e8, 0.1f64..10.0), 1..20),
            slept_ns in 0.0f64..5e7, one_ns in 0.0f64..5e7, other_ns in 0.0f64..5e7,
            limit_ns in 0.0f64..2e8,
        ) {
            const HELD_UP_MAX: f64 = 1.5;
            let mut spread = Spread::default();
            for (ns, lost_ns, weight) in latencies {
                spread.add(&ONE.excess(ns, slept_ns, lost_ns), weight);
            }
            let (less_ns, more_ns) = (one_ns.min(other_ns), one_ns.max(other_ns));
            let latencies = spread.look();
            let later = |delay_ns| latencies.later(limit_ns, delay_ns, &ONE);
            let (less, more) = (later(less_ns), later(more_ns));
            prop_assert!(less <= more * HELD_UP_MAX * HELD_UP_MAX + 1e-9, "{} {}", less, more);
        }
    }
}
