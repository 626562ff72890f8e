//! Counts of durations that are exact at round boundaries.
//!
//! Each slot counts the durations after the boundary before it, up to and including its own, so the number of
//! durations above a boundary is known exactly, however many there are. Boundaries are numbers that a person
//! would write as an INTERVAL; from a millisecond on, a boundary is at most a tenth above the one before it.

use serde::{Deserialize, Serialize};

/// The ends of the scales and the widths of their slots, in microseconds: 1,622 slots, 13 KiB if the longest
/// duration is of years, and 3 KiB if it is of minutes.
const STEPS: [(u64, u64); SCALES_COUNT] = [
    (MS, 50),
    (10 * MS, 100),
    (100 * MS, MS),
    (SECOND, 10 * MS),
    (10 * SECOND, 100 * MS),
    (MINUTE, SECOND),
    (10 * MINUTE, 5 * SECOND),
    (HOUR, MINUTE),
    (6 * HOUR, 5 * MINUTE),
    (DAY, 15 * MINUTE),
    (7 * DAY, HOUR),
    (30 * DAY, 6 * HOUR),
    (365 * DAY, DAY),
    (3_665 * DAY, 10 * DAY),
    // One slot for all the rest.
    (END_US, END_US - 3_665 * DAY),
];

const SCALES_COUNT: usize = 15;

const MS: u64 = 1_000;
const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The boundary of the last slot: no duration is longer.
pub const END_US: u64 = i64::MAX as u64;

/// A run of slots of one width.
#[derive(Clone, Copy)]
struct Scale {
    /// The boundary before the first slot.
    lower: u64,
    upper: u64,
    step: u64,
    /// One divided by `step`.
    share: f64,
    /// The number of the first slot.
    first: usize,
}

const SCALES: [Scale; SCALES_COUNT] = scales();

/// For each number of bits the first scale in which a duration of so many bits may be.
const FIRST_SCALE: [u8; 65] = first_scales();

const fn scales() -> [Scale; SCALES_COUNT] {
    let none = Scale {
        lower: 0,
        upper: 0,
        step: 1,
        share: 1.0,
        first: 0,
    };
    let mut scales = [none; SCALES_COUNT];
    let (mut lower, mut first, mut at) = (0, 0, 0);
    while at < SCALES_COUNT {
        let (upper, step) = STEPS[at];
        scales[at] = Scale {
            lower,
            upper,
            step,
            share: 1.0 / step as f64,
            first,
        };
        first += ((upper - lower) / step) as usize;
        lower = upper;
        at += 1;
    }
    scales
}

const fn first_scales() -> [u8; 65] {
    let mut firsts = [0; 65];
    let mut bits = 1;
    while bits < 65 {
        let least = 1u64 << (bits - 1);
        let mut scale = 0;
        while scale + 1 < SCALES_COUNT && STEPS[scale].0 < least {
            scale += 1;
        }
        firsts[bits] = scale as u8;
        bits += 1;
    }
    firsts
}

/// The slot of a duration of at least one microsecond.
#[inline]
fn slot(us: u64) -> usize {
    let us = us.clamp(1, END_US);
    let bits = u64::BITS - us.leading_zeros();
    let mut scale = &SCALES[usize::from(FIRST_SCALE[bits as usize])];
    let mut next = usize::from(FIRST_SCALE[bits as usize]) + 1;
    while us > scale.upper {
        scale = &SCALES[next];
        next += 1;
    }
    let past = us - scale.lower - 1;
    // A division of floating-point numbers, corrected by one: that of integers takes several times as long.
    let near = (past as f64 * scale.share) as u64;
    let near = near - u64::from(near * scale.step > past);
    let within = near + u64::from((near + 1) * scale.step <= past);
    scale.first + within as usize
}

/// The boundary of a slot: the longest duration that it counts.
fn boundary_us(slot: usize) -> u64 {
    let scale = SCALES.iter().rfind(|scale| scale.first <= slot);
    let scale = scale.expect("the first scale begins at zero");
    scale.lower + (slot - scale.first + 1) as u64 * scale.step
}

/// The number of durations in each slot. Durations are of one microsecond at least.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Slots {
    /// By slot, up to the last one that was ever counted in.
    counts: Vec<u64>,
}

impl Slots {
    /// Counts a duration.
    #[inline]
    pub fn add(&mut self, us: u64) {
        self.add_many(us, 1);
    }

    fn add_many(&mut self, us: u64, rows: u64) {
        let slot = slot(us);
        if slot >= self.counts.len() {
            self.counts.resize(slot + 1, 0);
        }
        self.counts[slot] += rows;
    }

    /// Adds what others have counted.
    pub fn merge(&mut self, other: &Slots) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// The number of durations.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The slots that are not empty: their boundaries, in microseconds, and counts.
    pub fn filled(&self) -> Vec<(u64, u64)> {
        let counts = self.counts.iter().enumerate();
        let filled = counts.filter(|(_, count)| **count > 0);
        filled
            .map(|(slot, count)| (boundary_us(slot), *count))
            .collect()
    }

    /// The number of durations above a boundary. Exact if `us` is one.
    pub fn above(&self, us: u64) -> u64 {
        let filled = self.filled().into_iter();
        let above = filled.filter(|(boundary_us, _)| *boundary_us > us);
        above.map(|(_, count)| count).sum()
    }

    /// The least boundary with at most `rest` durations above it; zero if there are no more in all.
    pub fn boundary_above(&self, rest: u64) -> u64 {
        let mut above = 0;
        for (slot, count) in self.counts.iter().enumerate().rev() {
            above += count;
            if above > rest {
                return boundary_us(slot);
            }
        }
        0
    }
}

impl From<Vec<(u64, u64)>> for Slots {
    fn from(filled: Vec<(u64, u64)>) -> Slots {
        let mut slots = Slots::default();
        for (us, count) in filled {
            slots.add_many(us, count);
        }
        slots
    }
}

impl From<Slots> for Vec<(u64, u64)> {
    fn from(slots: Slots) -> Vec<(u64, u64)> {
        slots.filled()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn boundaries_rise_and_belong_to_their_own_slot() {
        let last = slot(END_US);
        assert_eq!(last, 1_621);
        let mut before_us = 0;
        for number in 0..=last {
            let us = boundary_us(number);
            assert!(us > before_us);
            // At most a tenth above the one before it, up to the last slot.
            if us > MS && number < last {
                assert!((us - before_us) * 10 <= before_us, "{before_us} {us}");
            }
            assert_eq!(slot(us), number, "{us}");
            assert_eq!(slot(before_us + 1), number, "{before_us}");
            before_us = us;
        }
        assert_eq!(before_us, END_US);
        assert_eq!(slot(u64::MAX), last);
    }

    #[test]
    fn boundaries_are_round() {
        for us in [50, MS, 7 * SECOND, 65 * SECOND, HOUR, 18 * HOUR, 90 * DAY] {
            assert_eq!(boundary_us(slot(us)), us);
        }
        assert_eq!(boundary_us(slot(HOUR + 1)), HOUR + 5 * MINUTE);
    }

    proptest! {
        #[test]
        fn a_boundary_divides_durations_exactly(
            all in prop::collection::vec((0u32..46, any::<u64>()), 1..200),
            share in 0u64..=100,
        ) {
            // Of all magnitudes.
            let all = all.iter().map(|(bits, any)| 1 + (any & ((1u64 << bits) - 1)));
            let all = all.collect::<Vec<u64>>();
            let (one, other) = all.split_at(all.len() / 2);
            let count = |some: &[u64]| {
                let mut slots = Slots::default();
                some.iter().for_each(|&us| slots.add(us));
                slots
            };
            let mut slots = count(one);
            slots.merge(&count(other));
            prop_assert_eq!(&slots.filled(), &count(&all).filled());
            prop_assert_eq!(slots.total(), all.len() as u64);
            let rest = all.len() as u64 * share / 100;
            let us = slots.boundary_above(rest);
            let above = |us: u64| all.iter().filter(|&&one| one > us).count() as u64;
            prop_assert_eq!(slots.above(us), above(us));
            prop_assert!(above(us) <= rest);
            // The next lower boundary leaves more.
            let lower = slots.filled().iter().rev().find(|(lower, _)| *lower < us).map(|(us, _)| *us);
            if us > 0 {
                prop_assert!(above(lower.unwrap_or(0)) > rest);
            }
            let written = serde_json::to_string(&slots).unwrap();
            prop_assert_eq!(serde_json::from_str::<Slots>(&written).unwrap(), slots);
        }
    }
}
