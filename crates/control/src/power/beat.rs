//! How rarely a replica may look at what its master sent.
//!
//! With a beat T and a busy share u at its core's frequency, a replica has applied a byte `T · (1 + u)`
//! after it was sent at the latest: the beat, and the work on what came during it. To that come an oversleep
//! and an excess e (the way there, and work that doesn't depend on T), which is learned from measured lags:
//!
//! ```text
//! T · (1 + u) + oversleep_p99 + e <= L
//! ```
//!
//! - **Down at once, up slowly**: a shorter beat is set at once, a longer one every ten seconds, and only if
//!   it is longer by a quarter.
//! - e rises at once to what was seen, but to more than half of what is allowed only if that was seen
//!   twice in a row: once may be a stall of the host, which no shorter beat would have prevented. A half of
//!   it is forgotten each minute.
//! - Without an allowed lag there is no beat, and none below [`BEAT_MIN_NS`].

/// The shortest beat, in nanoseconds: 1 ms. A thousand looks a second cost what a thousand wake-ups cost.
pub const BEAT_MIN_NS: u64 = 1_000_000;

/// The share of the lawful beat that is set, so that a small change of load or lag leaves it alone.
const MARGIN: f64 = 0.9;

/// A longer beat is set only if it is longer by this factor, and not sooner after a change than this.
const UP_MIN: f64 = 1.25;
const UP_NS: u64 = 10_000_000_000;

/// In how long a half of the excess is forgotten, in nanoseconds: a minute.
const HALF_NS: f64 = 60e9;

/// The share of the allowed lag that is learned of what was seen once.
const ONCE_MAX: f64 = 0.5;

/// What a beat depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowed {
    /// The lag that is allowed, in nanoseconds.
    pub lag_ns: u64,
    /// The busy share of the instance at its core's frequency.
    pub busy: f64,
    /// The oversleep of 99 of 100 sleeps, in nanoseconds.
    pub oversleep_ns: u64,
}

/// The beat of one instance.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beat {
    beat_ns: Option<u64>,
    excess_ns: f64,
    /// The excess that was seen last.
    seen_ns: f64,
    learned_ns: u64,
    changed_ns: u64,
}

impl Beat {
    /// What the present beat explains of a lag, in nanoseconds.
    pub fn explained_ns(&self, busy: f64, oversleep_ns: u64) -> u64 {
        self.beat_ns.map_or(0, |beat_ns| {
            let beat_ns = beat_ns as f64 * (1.0 + busy_share(busy));
            (beat_ns as u64).saturating_add(oversleep_ns)
        })
    }

    /// Learns from a lag that was measured while the present beat was set.
    pub fn learn(&mut self, now_ns: u64, lag_ns: u64, allowed: &Allowed) {
        let passed_ns = now_ns.saturating_sub(self.learned_ns) as f64;
        self.learned_ns = now_ns;
        let explained_ns = self.explained_ns(allowed.busy, allowed.oversleep_ns);
        let seen_ns = lag_ns.saturating_sub(explained_ns).min(allowed.lag_ns) as f64;
        let before_ns = std::mem::replace(&mut self.seen_ns, seen_ns);
        let once_ns = seen_ns.min(allowed.lag_ns as f64 * ONCE_MAX);
        let learned_ns = seen_ns.min(before_ns).max(once_ns);
        self.excess_ns = (self.excess_ns * 0.5f64.powf(passed_ns / HALF_NS)).max(learned_ns);
    }

    /// No beat, at once: where it would be seen.
    pub fn stop(&mut self, now_ns: u64) {
        if self.beat_ns.take().is_some() {
            self.changed_ns = now_ns;
        }
    }

    /// The beat from now on.
    pub fn next(&mut self, now_ns: u64, allowed: &Allowed) -> Option<u64> {
        let lawful_ns = self.lawful_ns(allowed);
        let wish_ns = (lawful_ns as f64 * MARGIN) as u64;
        let wish_ns = Some(wish_ns).filter(|wish_ns| *wish_ns >= BEAT_MIN_NS);
        let may_rise = now_ns.saturating_sub(self.changed_ns) >= UP_NS;
        let is_new = match (self.beat_ns, wish_ns) {
            (None, Some(_)) => self.changed_ns == 0 || may_rise,
            (Some(beat_ns), Some(wish_ns)) if beat_ns <= lawful_ns => {
                may_rise && wish_ns as f64 >= beat_ns as f64 * UP_MIN
            }
            (Some(_), Some(_)) => true,
            (Some(beat_ns), None) => beat_ns > lawful_ns,
            (None, None) => false,
        };
        if is_new {
            self.beat_ns = wish_ns;
            self.changed_ns = now_ns;
        }
        self.beat_ns
    }

    /// The longest beat that the law allows.
    fn lawful_ns(&self, allowed: &Allowed) -> u64 {
        let spent_ns = allowed.oversleep_ns as f64 + self.excess_ns;
        let left_ns = (allowed.lag_ns as f64 - spent_ns).max(0.0);
        (left_ns / (1.0 + busy_share(allowed.busy))) as u64
    }
}

/// A busy share that may be computed with.
fn busy_share(busy: f64) -> f64 {
    if busy.is_finite() { busy.max(0.0) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;

    fn allowed(lag_ms: u64) -> Allowed {
        Allowed {
            lag_ns: lag_ms * MS,
            busy: 0.25,
            oversleep_ns: MS / 2,
        }
    }

    #[test]
    fn the_beat_and_its_work_fit_into_the_lag() {
        let mut beat = Beat::default();
        let beat_ns = beat.next(S, &allowed(20)).expect("a beat");
        // 19.5 ms / 1.25 = 15.6 ms, less the margin.
        assert_eq!(beat_ns, 14_040_000);
        assert!(beat.explained_ns(0.25, MS / 2) <= 20 * MS);
    }

    #[test]
    fn there_is_none_below_a_millisecond() {
        let mut beat = Beat::default();
        assert_eq!(beat.next(S, &allowed(1)), None);
        assert_eq!(
            beat.next(
                S,
                &Allowed {
                    oversleep_ns: 30 * MS,
                    ..allowed(20)
                }
            ),
            None
        );
        assert!(
            beat.next(
                S,
                &Allowed {
                    busy: f64::NAN,
                    ..allowed(20)
                }
            )
            .is_some()
        );
    }

    #[test]
    fn a_lag_that_no_beat_explains_shortens_it_if_it_is_seen_twice_and_is_forgotten() {
        let mut beat = Beat::default();
        let before_ns = beat.next(S, &allowed(20)).expect("a beat");
        beat.learn(2 * S, 90 * MS, &allowed(20));
        let once_ns = beat.next(2 * S, &allowed(20)).expect("a beat");
        assert!(once_ns > before_ns / 3, "{once_ns}");
        beat.learn(2 * S, 25 * MS, &allowed(20));
        let after_ns = beat.next(2 * S, &allowed(20)).expect("a beat");
        assert!(after_ns < before_ns / 2 + 3 * MS, "{after_ns}");
        assert_eq!(beat.next(3 * S, &allowed(20)), Some(after_ns));
        for minute in 1..10 {
            beat.learn(minute * 60 * S, MS, &allowed(20));
            beat.next(minute * 60 * S, &allowed(20));
        }
        assert!(beat.next(700 * S, &allowed(20)).expect("a beat") > before_ns * 4 / 5);
    }

    #[test]
    fn a_small_change_changes_nothing_and_a_stop_is_at_once() {
        let mut beat = Beat::default();
        let first_ns = beat.next(S, &allowed(20));
        assert_eq!(
            beat.next(
                20 * S,
                &Allowed {
                    busy: 0.3,
                    ..allowed(20)
                }
            ),
            first_ns
        );
        assert_eq!(
            beat.next(
                40 * S,
                &Allowed {
                    busy: 0.1,
                    ..allowed(20)
                }
            ),
            first_ns
        );
        beat.stop(41 * S);
        assert_eq!(beat.explained_ns(0.2, MS), 0);
        assert_eq!(beat.next(42 * S, &allowed(20)), None);
        assert!(beat.next(52 * S, &allowed(20)).is_some());
    }
}
