//! Latencies in fixed slots: a worker adds, and the latency controller reads (I8).
//!
//! Slots are log-linear, 32 to each doubling, so a slot's upper end is at most 1/32 above any latency in
//! it. (The sinks' own histograms are exact to three digits, but belong to their workers.)
//!
//! The latencies of a query are of a few doublings, so a reader walks only those that were ever touched.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Slots per doubling, as a power of two.
const PER_DOUBLING_BITS: u32 = 5;
const PER_DOUBLING: u64 = 1 << PER_DOUBLING_BITS;

/// Doublings above 32 µs: the last ends at 2^32 µs, 71 minutes.
const DOUBLINGS: u64 = 27;

/// The number of slots: 28 × 32, 7 KiB.
pub const SLOTS: usize = ((DOUBLINGS + 1) * PER_DOUBLING) as usize;

/// The place after the slots: a bit for each doubling in which a slot was ever written.
const TOUCHED: usize = SLOTS;

/// The number of rows that left a sink, by latency. One thread writes.
#[derive(Debug)]
pub struct LatencySlots(Box<[AtomicU64]>);

impl Default for LatencySlots {
    fn default() -> LatencySlots {
        LatencySlots((0..=TOUCHED).map(|_| AtomicU64::new(0)).collect())
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
        let slot = slot(latency_ns / 1_000);
        // Relaxed: a count publishes nothing but itself. A store, since only the worker writes: an atomic
        // addition would lock the bus.
        let rows = self.0[slot].load(Ordering::Relaxed).wrapping_add(rows);
        self.store(slot, rows);
    }

    /// The slots that are not empty, with their counts, for other processes.
    pub fn filled(&self) -> Vec<(usize, u64)> {
        self.new_since(&mut [0; SLOTS])
    }

    /// Sets a slot to the count of another process.
    pub fn store(&self, slot: usize, rows: u64) {
        if slot >= SLOTS {
            return;
        }
        self.0[slot].store(rows, Ordering::Relaxed);
        let touched = self.touched();
        let bit = 1 << (slot as u64 / PER_DOUBLING);
        if touched & bit == 0 {
            // A reader that sees the count before this counts it the next time.
            self.0[TOUCHED].store(touched | bit, Ordering::Relaxed);
        }
    }

    fn touched(&self) -> u64 {
        self.0[TOUCHED].load(Ordering::Relaxed)
    }

    /// The slots with rows since the last call, and how many; `last` holds the counts of that call.
    pub fn new_since(&self, last: &mut [u64; SLOTS]) -> Vec<(usize, u64)> {
        let mut new = Vec::new();
        let mut touched = self.touched();
        while touched != 0 {
            let first = touched.trailing_zeros() as usize * PER_DOUBLING as usize;
            touched &= touched - 1;
            let doubling = first..first + PER_DOUBLING as usize;
            let slots = self.0[doubling.clone()].iter();
            for (slot, (count, last)) in doubling.clone().zip(slots.zip(&mut last[doubling])) {
                let now = count.load(Ordering::Relaxed);
                let rows = now.wrapping_sub(std::mem::replace(last, now));
                if rows > 0 {
                    new.push((slot, rows));
                }
            }
        }
        new
    }
}

/// A slice of time that is judged as a whole, in nanoseconds.
const SLICE_NS: u64 = 1_000_000_000;

/// For a sink with a latency target: how long rows left it, and for how much of that time more than one
/// row in a hundred was late. Judged by slices of a second since the sink was made. The last slice counts
/// as long as it lasted, so neither figure exceeds the lifetime of the sink.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seconds {
    /// The total time of slices in which rows left, in nanoseconds.
    pub active_ns: u64,
    /// The total time of slices that violated the target, in nanoseconds.
    pub violated_ns: u64,
    #[serde(skip)]
    began_ns: u64,
    #[serde(skip)]
    current: u64,
    #[serde(skip)]
    rows: u64,
    #[serde(skip)]
    late: u64,
}

impl Seconds {
    /// The figures of a sink that is made now.
    pub(crate) fn since(began_ns: u64) -> Seconds {
        Seconds {
            began_ns,
            ..Seconds::default()
        }
    }

    /// Records rows that left at a time, late or not.
    pub(crate) fn record(&mut self, now_ns: u64, rows: u64, late: bool) {
        let slice = now_ns.saturating_sub(self.began_ns) / SLICE_NS;
        if slice != self.current {
            self.close(now_ns);
            self.current = slice;
        }
        self.rows += rows;
        self.late += if late { rows } else { 0 };
    }

    /// Counts the unfinished slice up to now.
    pub(crate) fn close(&mut self, now_ns: u64) {
        let begin_ns = self.began_ns + self.current * SLICE_NS;
        let length_ns = now_ns.saturating_sub(begin_ns).min(SLICE_NS);
        if self.rows > 0 {
            self.active_ns += length_ns;
        }
        if self.late * 100 > self.rows {
            self.violated_ns += length_ns;
        }
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
    fn new_counts_are_read_once() {
        let slots = LatencySlots::default();
        let mut last = [0; SLOTS];
        assert_eq!(slots.new_since(&mut last), []);
        slots.record(5_000, 3);
        assert_eq!(slots.new_since(&mut last), [(5, 3)]);
        slots.record(5_400, 4);
        slots.record(u64::MAX, 1);
        assert_eq!(slots.new_since(&mut last), [(5, 4), (SLOTS - 1, 1)]);
        assert_eq!(slots.new_since(&mut last), []);
        assert_eq!(slots.filled(), [(5, 7), (SLOTS - 1, 1)]);
    }

    #[test]
    fn a_reader_walks_only_doublings_that_were_touched() {
        let slots = LatencySlots::default();
        let touched = || slots.touched().count_ones();
        assert_eq!(touched(), 0);
        for latency_us in 16_400..20_000 {
            slots.record(latency_us * 1_000, 1);
        }
        assert_eq!(touched(), 1);
        // Of another process.
        slots.store(SLOTS - 1, 9);
        slots.store(SLOTS, 9);
        assert_eq!(touched(), 2);
        assert_eq!(
            slots.filled().iter().map(|(_, rows)| rows).sum::<u64>(),
            3_609
        );
    }

    #[test]
    fn a_second_is_violated_by_more_than_a_hundredth_of_its_rows() {
        // Not at a whole second of the clock.
        let second = SLICE_NS;
        let began = 7 * second + 900_000_000;
        let mut seconds = Seconds::since(began);
        seconds.record(began + 5 * second, 99, false);
        seconds.record(began + 5 * second + 1, 1, true);
        seconds.record(began + 6 * second, 98, false);
        seconds.record(began + 6 * second, 2, true);
        // No rows in second 7.
        seconds.record(began + 8 * second, 1, false);
        assert_eq!(
            (seconds.active_ns, seconds.violated_ns),
            (2 * second, second)
        );
        seconds.close(began + 8 * second + 250_000_000);
        seconds.close(began + 9 * second);
        assert_eq!(
            (seconds.active_ns, seconds.violated_ns),
            (2 * second + 250_000_000, second)
        );
    }

    /// A run of 6.2 s overlaps up to eight seconds of the clock.
    #[test]
    fn regression_a_sink_is_not_late_for_longer_than_it_was_there() {
        for began in [0, 1, 499_999_999, 999_999_999] {
            let mut seconds = Seconds::since(began);
            let end = began + 6_200_000_000;
            for now in (began..end).step_by(10_000_000) {
                seconds.record(now, 1, true);
            }
            seconds.close(end);
            assert_eq!(seconds.active_ns, 6_200_000_000);
            assert_eq!(seconds.violated_ns, seconds.active_ns);
        }
    }
}
