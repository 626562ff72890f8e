//! How often the tuner looks. Pure.
//!
//! A tick is due twice a second, and up to ten times while something changes. A tick looks only if the
//! workers have been busy for [`BUSY_MIN`] times as long as a look takes, so that the looks of a query with
//! little work cost little of what it costs. When the work grows, so does what the workers were busy for,
//! and the next tick looks: fewer looks at low rates make no reaction slower.

use std::time::Duration;

/// The shortest interval of ticks while something changes: quick ones wait until a look is worth it.
const SOON: Duration = Duration::from_millis(100);
const LATER: Duration = Duration::from_millis(500);

/// The number of quick ticks at the start and after each change.
const SOON_TICKS: u32 = 10;

/// The time that workers are busy between two looks, in looks.
const BUSY_MIN: u64 = 20;

/// The longest time without a look while workers do anything at all: what is learned is that old at most.
const LOOK_AFTER_NS: u64 = 2_000_000_000;

/// When the tuner looks.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Ticks that are still quick.
    soon: u32,
    ticked_ns: u64,
    looked_ns: u64,
    /// The CPU time of a look, on average over the last few; `None` before the first.
    look_cpu_ns: Option<u64>,
    /// When a look is worth it again if the work goes on as it did, after the last look.
    worth_it_after_ns: u64,
}

impl Pace {
    /// The pace of a query that starts now.
    pub fn new(now_ns: u64) -> Pace {
        Pace {
            soon: SOON_TICKS,
            ticked_ns: now_ns,
            looked_ns: now_ns,
            look_cpu_ns: None,
            worth_it_after_ns: 0,
        }
    }

    /// The time of the next tick.
    pub fn next_ns(&self) -> u64 {
        let (soon_ns, later_ns) = (SOON.as_nanos() as u64, LATER.as_nanos() as u64);
        match self.soon {
            0 => self.ticked_ns + later_ns,
            _ => self.ticked_ns + self.worth_it_after_ns.clamp(soon_ns, later_ns),
        }
    }

    /// Something changes: the next ticks are quick.
    pub fn hurry(&mut self) {
        self.soon = SOON_TICKS;
    }

    /// The query is no longer idle.
    pub fn wake(&mut self, now_ns: u64) {
        (self.ticked_ns, self.looked_ns) = (now_ns, now_ns);
        self.hurry();
    }

    /// A tick; returns whether it is due.
    pub fn tick(&mut self, now_ns: u64) -> bool {
        if now_ns.saturating_sub(self.ticked_ns) < SOON.as_nanos() as u64 / 2 {
            return false;
        }
        self.ticked_ns = now_ns;
        self.soon = self.soon.saturating_sub(1);
        true
    }

    /// Whether this tick looks, if the workers have been busy for so long since the last look.
    pub fn is_worth_it(&self, now_ns: u64, busy_ns: u64) -> bool {
        let look_ns = self.look_cpu_ns.unwrap_or(0);
        busy_ns >= look_ns * BUSY_MIN || now_ns.saturating_sub(self.looked_ns) >= LOOK_AFTER_NS
    }

    /// A look took so much CPU time, after the workers were busy for `busy_ns`.
    pub fn looked(&mut self, now_ns: u64, busy_ns: u64, cpu_ns: u64) {
        let known_ns = self.look_cpu_ns.unwrap_or(cpu_ns);
        let look_ns = known_ns.midpoint(cpu_ns);
        self.look_cpu_ns = Some(look_ns);
        let since_ns = now_ns.saturating_sub(std::mem::replace(&mut self.looked_ns, now_ns));
        let after_ns = (look_ns * BUSY_MIN) as f64 * since_ns as f64 / busy_ns.max(1) as f64;
        self.worth_it_after_ns = after_ns as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// The looks, in seconds since the start, of workers that are busy for `busy_ns` of each second, until
    /// `changes_s`, and for `then_ns` afterwards. A look takes 60 µs.
    fn looks(busy_ns: u64, changes_s: f64, then_ns: u64) -> Vec<f64> {
        let mut pace = Pace::new(SECOND);
        let (mut looks, mut busy, mut last_ns) = (Vec::new(), 0.0, SECOND);
        while last_ns < 31 * SECOND {
            let now_ns = pace.next_ns();
            let at_s = (now_ns - SECOND) as f64 / 1e9;
            let rate = if at_s > changes_s { then_ns } else { busy_ns };
            busy += rate as f64 * (now_ns - last_ns) as f64 / 1e9;
            last_ns = now_ns;
            assert!(pace.tick(now_ns));
            if pace.is_worth_it(now_ns, busy as u64) {
                pace.looked(now_ns, busy as u64, 60_000);
                looks.push(at_s);
                busy = 0.0;
            }
        }
        looks
    }

    #[test]
    fn looks_cost_a_twentieth_of_the_work_at_most() {
        // 30 s, with 2 looks a second, and 10 in the first one.
        assert_eq!(looks(SECOND / 10, 30.0, 0).len(), 10 + 58);
        for busy_ns in [20_000_000, 7_000_000, 2_000_000, 1_000_000] {
            let looks = looks(busy_ns, 30.0, 0);
            let afforded = 30 * busy_ns / (60_000 * BUSY_MIN);
            // The first one has nothing to compare with.
            assert!(
                looks.len() as u64 <= afforded.max(15) + 1,
                "{busy_ns}: {looks:?}"
            );
            assert!(looks.len() >= 15, "{busy_ns}: {looks:?}");
        }
    }

    #[test]
    fn growing_work_is_seen_at_the_next_tick() {
        let looks = looks(100_000, 20.2, SECOND / 10);
        let first = looks.iter().find(|at| **at > 20.2);
        assert!(first.is_some_and(|at| *at <= 20.7), "{looks:?}");
    }

    #[test]
    fn a_tick_that_is_not_due_is_none() {
        let mut pace = Pace::new(SECOND);
        assert!(!pace.tick(SECOND + 10_000_000));
        assert!(pace.tick(SECOND + 100_000_000));
        assert!(!pace.tick(SECOND + 110_000_000));
    }
}
