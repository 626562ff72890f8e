//! The lower limit of measurements on this host: a reading of the clock.

use std::time::Instant;

use super::median;

/// Readings of the clock in one timed batch.
const BATCH: u64 = 1_000;

/// The time of one reading of the clock.
pub fn clock_ns() -> f64 {
    let batches = (0..50).map(|_| {
        let begin = Instant::now();
        for _ in 0..BATCH {
            std::hint::black_box(Instant::now());
        }
        begin.elapsed().as_nanos() as f64 / (BATCH + 1) as f64
    });
    median(batches.collect())
}
