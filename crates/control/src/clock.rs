//! How far another host's clock is ahead of this one's, and how wrong that may be.
//!
//! A message and its answer carry four stamps, of NTP's kind: sent and received here, received and
//! answered there. What the clock there showed lies between what the two ways allow, so that each
//! exchange gives an interval that contains the truth, however unequal the ways are. Its middle is the
//! estimate, and half of its width the error, which grows with age, because clocks run at different
//! rates.
//!
//! Of the last [`KEPT`] exchanges the one with the least error counts. With exchanges of equal age that
//! is the one with the shortest round trip: packets that had to wait say less.
//!
//! **A jump.** Intervals of clocks that only drift have a point in common. An exchange that contradicts
//! an earlier one means that a clock has jumped, such as after the resume of a virtual machine: what was
//! known before is dropped, and the new exchange counts alone. Until such an exchange the bound does not
//! hold. A jump that is smaller than the error stays unnoticed, at most until the exchanges before it are
//! replaced.

use std::collections::VecDeque;

/// How many exchanges are kept: at about one a second the oldest adds 1.6 ms for drift, more than the round
/// trip between two hosts of a data center.
pub const KEPT: usize = 8;

/// The time in which two clocks drift apart by 1 ns, in nanoseconds. Each is wrong by at most 100 ppm, which
/// quartz and NTP's corrections stay below: (1 + 10⁻⁴) / (1 − 10⁻⁴) − 1 is 200.02 ppm, and 1 / 4,999 is more.
const DRIFT_ONE_IN: u64 = 4_999;

/// The stamps of a message and its answer. Each pair is of one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// When the message was sent, by the clock here.
    pub sent_ns: u64,
    /// When it was received, by the clock there.
    pub received_there_ns: u64,
    /// When it was answered, by the clock there.
    pub answered_there_ns: u64,
    /// When the answer was received, by the clock here.
    pub received_ns: u64,
}

/// What an exchange has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// It agrees with what was known.
    Kept,
    /// It is the first, or contradicts what was known, which was dropped.
    Afresh,
    /// Its stamps can't be of clocks that drift by so little; it was ignored.
    Impossible,
}

/// The difference of two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    /// How far the clock there is ahead, in nanoseconds.
    pub offset_ns: i64,
    /// The truth is at most so far from it, in nanoseconds.
    pub error_ns: u64,
}

impl Offset {
    /// The same clock, such as the orchestrator's own.
    pub const NONE: Offset = Offset {
        offset_ns: 0,
        error_ns: 0,
    };

    /// The time there when the clock here shows `local_ns`.
    pub fn there_ns(self, local_ns: u64) -> u64 {
        local_ns.saturating_add_signed(self.offset_ns)
    }

    /// The time here when the clock there shows `there_ns`.
    pub fn here_ns(self, there_ns: u64) -> u64 {
        let shifted = i128::from(there_ns) - i128::from(self.offset_ns);
        u64::try_from(shifted.max(0)).unwrap_or(u64::MAX)
    }
}

/// The estimate of another host's clock.
#[derive(Debug, Clone, Default)]
pub struct ClockEstimate {
    kept: VecDeque<Interval>,
}

/// What one exchange says.
#[derive(Debug, Clone, Copy)]
struct Interval {
    sent_ns: u64,
    received_ns: u64,
    offset_ns: i64,
    /// Half of the round trip.
    half_ns: u64,
}

impl ClockEstimate {
    /// Takes an exchange. Exchanges come in the order in which they ended.
    pub fn add(&mut self, exchange: &Exchange) -> Added {
        let Some(interval) = Interval::of(exchange) else {
            return Added::Impossible;
        };
        let agrees = |kept: &Interval| kept.agrees(&interval);
        let is_fresh = self.kept.is_empty() || !self.kept.iter().all(agrees);
        if is_fresh {
            self.kept.clear();
        }
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(interval);
        if is_fresh { Added::Afresh } else { Added::Kept }
    }

    /// The offset when the clock here shows `now_ns`; `None` before the first exchange.
    pub fn at(&self, now_ns: u64) -> Option<Offset> {
        let each = self.kept.iter().map(|interval| interval.at(now_ns));
        each.min_by_key(|offset| offset.error_ns)
    }
}

impl Interval {
    /// `None` if the stamps are impossible.
    fn of(exchange: &Exchange) -> Option<Interval> {
        let away_ns = exchange.received_ns.checked_sub(exchange.sent_ns)?;
        let held_ns = exchange
            .answered_there_ns
            .checked_sub(exchange.received_there_ns)?;
        // Clocks drift while a message is held: it may seem to be held for longer than it was away.
        if held_ns > away_ns.saturating_add(2 * drift_ns(away_ns)) {
            return None;
        }
        let at_most = i128::from(exchange.received_there_ns) - i128::from(exchange.sent_ns);
        let at_least = i128::from(exchange.answered_there_ns) - i128::from(exchange.received_ns);
        Some(Interval {
            sent_ns: exchange.sent_ns,
            received_ns: exchange.received_ns,
            offset_ns: i64::try_from((at_most + at_least).div_euclid(2)).ok()?,
            half_ns: away_ns.saturating_sub(held_ns).div_ceil(2) + 1,
        })
    }

    /// The one way may have ended right after the message was sent, the other begun right before the answer
    /// came: both ages are at most that of the more distant stamp.
    fn at(&self, now_ns: u64) -> Offset {
        let age_ns = now_ns
            .abs_diff(self.sent_ns)
            .max(now_ns.abs_diff(self.received_ns));
        Offset {
            offset_ns: self.offset_ns,
            error_ns: self.half_ns.saturating_add(drift_ns(age_ns)),
        }
    }

    /// Whether both can be true when the later one ended.
    fn agrees(&self, later: &Interval) -> bool {
        let (one, other) = (self.at(later.received_ns), later.at(later.received_ns));
        let apart_ns = one.offset_ns.abs_diff(other.offset_ns);
        apart_ns <= one.error_ns.saturating_add(other.error_ns)
    }
}

/// How far two clocks drift apart in a time.
fn drift_ns(time_ns: u64) -> u64 {
    time_ns.div_ceil(DRIFT_ONE_IN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;

    /// An exchange with a clock that is `ahead_ns` ahead, with the ways' and the holding times.
    fn exchange(
        sent_ns: u64,
        ahead_ns: i64,
        there_ns: u64,
        held_ns: u64,
        back_ns: u64,
    ) -> Exchange {
        let received_there_ns = (sent_ns + there_ns).saturating_add_signed(ahead_ns);
        Exchange {
            sent_ns,
            received_there_ns,
            answered_there_ns: received_there_ns + held_ns,
            received_ns: sent_ns + there_ns + held_ns + back_ns,
        }
    }

    #[test]
    fn unequal_ways_stay_within_half_a_round_trip() {
        let mut clock = ClockEstimate::default();
        assert_eq!(clock.at(S), None);
        assert_eq!(clock.add(&exchange(S, 86_400, 0, 0, 4_000)), Added::Afresh);
        let offset = clock.at(S + 4_000).unwrap();
        // All of the round trip was on one way: the middle is wrong by all of the error.
        assert_eq!(offset.offset_ns, 84_400);
        assert_eq!(offset.error_ns, 2_000 + 1 + 1);
        assert_eq!(offset.there_ns(S), S + 84_400);
        assert_eq!(offset.here_ns(S + 84_400), S);
    }

    #[test]
    fn the_shortest_round_trip_counts_until_it_is_too_old() {
        let mut clock = ClockEstimate::default();
        clock.add(&exchange(S, 0, 10_000, 0, 10_000));
        clock.add(&exchange(S + MS, 0, MS, 0, 3 * MS));
        // The second one is off by 1 ms.
        assert_eq!(clock.at(S + 10 * MS).unwrap().offset_ns, 0);
        let error_ns = |seconds: u64| clock.at(seconds * S).unwrap().error_ns;
        assert!(error_ns(2) > 200_000 && error_ns(2) < 220_000);
        // Ten seconds later it says less than a new one with 4 ms.
        let mut later = clock.clone();
        later.add(&exchange(12 * S, 0, MS, 0, 3 * MS));
        assert_eq!(later.at(12 * S + 4 * MS).unwrap().offset_ns, -(MS as i64));
    }

    #[test]
    fn a_jump_starts_afresh() {
        let mut clock = ClockEstimate::default();
        for second in 1..20 {
            clock.add(&exchange(second * S, 0, 50_000, 0, 50_000));
        }
        let jumped = exchange(20 * S, 60 * S as i64, 5 * MS, 0, MS);
        assert_eq!(clock.add(&jumped), Added::Afresh);
        let offset = clock.at(jumped.received_ns).unwrap();
        assert_eq!(offset.offset_ns, 60 * S as i64 + 2 * MS as i64);
        assert!(offset.error_ns >= 3 * MS);
        assert_eq!(clock.kept.len(), 1);
        let next = exchange(21 * S, 60 * S as i64, 50_000, 0, 50_000);
        assert_eq!(clock.add(&next), Added::Kept);
        assert!(clock.at(next.received_ns).unwrap().error_ns < 51_000 + 30);
    }

    #[test]
    fn a_message_may_be_held_for_long() {
        let mut clock = ClockEstimate::default();
        // For 100 s by the clock there, which is 200 ppm fast, in 99.98 s here.
        let held = Exchange {
            sent_ns: S,
            received_there_ns: S,
            answered_there_ns: 101 * S,
            received_ns: 101 * S - 20 * MS,
        };
        assert_eq!(clock.add(&held), Added::Afresh);
        let offset = clock.at(held.received_ns).unwrap();
        // The truth is 20 ms by now.
        assert!(offset.offset_ns + offset.error_ns as i64 >= 20 * MS as i64);
    }

    #[test]
    fn impossible_stamps_are_ignored() {
        let mut clock = ClockEstimate::default();
        let good = exchange(S, 5, 100, 0, 100);
        clock.add(&good);
        let before = clock.at(2 * S);
        let bad = [
            Exchange {
                received_ns: good.sent_ns - 1,
                ..good
            },
            Exchange {
                answered_there_ns: good.received_there_ns - 1,
                ..good
            },
            Exchange {
                answered_there_ns: good.received_there_ns + S,
                ..good
            },
            Exchange {
                received_there_ns: u64::MAX,
                answered_there_ns: u64::MAX,
                ..good
            },
        ];
        for exchange in bad {
            assert_eq!(clock.add(&exchange), Added::Impossible, "{exchange:?}");
        }
        assert_eq!(clock.at(2 * S), before);
    }

    proptest! {
        #[test]
        fn nothing_from_outside_panics(
            stamps in proptest::collection::vec(any::<[u64; 4]>(), 0..20),
            now in any::<u64>(),
        ) {
            let mut clock = ClockEstimate::default();
            for [sent_ns, received_there_ns, answered_there_ns, received_ns] in stamps {
                clock.add(&Exchange { sent_ns, received_there_ns, answered_there_ns, received_ns });
                if let Some(offset) = clock.at(now) {
                    offset.there_ns(now);
                    offset.here_ns(now);
                }
            }
        }

        #[test]
        fn the_truth_is_within_the_bound(case in case()) {
            case.check()?;
        }
    }

    /// One exchange of a random case.
    #[derive(Debug, Clone)]
    struct Step {
        pause_ns: u64,
        there_ns: u64,
        held_ns: u64,
        back_ns: u64,
        /// By how much a clock jumps before this exchange, and whether that is the clock here.
        jump: Option<(i64, bool)>,
        /// How long after the exchange the estimate is used.
        later_ns: u64,
    }

    /// Two clocks, as parts of a million by which they are fast, and as times at the beginning.
    #[derive(Debug, Clone)]
    struct Case {
        ppm: [f64; 2],
        begin_ns: [u64; 2],
        steps: Vec<Step>,
    }

    fn way() -> impl Strategy<Value = u64> {
        prop_oneof![0..200_000u64, 0..20 * MS, 0..3 * S]
    }

    fn case() -> impl Strategy<Value = Case> {
        // Larger than any interval, or it could stay unnoticed.
        let jump = prop_oneof![
            9 => Just(None),
            1 => ((100 * S as i64)..(100_000 * S as i64), any::<bool>(), any::<bool>())
                .prop_map(|(by_ns, is_back, is_here)| Some((if is_back { -by_ns } else { by_ns }, is_here))),
        ];
        let held = prop_oneof![Just(0u64), 0..MS, 0..10 * S];
        let step = (0..3 * S, way(), held, way(), jump, 0..60 * S);
        let step = step.prop_map(
            |(pause_ns, there_ns, held_ns, back_ns, jump, later_ns)| Step {
                pause_ns,
                there_ns,
                held_ns,
                back_ns,
                jump,
                later_ns,
            },
        );
        let clock = -100.0..=100.0f64;
        // High enough for all jumps back.
        let begin = 10_000_000 * S..20_000_000 * S;
        (
            [clock.clone(), clock],
            [begin.clone(), begin],
            proptest::collection::vec(step, 1..40),
        )
            .prop_map(|(ppm, begin_ns, steps)| Case {
                ppm,
                begin_ns,
                steps,
            })
    }

    impl Case {
        /// What a clock shows at a true time.
        fn reads(&self, clock: usize, jumped_ns: [i64; 2], true_ns: u64) -> u64 {
            let fast_ns = (true_ns as f64 * self.ppm[clock] / 1e6) as i64;
            (self.begin_ns[clock] + true_ns).saturating_add_signed(fast_ns + jumped_ns[clock])
        }

        fn check(&self) -> Result<(), TestCaseError> {
            let (mut now_ns, mut jumped_ns) = (0, [0i64; 2]);
            let mut clock = ClockEstimate::default();
            for step in &self.steps {
                now_ns += step.pause_ns;
                if let Some((by_ns, is_here)) = step.jump {
                    jumped_ns[usize::from(!is_here)] += by_ns;
                }
                let here = |true_ns| self.reads(0, jumped_ns, true_ns);
                let there = |true_ns| self.reads(1, jumped_ns, true_ns);
                let received_there_ns = now_ns + step.there_ns;
                let answered_there_ns = received_there_ns + step.held_ns;
                let end_ns = answered_there_ns + step.back_ns;
                let added = clock.add(&Exchange {
                    sent_ns: here(now_ns),
                    received_there_ns: there(received_there_ns),
                    answered_there_ns: there(answered_there_ns),
                    received_ns: here(end_ns),
                });
                prop_assert_ne!(added, Added::Impossible);
                // Jumps cancel out at most by chance; another exchange agrees.
                prop_assert!(
                    step.jump.is_none() || added == Added::Afresh,
                    "a jump stayed unnoticed"
                );
                prop_assert!(step.jump.is_some() || clock.kept.len() == 1 || added == Added::Kept);
                for true_ns in [end_ns, end_ns + step.later_ns] {
                    let offset = clock.at(here(true_ns)).unwrap();
                    let truth_ns = there(true_ns) as i64 - here(true_ns) as i64;
                    let wrong_ns = offset.offset_ns.abs_diff(truth_ns);
                    // Clocks are read in whole nanoseconds here, and computed in floating point.
                    prop_assert!(
                        wrong_ns <= offset.error_ns + 8,
                        "{wrong_ns} ns wrong, {offset:?}"
                    );
                }
                now_ns = end_ns;
            }
            Ok(())
        }
    }
}
