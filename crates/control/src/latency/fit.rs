//! Costs learned while a query runs: the cost of a chunk and of a row, from the time spent and the work
//! done.
//!
//! Least squares over the recent past (each correction weighs 0.95 of the next one), drawn towards a
//! first guess if the data don't distinguish the two costs: as long as every chunk has as many rows as
//! the last one, only their sum is visible.

use super::model::Work;

/// The weight of a correction relative to the next one.
const MEMORY: f64 = 0.95;

/// The weight of the guess, in corrections.
const GUESS_WEIGHT: f64 = 1.0;

/// Learns the cost of chunks and rows.
#[derive(Debug, Clone)]
pub struct Fit {
    guess: Work,
    /// Sums of squares and products of chunks, rows and nanoseconds, each correction scaled to one chunk
    /// so that busy times don't outweigh quiet ones.
    rows: f64,
    rows_rows: f64,
    ns: f64,
    ns_rows: f64,
    weight: f64,
}

impl Fit {
    /// A fit that starts with a guess.
    pub fn new(guess: Work) -> Fit {
        Fit {
            guess,
            rows: 0.0,
            rows_rows: 0.0,
            ns: 0.0,
            ns_rows: 0.0,
            weight: 0.0,
        }
    }

    /// Adds an observation: this many chunks with this many rows in total took this long.
    pub fn add(&mut self, chunks: u64, rows: u64, busy_ns: u64) {
        if chunks == 0 {
            return;
        }
        let each = |total: u64| total as f64 / chunks as f64;
        let (rows, ns) = (each(rows), each(busy_ns));
        for sum in [
            &mut self.rows,
            &mut self.rows_rows,
            &mut self.ns,
            &mut self.ns_rows,
            &mut self.weight,
        ] {
            *sum *= MEMORY;
        }
        self.rows += rows;
        self.rows_rows += rows * rows;
        self.ns += ns;
        self.ns_rows += ns * rows;
        self.weight += 1.0;
    }

    /// The estimated costs of chunks and rows.
    pub fn work(&self) -> Work {
        if self.weight == 0.0 {
            return self.guess;
        }
        let (rows, ns) = (self.rows / self.weight, self.ns / self.weight);
        let spread = self.rows_rows / self.weight - rows * rows;
        let together = self.ns_rows / self.weight - ns * rows;
        // The guess as observations: the cost of a row is held to it as if rows per chunk had varied by a
        // tenth around their mean.
        let hold = (0.1 * rows).powi(2) * GUESS_WEIGHT / self.weight.max(GUESS_WEIGHT);
        let guess_ns = self.guess.per_row_ns;
        let per_row_ns = if spread + hold > 0.0 {
            (together + hold * guess_ns) / (spread + hold)
        } else {
            guess_ns
        };
        // Neither cost is negative, and neither alone exceeds the time spent.
        let per_row_ns = per_row_ns.clamp(0.0, if rows > 0.0 { ns / rows } else { guess_ns });
        Work {
            per_chunk_ns: (ns - per_row_ns * rows).max(0.0),
            per_row_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GUESS: Work = Work {
        per_chunk_ns: 5_000.0,
        per_row_ns: 100.0,
    };

    #[test]
    fn without_observations_the_guess_counts() {
        assert_eq!(Fit::new(GUESS).work(), GUESS);
    }

    #[test]
    fn chunks_of_one_size_tell_the_sum() {
        let mut fit = Fit::new(GUESS);
        for _ in 0..50 {
            fit.add(10, 1_000, 10 * 30_000);
        }
        let work = fit.work();
        let sum = work.per_chunk_ns + 100.0 * work.per_row_ns;
        assert!((sum - 30_000.0).abs() < 1.0, "{work:?}");
        assert!((work.per_row_ns - 100.0).abs() < 1.0, "{work:?}");
    }

    proptest! {
        #[test]
        fn two_sizes_tell_them_apart(
            per_chunk_ns in 0.0f64..50_000.0, per_row_ns in 1.0f64..1_000.0,
            small in 1u64..50, large in 500u64..8_000,
        ) {
            let mut fit = Fit::new(GUESS);
            for turn in 0..60 {
                let rows = if turn % 2 == 0 { small } else { large };
                let busy_ns = per_chunk_ns + per_row_ns * rows as f64;
                fit.add(7, 7 * rows, (7.0 * busy_ns) as u64);
            }
            let work = fit.work();
            prop_assert!((work.per_row_ns - per_row_ns).abs() < 2.0 + per_row_ns * 0.05, "{:?}", work);
        }

        #[test]
        fn costs_are_never_negative(
            seen in proptest::collection::vec((1u64..100, 0u64..10_000, 0u64..1_000_000_000), 1..50),
        ) {
            let mut fit = Fit::new(GUESS);
            for (chunks, rows, busy_ns) in seen {
                fit.add(chunks, rows, busy_ns);
                let work = fit.work();
                prop_assert!(work.per_chunk_ns >= 0.0 && work.per_row_ns >= 0.0);
                prop_assert!(work.per_chunk_ns.is_finite() && work.per_row_ns.is_finite());
            }
        }
    }
}
