//! Computing: a loop that takes the same time for each byte.

use std::hint::black_box;

use slackwater::measure::thread_cpu;

/// Rounds of a calibration: some milliseconds each.
const ROUNDS: u64 = 4_000_000;
const REPETITIONS: usize = 9;

/// Keeps the core busy for this many rounds, each of which needs the result of the one before.
#[inline(never)]
pub fn burn(rounds: u64) {
    let mut state = black_box(1u64);
    for _ in 0..rounds {
        // The compiler can't shorten the loop: it knows neither factor nor addend.
        state = black_box(
            state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1),
        );
    }
    black_box(state);
}

/// Rounds per nanosecond of CPU time: the median of some measurements, which other processes do not
/// affect.
pub fn rounds_per_ns() -> f64 {
    let mut rates = [(); REPETITIONS].map(|()| {
        let begin = thread_cpu();
        burn(ROUNDS);
        let ns = (thread_cpu() - begin).as_nanos().max(1);
        ROUNDS as f64 / ns as f64
    });
    rates.sort_by(f64::total_cmp);
    rates[REPETITIONS / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_counted() {
        burn(0);
        assert!(rounds_per_ns() > 0.0);
    }
}
