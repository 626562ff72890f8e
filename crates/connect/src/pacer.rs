//! Pacing: rows are passed on at deadlines, at a given rate over the whole source.
//!
//! All instances of a source share one pacer: each one takes the next deadlines for the rows that it has
//! ready. A row's ingest time is its deadline and not the time of its reading, so a query that falls behind
//! shows the delay instead of slowing the clock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::options::Rate;

/// The number of rows that are due over time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// A constant rate.
    Even(Rate),
    /// Up and down as over a day, as a cosine: the minimum and maximum of rows per nanosecond, and the length
    /// of the day in nanoseconds.
    Day { low: f64, high: f64, period_ns: f64 },
}

impl Pace {
    /// When row `row` (from 0) is due, in nanoseconds after the start.
    fn due_ns(&self, row: u64) -> u64 {
        let (low, high, period_ns) = match *self {
            Pace::Even(rate) => return rate.due_ns(row),
            Pace::Day {
                low,
                high,
                period_ns,
            } => (low, high, period_ns),
        };
        // The rows that are due before a time: the integral of the rate.
        let rows_by = |time_ns: f64| {
            let angle = std::f64::consts::TAU * time_ns / period_ns;
            let swing = period_ns / std::f64::consts::TAU * angle.sin();
            low * time_ns + (high - low) / 2.0 * (time_ns - swing)
        };
        let wanted = row as f64;
        let (mut before, mut behind) = (wanted / high, wanted / low);
        // Bisected to a nanosecond: no run lasts 2^64 of them.
        for _ in 0..64 {
            let middle = (before + behind) / 2.0;
            if rows_by(middle) < wanted {
                before = middle;
            } else {
                behind = middle;
            }
        }
        behind as u64
    }

    /// How many rows from `row` on become due in the given time, the first one at its start; at most
    /// `rows_max`.
    fn rows_within(&self, row: u64, span_ns: u64, rows_max: usize) -> usize {
        if let Pace::Even(rate) = self {
            return rate.rows_within(span_ns).min(rows_max);
        }
        let until_ns = self.due_ns(row).saturating_add(span_ns);
        let (mut few, mut many) = (1, rows_max.max(1));
        while few < many {
            let middle = few + (many - few).div_ceil(2);
            if self.due_ns(row + middle as u64 - 1) <= until_ns {
                few = middle;
            } else {
                many = middle - 1;
            }
        }
        few
    }
}

/// The deadlines of a source's rows.
#[derive(Debug)]
pub(crate) struct Pacer {
    pace: Pace,
    taken: AtomicU64,
    start_ns: OnceLock<u64>,
}

/// The deadlines of some rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    /// The deadline of the first row.
    pub(crate) first_ns: u64,
    /// The deadline of the last row.
    pub(crate) last_ns: u64,
}

impl Pacer {
    pub(crate) fn new(rate: Rate) -> Pacer {
        Pacer::of(Pace::Even(rate))
    }

    pub(crate) fn of(pace: Pace) -> Pacer {
        Pacer {
            pace,
            taken: AtomicU64::new(0),
            start_ns: OnceLock::new(),
        }
    }

    /// The highest rate, in rows per second.
    pub(crate) fn rows_per_s(&self) -> f64 {
        match self.pace {
            Pace::Even(rate) => rate.rows_per_s(),
            Pace::Day { high, .. } => high * 1e9,
        }
    }

    /// How many rows may go together: those that become due within one linger of the next one, and all that
    /// are already due at `now_ns`. (A source that is behind would never catch up row by row.)
    pub(crate) fn rows_max(&self, linger_ns: u64, chunk_rows: usize, now_ns: u64) -> usize {
        let next = self.taken.load(Ordering::Relaxed);
        let started_ns = self.start_ns.get().copied();
        let since_ns = started_ns.map_or(0, |start_ns| now_ns.saturating_sub(start_ns));
        let behind_ns = since_ns.saturating_sub(self.pace.due_ns(next));
        let span_ns = linger_ns.max(behind_ns);
        self.pace.rows_within(next, span_ns, chunk_rows)
    }

    /// Takes the deadlines for the next `rows` rows. The first call starts the clock at `now_ns`.
    pub(crate) fn take(&self, rows: usize, now_ns: u64) -> Due {
        assert!(rows > 0);
        let start_ns = *self.start_ns.get_or_init(|| now_ns);
        // Relaxed: the instances share nothing but this number.
        let first = self.taken.fetch_add(rows as u64, Ordering::Relaxed);
        Due {
            first_ns: start_ns + self.pace.due_ns(first),
            last_ns: start_ns + self.pace.due_ns(first + rows as u64 - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_its_rows_and_deadlines_never_decrease() {
        // A second of a day between 1,000 and 9,000 rows a second: 5,000 rows.
        let pace = Pace::Day {
            low: 1e-6,
            high: 9e-6,
            period_ns: 1e9,
        };
        let dues = (0..10_001)
            .map(|row| pace.due_ns(row))
            .collect::<Vec<u64>>();
        assert!(dues.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(dues[0], 0);
        assert!(
            dues[5_000].abs_diff(1_000_000_000) < 1_000,
            "{}",
            dues[5_000]
        );
        assert!(dues[10_000].abs_diff(2_000_000_000) < 1_000);
        // At its peak, after half a second, nine rows per millisecond.
        assert!(dues[2_509] - dues[2_500] < 1_010_000);
        for row in [0, 700, 2_500, 4_999] {
            let rows = pace.rows_within(row, 2_000_000, 1_000);
            assert!(pace.due_ns(row + rows as u64 - 1) <= pace.due_ns(row) + 2_000_000);
            assert!(pace.due_ns(row + rows as u64) > pace.due_ns(row) + 2_000_000);
        }
        assert_eq!(pace.rows_within(2_500, 2_000_000, 4), 4);
        assert_eq!(pace.rows_within(0, 0, 100), 1);
    }

    #[test]
    fn deadlines_are_shared_and_do_not_drift() {
        let pacer = Pacer::new(Rate {
            rows: 1_000,
            per_ns: 1_000_000_000,
        });
        assert_eq!(pacer.rows_max(5_000_000, 100, 0), 6);
        assert_eq!(pacer.rows_max(5_000_000, 4, 0), 4);
        assert_eq!(pacer.rows_max(0, 100, 0), 1);
        assert_eq!(
            pacer.take(6, 70),
            Due {
                first_ns: 70,
                last_ns: 5_000_070
            }
        );
        // Row 6 is due at 6 ms, row 7 a millisecond later; at 10 ms five rows are due.
        assert_eq!(pacer.rows_max(0, 100, 6_999_999), 1);
        assert_eq!(pacer.rows_max(0, 100, 10_000_070), 5);
        // A later call does not change the start.
        assert_eq!(
            pacer.take(1, 999),
            Due {
                first_ns: 6_000_070,
                last_ns: 6_000_070
            }
        );
        assert_eq!(pacer.take(993, 0).last_ns, 999_000_070);
        assert_eq!(pacer.take(1, 0).first_ns, 1_000_000_070);
    }
}
