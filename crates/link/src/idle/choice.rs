//! The choice between interrupts and sleeping, from what each would have cost.
//!
//! Two modes are enough. A sleep of T takes no more CPU time than it lasts, so spinning for as long is
//! never cheaper; the only question is whether the wake-ups that interrupts would cause cost more than
//! the sleeps.
//!
//! One number answers it: the **lead**, the CPU time that sleeping would have cost so far minus that of
//! interrupts, limited to between −[`LEAD_WAKES`] and +[`LEAD_WAKES`] wake-ups. When it reaches a limit
//! the other mode takes over. Every wait changes it, whichever mode is in use:
//!
//! | observation | sleeping costs | interrupts cost |
//! |---|---|---|
//! | a sleep that found nothing | one sleep | nothing |
//! | a sleep that found something | one sleep | as many wake-ups as arrivals that far apart: −ln(1−q)/q, with q the share of sleeps that find something among those after a sleep that did |
//! | a wait, ended by a waker | the sleeps that fit into it; if it is longer than [`EMPTY_SLEEPS_MAX`] of them, those and one wake-up | one wake-up |
//! | a wait, ended by the worker's own deadline | the sleeps that fit into it, at least one | one sleep |
//! | a sleep, ended by a waker | one wake-up | at least one wake-up |
//!
//! Processing what was found also has a cost, however little it is (a read, a chunk, a write):
//! `found_ns`, which interrupts pay for each arrival and sleeping for each sleep that finds something.
//! The table leaves it out.
//!
//! Only sleeps after one that found something count for q. If arrivals are random it makes no difference. If
//! they are regular and rarer than sleeps, each sleep that finds something finds one, and q is 0: the share
//! among all sleeps would make them look more frequent, and sleeping cheaper than it is, by up to a third.
//!
//! Neither mode is tried out: the cost of the other mode is computed from observations of the mode in
//! use. This is the work-function algorithm for two states (Borodin, Linial, Saks: "An optimal on-line
//! algorithm for metrical task systems", 1992), with the width of the band as the price of a change. So
//! the choice loses at most a constant factor against one that knows the future, reacts after a number of
//! *waits* and not of seconds, and switches back and forth only if both modes cost the same.

/// The cost of waiting on a host, in nanoseconds of CPU time and of delay.
///
/// Each of these grows with the time that a core has been idle, so the figures are those of about a
/// millisecond. The choice depends only on `wake_ns / sleep_ns`, which hardly grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// The CPU time of a wake-up, of the waking and the woken side together.
    pub wake_ns: u64,
    /// The CPU time of a timed sleep.
    pub sleep_ns: u64,
    /// How much longer than asked a sleep lasts: the median.
    pub oversleep_p50_ns: u64,
    /// How much longer than asked a sleep lasts: the 99th percentile. Used to turn a latency target into
    /// a permitted delay; the choice does not depend on it.
    pub oversleep_p99_ns: u64,
}

/// Measured on a virtual machine of two cores (Linux 6.18, AMD EPYC, timer slack 1 ns), waits of
/// 1 ms; `docs/internals/waiting.md` has the table.
impl Default for Costs {
    fn default() -> Costs {
        Costs {
            wake_ns: 35_000,
            sleep_ns: 20_000,
            oversleep_p50_ns: 37_000,
            oversleep_p99_ns: 66_000,
        }
    }
}

/// The number of empty sleeps in a row after which a worker waits without a time-out. The wake-up that
/// ends such a wait costs about two sleeps. Two empty sleeps would therefore do if nothing were known
/// about the arrivals; but if sleeping is the cheaper mode, at least 40 % of the sleeps find something,
/// and two in a row are empty in a third of all cases, four in an eighth.
pub(super) const EMPTY_SLEEPS_MAX: u32 = 4;

/// Costs are limited to between a nanosecond and a second: other values are measurement errors, and sums
/// must not overflow.
const COST_MAX_NS: u64 = 1_000_000_000;

/// Half the width of the band, in wake-ups. A burst switches from interrupts to sleeping after 2 × 4
/// wake-ups (some 0.3 ms of CPU time). Arrivals that are twice as rare or twice as frequent as at the
/// rate where both modes cost the same cause a wrong switch once in thousands of waits.
const LEAD_WAKES: i64 = 4;

/// The weight of one sleep in the share of sleeps that find something.
const FOUND_WEIGHT: f64 = 1.0 / 16.0;

/// The share is limited to this, because the number of arrivals that it stands for would otherwise be
/// unbounded: −ln(1 − 0.98) / 0.98 is 4.
const FOUND_MAX: f64 = 0.98;

/// Below this share nearly all sleeps that find something find one arrival, and the formula divides by it.
const FOUND_MIN: f64 = 0.001;

/// Sleeps are not shortened below this: a shorter one costs as much as a whole core.
const SLEEP_MIN_NS: u64 = 20_000;

/// Early wake-ups at most this many sleeps apart mean that a link fills up, and not that a barrier came
/// by: barriers are about a second apart, which is more sleeps than this up to 10 ms.
const RINGS_APART_MAX: u32 = 64;

/// The choice of a mode, and of how long to sleep. Pure: no clock, no I/O.
#[derive(Debug)]
pub(super) struct Choice {
    costs: Costs,
    /// The CPU time that finding something costs besides the waiting.
    found_ns: u64,
    /// The permitted delay: the longest sleep.
    delay_ns: u64,
    /// The length of the next sleep: shorter than the delay while links fill up within it.
    sleep_ns: u64,
    /// The number of sleeps since the last one that was ended early.
    since_ring: u32,
    sleeping: bool,
    /// The cost of sleeping minus that of interrupts.
    lead_ns: i64,
    /// The share of sleeps that find something, of those after one that did.
    found: f64,
    /// Whether the last sleep found something.
    found_last: bool,
    changes: u64,
}

impl Choice {
    pub(super) fn new(delay_ns: u64, costs: Costs) -> Choice {
        let cost = |nanoseconds: u64| nanoseconds.clamp(1, COST_MAX_NS);
        Choice {
            costs: Costs {
                wake_ns: cost(costs.wake_ns),
                sleep_ns: cost(costs.sleep_ns),
                oversleep_p50_ns: cost(costs.oversleep_p50_ns),
                ..costs
            },
            found_ns: 0,
            delay_ns,
            sleep_ns: delay_ns,
            since_ring: RINGS_APART_MAX,
            sleeping: false,
            lead_ns: 0,
            found: 0.5,
            found_last: false,
            changes: 0,
        }
    }

    /// How long to sleep, if sleeping is the cheaper mode.
    #[inline]
    pub(super) fn sleep_ns(&self) -> Option<u64> {
        self.sleeping.then_some(self.sleep_ns)
    }

    pub(super) fn costs(&self) -> Costs {
        self.costs
    }

    /// Sets another permitted delay. A sleep that was shortened because links fill up stays as short.
    pub(super) fn set_delay(&mut self, delay_ns: u64) {
        self.sleep_ns = if self.sleep_ns == self.delay_ns {
            delay_ns
        } else {
            self.sleep_ns.min(delay_ns)
        };
        self.delay_ns = delay_ns;
    }

    /// Sets what finding something costs besides the waiting: per arrival under interrupts, per sleep
    /// that finds something when sleeping.
    pub(super) fn set_found(&mut self, found_ns: u64) {
        self.found_ns = found_ns.min(COST_MAX_NS);
    }

    /// How often the mode has changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Notes that a waker or a descriptor ended a wait of `took_ns`.
    pub(super) fn woken(&mut self, took_ns: u64) {
        // After empty sleeps both modes wait like this; and a wait that ends at once was no sleep: the
        // bell had been struck already, or an edge was left from bytes that have been read.
        if self.sleeping || took_ns < self.costs.wake_ns / 8 {
            return;
        }
        let (sleeps, parked) = self.sleeps_within(took_ns);
        let wake = self.costs.wake_ns as i64;
        // Several arrivals within one sleep are found together: this is the share of one.
        let lasts_ns = self
            .sleep_ns
            .saturating_add(self.costs.oversleep_p50_ns)
            .max(1);
        let share = (took_ns as f64 / lasts_ns as f64).min(1.0);
        let found_ns = self.found_ns as i64;
        let shared_ns = (self.found_ns as f64 * share) as i64;
        let parked_ns = if parked { wake } else { 0 };
        self.move_lead(sleeps + parked_ns + shared_ns, wake + found_ns);
    }

    /// Notes that the worker's own deadline ended a wait of `took_ns`.
    pub(super) fn due(&mut self, took_ns: u64) {
        if self.sleeping {
            return;
        }
        let deadline = self.costs.sleep_ns as i64;
        let (sleeps, parked) = self.sleeps_within(took_ns);
        let last = if parked { deadline } else { 0 };
        self.move_lead(sleeps.max(deadline) + last, deadline);
    }

    /// Notes that a sleep lasted its time, and whether it found something.
    pub(super) fn slept(&mut self, found: bool) {
        self.note(found);
        let found_ns = if found { self.found_ns as i64 } else { 0 };
        let interrupts = if found { self.wakes() } else { 0 };
        self.move_lead(self.costs.sleep_ns as i64 + found_ns, interrupts);
        self.since_ring = self.since_ring.saturating_add(1);
        if self.sleep_ns < self.delay_ns {
            // By less than a hundredth: a link that fills up ends one of some fifteen sleeps.
            let longer = self.sleep_ns.saturating_add(self.sleep_ns / 128 + 1);
            self.sleep_ns = longer.min(self.delay_ns);
        }
    }

    /// Notes that something urgent ended a sleep early, after `took_ns`.
    pub(super) fn woken_early(&mut self, took_ns: u64, found: bool) {
        self.note(found);
        let found_ns = if found { self.found_ns as i64 } else { 0 };
        self.move_lead(self.costs.wake_ns as i64 + found_ns, self.wakes());
        if std::mem::take(&mut self.since_ring) < RINGS_APART_MAX {
            // What filled the link to three quarters will do so again. End before that, including
            // oversleep, at some 5/8 of capacity / rate, and at most halve the time at once.
            let before_ns = (took_ns / 8 * 7).saturating_sub(self.costs.oversleep_p50_ns);
            let shorter = before_ns.max(self.sleep_ns / 2).max(SLEEP_MIN_NS);
            self.sleep_ns = self.sleep_ns.min(shorter);
        }
    }

    /// The CPU time of the sleeps that would have taken a wait's place, and whether they would have ended
    /// in a wait without time-out.
    fn sleeps_within(&self, took_ns: u64) -> (i64, bool) {
        let lasts_ns = self.sleep_ns.saturating_add(self.costs.oversleep_p50_ns);
        let sleeps = took_ns as f64 / lasts_ns as f64;
        let parked = sleeps > f64::from(EMPTY_SLEEPS_MAX);
        let sleeps = sleeps.min(f64::from(EMPTY_SLEEPS_MAX));
        ((self.costs.sleep_ns as f64 * sleeps) as i64, parked)
    }

    /// The CPU time of the wake-ups that interrupts would have caused during a sleep that found
    /// something.
    fn wakes(&self) -> i64 {
        let found = self.found.min(FOUND_MAX);
        let each_ns = (self.costs.wake_ns + self.found_ns) as f64;
        let arrivals = match found > FOUND_MIN {
            true => -(1.0 - found).ln() / found,
            false => 1.0,
        };
        (each_ns * arrivals) as i64
    }

    fn note(&mut self, found: bool) {
        if std::mem::replace(&mut self.found_last, found) {
            let found = if found { 1.0 } else { 0.0 };
            self.found += FOUND_WEIGHT * (found - self.found);
        }
    }

    fn move_lead(&mut self, sleeping: i64, interrupts: i64) {
        let end = LEAD_WAKES * (self.costs.wake_ns + self.found_ns) as i64;
        self.lead_ns = (self.lead_ns + sleeping - interrupts).clamp(-end, end);
        let change = if self.sleeping { end } else { -end };
        if self.lead_ns == change {
            self.sleeping = !self.sleeping;
            self.changes += 1;
            self.found = 0.5;
            self.found_last = false;
        }
    }
}
