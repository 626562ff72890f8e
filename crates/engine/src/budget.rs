//! A budget for the memory that the operators of a process hold.
//!
//! - Every instance regularly reports how much its head operator holds. Measuring takes at most a
//!   hundredth of its time, however long one measurement takes.
//! - From three quarters of the budget on, a source whose watermark is ahead of another's waits. State
//!   that is kept until both have come equally far shrinks then, as in a join of a fast stream with a
//!   slow one. (Flink calls this watermark alignment, and asks for a distance instead.)
//! - Above the budget the query is told to end; whether its state is saved then is not the engine's
//!   business.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::time::{EventTime, MAX_WATERMARK};

/// The share of the budget, in percent, from which sources that are ahead wait.
const TIGHT_PERCENT: u64 = 75;

/// The most sources of one process that can wait for each other; further ones don't wait.
const SOURCES_MAX: usize = 1024;

/// The shortest time between two measurements of what an operator holds.
const LOOK_MIN_NS: u64 = 1_000_000;

/// The share of the time that measuring may take: one in this many.
const LOOK_SHARE: u64 = 100;

/// The memory that the operators of a process may hold.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    held: AtomicU64,
    is_over: AtomicBool,
    /// The watermark of each source; the largest time for sources that hold nobody back.
    watermarks: Vec<AtomicI64>,
    sources: AtomicU64,
}

impl Default for Budget {
    /// A budget without a limit.
    fn default() -> Budget {
        Budget::new(u64::MAX)
    }
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Budget {
        let slots = if limit == u64::MAX { 0 } else { SOURCES_MAX };
        Budget {
            limit,
            held: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            watermarks: (0..slots).map(|_| AtomicI64::new(MAX_WATERMARK)).collect(),
            sources: AtomicU64::new(0),
        }
    }

    /// The memory held now, in bytes.
    pub fn held(&self) -> u64 {
        // Relaxed here and below: these figures order nothing else.
        self.held.load(Ordering::Relaxed)
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Notes that an operator holds `now` bytes, after `before`. Returns whether all operators together
    /// exceed the limit for the first time.
    fn change(&self, before: u64, now: u64) -> bool {
        let held = match now >= before {
            true => self.held.fetch_add(now - before, Ordering::Relaxed) + (now - before),
            false => self.held.fetch_sub(before - now, Ordering::Relaxed) - (before - now),
        };
        held > self.limit && !self.is_over.swap(true, Ordering::Relaxed)
    }

    fn is_tight(&self) -> bool {
        // Dividing first: nothing overflows for realistic limits.
        self.held() / 100 >= self.limit / 100 * TIGHT_PERCENT / 100
    }

    /// Adds a source, if there is a limit; returns its place.
    pub fn join(&self) -> Option<usize> {
        let place = self.sources.fetch_add(1, Ordering::Relaxed) as usize;
        (place < self.watermarks.len()).then_some(place)
    }

    /// Notes that a source is at `watermark` (the largest time if it is silent or has ended). Returns
    /// whether it must wait for another source.
    pub fn is_to_wait(&self, place: usize, watermark: EventTime) -> bool {
        self.watermarks[place].store(watermark, Ordering::Relaxed);
        if !self.is_tight() {
            return false;
        }
        let sources = self.sources.load(Ordering::Relaxed) as usize;
        let mut others = self.watermarks.iter().take(sources);
        others.any(|other| other.load(Ordering::Relaxed) < watermark)
    }
}

/// One instance's share of the memory held.
#[derive(Debug, Default)]
pub struct Share {
    held: u64,
    /// When to measure next.
    look_ns: u64,
}

impl Share {
    /// Whether it is time to measure.
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.look_ns
    }

    /// Notes that the operator holds `bytes`, measured from `begin_ns` to `end_ns`. Returns whether all
    /// operators together exceed the limit for the first time.
    pub fn note(&mut self, budget: &Budget, bytes: u64, begin_ns: u64, end_ns: u64) -> bool {
        let took_ns = end_ns.saturating_sub(begin_ns);
        self.look_ns = end_ns + (took_ns * LOOK_SHARE).max(LOOK_MIN_NS);
        let before = std::mem::replace(&mut self.held, bytes);
        budget.change(before, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MIN_WATERMARK;

    #[test]
    fn exceeding_the_budget_is_reported_once() {
        let budget = Budget::new(100_000);
        let (mut one, mut other) = (Share::default(), Share::default());
        assert!(one.is_due(0));
        assert!(!one.note(&budget, 60_000, 0, 20_000));
        assert!(!one.is_due(2_000_000) && one.is_due(2_020_000));
        assert!(!other.note(&budget, 40_000, 0, 0));
        assert!(other.note(&budget, 40_001, 0, 0));
        assert!(!other.note(&budget, 50_000, 0, 0), "it was said");
        one.note(&budget, 0, 0, 0);
        assert_eq!(budget.held(), 50_000);
    }

    #[test]
    fn a_source_that_is_ahead_waits_when_memory_is_tight() {
        let budget = Budget::new(100_000);
        let places = [(); 3].map(|()| budget.join().unwrap());
        let mut share = Share::default();
        assert!(!budget.is_to_wait(places[0], 10));
        assert!(!budget.is_to_wait(places[1], 20));
        share.note(&budget, 80_000, 0, 0);
        assert!(budget.is_to_wait(places[1], 20));
        assert!(!budget.is_to_wait(places[0], 10), "the others are further");
        assert!(!budget.is_to_wait(places[0], 20), "as far");
        assert!(!budget.is_to_wait(places[2], MIN_WATERMARK));
        assert!(budget.is_to_wait(places[0], 20), "one has said nothing yet");
        assert!(budget.is_to_wait(places[2], MAX_WATERMARK) && !budget.is_to_wait(places[1], 20));
        share.note(&budget, 10_000, 0, 0);
        assert!(!budget.is_to_wait(places[1], 2_000));
        assert_eq!(Budget::default().join(), None);
    }
}
