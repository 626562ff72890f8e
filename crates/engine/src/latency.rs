//! Latencies in fixed slots: a worker adds, whoever steers the query reads (I8).
//!
//! Slots are log-linear, 32 to each doubling, so a slot's upper end is at most 1/32 above any
//! latency in it. (The sinks' own histograms are exact to three digits, but belong to their workers.)

use std::sync::atomic::{AtomicU64, Ordering};

/// Slots to a doubling, as a power of two.
const PER_DOUBLING_BITS: u32 = 5;
const PER_DOUBLING: u64 = 1 << PER_DOUBLING_BITS;

/// Doublings above 32 µs: the last ends at 2^32 µs, 71 minutes.
const DOUBLINGS: u64 = 27;

/// How many slots there are: 28 × 32, 7 KiB.
pub const SLOTS: usize = ((DOUBLINGS + 1) * PER_DOUBLING) as usize;

/// How many rows left a sink with which latency.
#[derive(Debug)]
pub struct LatencySlots(Box<[AtomicU64]>);

impl Default for LatencySlots {
    fn default() -> LatencySlots {
        LatencySlots((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }
}

fn slot(latency_us: u64) -> usize {
    if latency_us < PER_DOUBLING {
        return latency_us as usize;
    }
    let doubling = u64::from(latency_us.ilog2() - PER_DOUBLING_BITS);
    let within = (latency_us >> doubling) - PER_DOUBLING;
    (((doubling + 1) * PER_DOUBLING + within) as usize).min(SLOTS - 1)
}

/// The largest latency that belongs to a slot, in nanoseconds.
pub fn upper_ns(slot: usize) -> u64 {
    let (doubling, within) = (slot as u64 / PER_DOUBLING, slot as u64 % PER_DOUBLING);
    let end_us = match doubling {
        0 => within + 1,
        doubling => (PER_DOUBLING + within + 1) << (doubling - 1),
    };
    end_us * 1_000 - 1
}

impl LatencySlots {
    pub(crate) fn record(&self, latency_ns: u64, rows: u64) {
        // Relaxed: a count publishes nothing but itself.
        self.0[slot(latency_ns / 1_000)].fetch_add(rows, Ordering::Relaxed);
    }

    /// Adds what came since the last call to `sum`, slot by slot; `last` remembers where that was.
    pub fn add_new(&self, last: &mut [u64; SLOTS], sum: &mut [u64; SLOTS]) {
        for ((slot, last), sum) in self.0.iter().zip(last).zip(sum) {
            let now = slot.load(Ordering::Relaxed);
            *sum += now.wrapping_sub(*last);
            *last = now;
        }
    }
}

/// Of a sink with a latency target: the seconds in which rows left it, and those in which more than
/// one row in a hundred was late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seconds {
    /// In which rows left.
    pub active: u64,
    /// In which the target was violated.
    pub violated: u64,
    current: u64,
    rows: u64,
    late: u64,
}

impl Seconds {
    /// As another process has counted them.
    pub fn of(active: u64, violated: u64) -> Seconds {
        Seconds {
            active,
            violated,
            ..Seconds::default()
        }
    }

    /// Rows left at a time, late or not.
    pub(crate) fn record(&mut self, now_ns: u64, rows: u64, late: bool) {
        let second = now_ns / 1_000_000_000;
        if second != self.current {
            self.close();
            self.current = second;
        }
        self.rows += rows;
        self.late += if late { rows } else { 0 };
    }

    /// Counts the second that is not over yet.
    pub(crate) fn close(&mut self) {
        self.active += u64::from(self.rows > 0);
        self.violated += u64::from(self.late * 100 > self.rows);
        (self.rows, self.late) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_ends_at_most_a_thirty_second_above_what_is_in_it() {
        let mut last = 0;
        for latency_us in (0..100_000).chain((0..32).map(|bit| 1 << bit)) {
            let slot = slot(latency_us);
            let upper_us = upper_ns(slot) / 1_000;
            assert!(upper_us >= latency_us, "{latency_us} in {slot}");
            assert!(
                upper_us - latency_us <= latency_us / 32,
                "{latency_us} in {slot}"
            );
        }
        for latency_us in 0..100_000 {
            assert!(
                (last..=last + 1).contains(&super::slot(latency_us)),
                "{latency_us}"
            );
            last = super::slot(latency_us);
        }
        assert_eq!(slot(u64::MAX), SLOTS - 1);
    }

    #[test]
    fn what_is_new_is_added_once() {
        let slots = LatencySlots::default();
        let (mut last, mut sum) = ([0; SLOTS], [0; SLOTS]);
        slots.record(5_000, 3);
        slots.add_new(&mut last, &mut sum);
        slots.record(5_400, 4);
        slots.add_new(&mut last, &mut sum);
        slots.add_new(&mut last, &mut sum);
        assert_eq!((sum[5], sum.iter().sum::<u64>()), (7, 7));
    }

    #[test]
    fn a_second_is_violated_by_more_than_a_hundredth_of_its_rows() {
        let mut seconds = Seconds::default();
        let second = 1_000_000_000;
        seconds.record(5 * second, 99, false);
        seconds.record(5 * second + 1, 1, true);
        seconds.record(6 * second, 98, false);
        seconds.record(6 * second, 2, true);
        // Nothing in second 7.
        seconds.record(8 * second, 1, false);
        assert_eq!((seconds.active, seconds.violated), (2, 1));
        seconds.close();
        seconds.close();
        assert_eq!((seconds.active, seconds.violated), (3, 1));
    }
}
