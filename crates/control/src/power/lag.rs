//! How far a replica is behind, in time, from two counters of bytes.
//!
//! A replica that has applied what its master had sent at the time t is behind by the time since t at most.
//! What the master had sent at a time between two observations is taken to lie on a straight line. So the
//! lag of a write after a long silence is found too high, by the time between two observations at most, and
//! no rate is divided by. Whoever notes what the master has sent, and asks the replica as much later as it
//! may be behind ([`Sent::note`]), learns whether it is late, however rarely that is done.

use std::collections::VecDeque;

/// Observations that are kept.
const KEPT_MAX: usize = 32;

/// How many of them lie within the lag that is allowed: 32 reach back twice as far.
const KEPT_WITHIN: u64 = 16;

/// What a master had sent, lately.
#[derive(Debug, Clone, Default)]
pub struct Sent {
    /// Times and offsets, the oldest first; neither ever goes back.
    kept: VecDeque<(u64, u64)>,
}

impl Sent {
    /// Takes what the master had sent at a time, and what the replica has applied; returns the lag in
    /// nanoseconds, and nothing as long as it can't be told from a longer one. `allowed_ns` is the lag that
    /// matters. A master that has sent less than before is another one.
    pub fn lag_ns(&mut self, now_ns: u64, sent: u64, applied: u64, allowed_ns: u64) -> Option<u64> {
        self.note(now_ns, sent, allowed_ns);
        if applied >= sent {
            return Some(0);
        }
        // The last observation at which the master had sent no more than what is applied by now.
        let Some(at) = self.kept.iter().rposition(|&(_, offset)| offset <= applied) else {
            let oldest_ns = self.kept.front().map_or(now_ns, |&(at_ns, _)| at_ns);
            return Some(now_ns - oldest_ns).filter(|lag_ns| *lag_ns > allowed_ns);
        };
        let ((low_ns, low), (high_ns, high)) = (self.kept[at], self.kept[at + 1]);
        let share = (applied - low) as f64 / (high - low) as f64;
        let since_ns = low_ns + ((high_ns - low_ns) as f64 * share) as u64;
        Some(now_ns - since_ns.min(now_ns))
    }

    /// Takes what the master had sent at a time at which the replica was not asked.
    pub fn note(&mut self, now_ns: u64, sent: u64, allowed_ns: u64) {
        let last = self.kept.back().copied();
        if last.is_some_and(|(last_ns, last)| sent < last || now_ns < last_ns) {
            self.kept.clear();
        }
        let newest = (self.kept.back(), self.kept.iter().rev().nth(1));
        if let (Some(&(last_ns, last)), Some(&(before_ns, before))) = newest {
            // One at the same time, or too near to the one before, is moved; so is the end of a silence.
            let is_near = last_ns - before_ns < allowed_ns / KEPT_WITHIN;
            let is_silent = before == last && last == sent;
            if is_near || is_silent || last_ns == now_ns {
                self.kept.pop_back();
            }
        }
        if self.kept.len() == KEPT_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back((now_ns, sent));
    }

    /// Forgets all: another master.
    pub fn forget(&mut self) {
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const ALLOWED: u64 = 100 * MS;

    #[test]
    fn the_lag_is_the_time_since_the_master_had_sent_what_is_applied() {
        let mut sent = Sent::default();
        let mut lag = |now, all, applied| sent.lag_ns(now, all, applied, ALLOWED);
        assert_eq!(lag(0, 1_000, 1_000), Some(0));
        // A thousand bytes in 100 ms, of which 200 are missing.
        assert_eq!(lag(100 * MS, 2_000, 1_800), Some(20 * MS));
        assert_eq!(lag(200 * MS, 3_000, 1_500), Some(150 * MS));
        assert_eq!(lag(300 * MS, 3_000, 3_000), Some(0));
    }

    #[test]
    fn a_write_after_a_silence_is_as_old_as_the_last_observation_at_most() {
        let mut sent = Sent::default();
        for second in 0..1_000 {
            sent.lag_ns(second * 1_000 * MS, 7, 7, ALLOWED);
        }
        assert_eq!(
            sent.lag_ns(1_000_000 * MS, 107, 7, ALLOWED),
            Some(1_000 * MS)
        );
        assert!(sent.kept.len() <= 3);
    }

    #[test]
    fn a_burst_after_a_silence_is_not_taken_for_a_lag_if_it_was_noted() {
        let mut sent = Sent::default();
        for second in 1..10 {
            sent.lag_ns(second * 1_000 * MS, 7, 7, ALLOWED);
        }
        // The burst began just before, and 100 ms later what was sent by then is applied.
        sent.note(10_000 * MS, 50_007, ALLOWED);
        assert_eq!(
            sent.lag_ns(10_100 * MS, 150_007, 130_007, ALLOWED),
            Some(20 * MS)
        );
        sent.note(11_000 * MS, 900_007, ALLOWED);
        let late = sent.lag_ns(11_100 * MS, 990_007, 890_007, ALLOWED);
        assert!(late > Some(ALLOWED), "{late:?}");
    }

    #[test]
    fn a_replica_that_is_far_behind_from_the_beginning_has_no_known_lag_until_it_is_too_long() {
        let mut sent = Sent::default();
        assert_eq!(sent.lag_ns(0, 9_000_000, 10, ALLOWED), None);
        assert_eq!(sent.lag_ns(50 * MS, 9_000_100, 20, ALLOWED), None);
        let lag_ns = sent.lag_ns(150 * MS, 9_000_100, 30, ALLOWED);
        assert_eq!(lag_ns, Some(150 * MS));
    }

    #[test]
    fn observations_reach_back_twice_the_lag_that_is_allowed_however_often_there_is_one() {
        for every_ns in [MS, 10 * MS, 100 * MS] {
            let mut sent = Sent::default();
            let lags = (0..2_000).map(|tick| sent.lag_ns(tick * every_ns, tick * 50, 0, ALLOWED));
            let lag_ns = lags.last().flatten().expect("a lag");
            assert!(lag_ns >= 19 * ALLOWED / 10, "{every_ns}: {lag_ns}");
            assert_eq!(sent.kept.len(), KEPT_MAX);
        }
    }

    #[test]
    fn offsets_and_times_that_go_back_start_over() {
        let mut sent = Sent::default();
        let mut lag = |now, all, applied| sent.lag_ns(now, all, applied, ALLOWED);
        lag(100 * MS, 5_000, 5_000);
        assert_eq!(lag(200 * MS, 10, 0), None);
        assert_eq!(lag(50 * MS, 20, 20), Some(0));
        assert_eq!(lag(150 * MS, 30, 25), Some(50 * MS));
    }
}
