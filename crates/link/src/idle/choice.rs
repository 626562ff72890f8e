//! The choice between interrupts and sleeping, by what each would have cost.
//!
//! Two modes are enough. A sleep of T takes no more CPU time than it lasts, so spinning for as long
//! is never cheaper; what is left is whether the wake-ups that interrupts would bring cost more
//! than the sleeps.
//!
//! One number says so: the **lead**, the CPU time that sleeping would have cost so far less that of
//! interrupts, held between −[`LEAD_WAKES`] and +[`LEAD_WAKES`] wake-ups. Where it reaches an end
//! the other mode takes over. Every wait moves it, whichever mode is in use:
//!
//! | what was seen | sleeping costs | interrupts cost |
//! |---|---|---|
//! | a sleep that found nothing | one sleep | nothing |
//! | a sleep that found something | one sleep | as many wake-ups as arrivals that far apart: −ln(1−q)/q, with q the share of sleeps that find something |
//! | a wait, ended by a ring | the sleeps that fit into it; when it is longer than [`EMPTY_SLEEPS_MAX`] of them, those and one wake-up | one wake-up |
//! | a wait, ended by the worker's own deadline | the sleeps that fit into it, at least one | one sleep |
//! | a sleep, ended by its own ring | one wake-up | at least one wake-up |
//!
//! Whatever is found also has to be worked on, and that costs something however little it is (a read,
//! a chunk, a write): `found_ns`, which interrupts pay with each arrival and sleeping with each sleep
//! that finds something. The table leaves it out.
//!
//! Nothing is tried out: what the other mode would have cost is read off the mode in use. This is
//! the work-function algorithm for two states (Borodin, Linial, Saks: "An optimal on-line algorithm
//! for metrical task systems", 1992), with the width of the band as the price of a change. So it
//! loses at most a constant factor against whoever knows what will come, reacts after a number of
//! *waits* and not of seconds, and changes to and fro only where both modes cost the same.

/// What waiting costs on a host, in nanoseconds of CPU time and of delay.
///
/// Every one of these grows with the time that a core has been idle, so the figures are those of
/// about a millisecond. The choice depends on `wake_ns / sleep_ns` alone, which hardly grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// CPU time of a wake-up by a ring, of the ringing and the woken side together.
    pub wake_ns: u64,
    /// CPU time of a timed sleep.
    pub sleep_ns: u64,
    /// How much longer than asked a sleep lasts, in the median.
    pub oversleep_p50_ns: u64,
    /// And in one of a hundred sleeps. For whoever turns a latency target into a permitted delay;
    /// the choice does not depend on it.
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

/// Empty sleeps in a row after which a worker waits without a time-out. The wake-up that ends such
/// a wait costs about two sleeps. Two empty sleeps therefore would do if nothing were known of the
/// arrivals; but where sleeping is the cheaper mode, at least 40 % of the sleeps find something,
/// and two in a row miss in a third of all cases, four in an eighth.
pub(super) const EMPTY_SLEEPS_MAX: u32 = 4;

/// Costs are taken to lie between a nanosecond and a second: whoever measured something else has
/// measured something else, and sums of them must not overflow.
const COST_MAX_NS: u64 = 1_000_000_000;

/// Half the width of the band, in wake-ups: a burst turns interrupts into sleeping after
/// 2 × 4 wake-ups (some 0.3 ms of CPU time), and arrivals that are twice as rare or twice as
/// frequent as where both modes cost the same lead to a wrong change once in thousands of waits.
const LEAD_WAKES: i64 = 4;

/// One sleep's weight in the share of sleeps that find something.
const FOUND_WEIGHT: f64 = 1.0 / 16.0;

/// The share is taken to be at most this, or the number of arrivals that it stands for would have
/// no bound: −ln(1 − 0.98) / 0.98 is 4.
const FOUND_MAX: f64 = 0.98;

/// Sleeps are not shortened below this: a shorter one costs the whole core as well.
const SLEEP_MIN_NS: u64 = 20_000;

/// Rings at most this many sleeps apart mean that a link fills up, and not that a barrier came by:
/// barriers are a second apart or so, which is more sleeps than this up to 10 ms.
const RINGS_APART_MAX: u32 = 64;

/// Which of the two modes, and how long to sleep. Pure: no clock, no I/O.
#[derive(Debug)]
pub(super) struct Choice {
    costs: Costs,
    /// CPU time that finding something costs beside the waiting.
    found_ns: u64,
    /// The permitted delay: the longest sleep.
    delay_ns: u64,
    /// The next sleep: shorter than the delay while links fill up within it.
    sleep_ns: u64,
    /// Sleeps since the last one that a ring ended.
    since_ring: u32,
    sleeping: bool,
    /// What sleeping would have cost more than interrupts.
    lead_ns: i64,
    /// The share of sleeps that find something.
    found: f64,
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

    /// Permits another delay. A sleep that was shortened because links fill up stays as short.
    pub(super) fn set_delay(&mut self, delay_ns: u64) {
        self.sleep_ns = if self.sleep_ns == self.delay_ns {
            delay_ns
        } else {
            self.sleep_ns.min(delay_ns)
        };
        self.delay_ns = delay_ns;
    }

    /// What finding something costs beside the waiting: per arrival under interrupts, per sleep
    /// that finds something when sleeping.
    pub(super) fn set_found(&mut self, found_ns: u64) {
        self.found_ns = found_ns.min(COST_MAX_NS);
    }

    /// How often it has changed its mind.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// A wait of `took_ns` was ended by a ring or a descriptor.
    pub(super) fn rung(&mut self, took_ns: u64) {
        // After empty sleeps both modes wait like this; and what ends at once was no sleep: the bell
        // had been struck already, or an edge was left of bytes that have been read.
        if self.sleeping || took_ns < self.costs.wake_ns / 8 {
            return;
        }
        let (sleeps, parked) = self.sleeps_within(took_ns);
        let wake = self.costs.wake_ns as i64;
        // Several arrivals within one sleep are found together: this one's share of that.
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

    /// A wait of `took_ns` was ended by the worker's own deadline.
    pub(super) fn due(&mut self, took_ns: u64) {
        if self.sleeping {
            return;
        }
        let deadline = self.costs.sleep_ns as i64;
        let (sleeps, parked) = self.sleeps_within(took_ns);
        let last = if parked { deadline } else { 0 };
        self.move_lead(sleeps.max(deadline) + last, deadline);
    }

    /// A sleep lasted its time, and something was there, or nothing.
    pub(super) fn slept(&mut self, found: bool) {
        self.note(found);
        let found_ns = if found { self.found_ns as i64 } else { 0 };
        let interrupts = if found { self.wakes() } else { 0 };
        self.move_lead(self.costs.sleep_ns as i64 + found_ns, interrupts);
        self.since_ring = self.since_ring.saturating_add(1);
        if self.sleep_ns < self.delay_ns {
            // By less than a hundredth: a link that fills up rings in one of some fifteen sleeps.
            let longer = self.sleep_ns.saturating_add(self.sleep_ns / 128 + 1);
            self.sleep_ns = longer.min(self.delay_ns);
        }
    }

    /// A sleep was ended early by something urgent, after `took_ns`.
    pub(super) fn rung_early(&mut self, took_ns: u64, found: bool) {
        self.note(found);
        let found_ns = if found { self.found_ns as i64 } else { 0 };
        self.move_lead(self.costs.wake_ns as i64 + found_ns, self.wakes());
        if std::mem::take(&mut self.since_ring) < RINGS_APART_MAX {
            // What filled the link to three quarters will do so again. End before it, oversleep
            // included, at some 5/8 of capacity / rate, and at most halve the time at once.
            let before_ns = (took_ns / 8 * 7).saturating_sub(self.costs.oversleep_p50_ns);
            let shorter = before_ns.max(self.sleep_ns / 2).max(SLEEP_MIN_NS);
            self.sleep_ns = self.sleep_ns.min(shorter);
        }
    }

    /// The sleeps that a wait of this length would have taken, as CPU time, and whether it would
    /// have ended in a wait without time-out.
    fn sleeps_within(&self, took_ns: u64) -> (i64, bool) {
        let lasts_ns = self.sleep_ns.saturating_add(self.costs.oversleep_p50_ns);
        let sleeps = took_ns as f64 / lasts_ns as f64;
        let parked = sleeps > f64::from(EMPTY_SLEEPS_MAX);
        let sleeps = sleeps.min(f64::from(EMPTY_SLEEPS_MAX));
        ((self.costs.sleep_ns as f64 * sleeps) as i64, parked)
    }

    /// The wake-ups that interrupts would have brought during a sleep that found something, as CPU
    /// time.
    fn wakes(&self) -> i64 {
        let found = self.found.min(FOUND_MAX);
        let each_ns = (self.costs.wake_ns + self.found_ns) as f64;
        (each_ns * -(1.0 - found).ln() / found) as i64
    }

    fn note(&mut self, found: bool) {
        let found = if found { 1.0 } else { 0.0 };
        self.found += FOUND_WEIGHT * (found - self.found);
    }

    fn move_lead(&mut self, sleeping: i64, interrupts: i64) {
        let end = LEAD_WAKES * (self.costs.wake_ns + self.found_ns) as i64;
        self.lead_ns = (self.lead_ns + sleeping - interrupts).clamp(-end, end);
        let change = if self.sleeping { end } else { -end };
        if self.lead_ns == change {
            self.sleeping = !self.sleeping;
            self.changes += 1;
            self.found = 0.5;
        }
    }
}
