//! Pacing: rows are handed out at deadlines, so many a second over the whole source.
//!
//! All instances of a source share one pacer: each takes the next deadlines for the rows that it
//! has ready. A row's ingest time is its deadline and not the time of its reading, so a query that
//! falls behind shows the delay instead of slowing the clock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::options::Rate;

/// The deadlines of a source's rows.
#[derive(Debug)]
pub(crate) struct Pacer {
    rate: Rate,
    taken: AtomicU64,
    start_ns: OnceLock<u64>,
}

/// When some rows are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    /// The first of them.
    pub(crate) first_ns: u64,
    /// The last of them.
    pub(crate) last_ns: u64,
}

impl Pacer {
    pub(crate) fn new(rate: Rate) -> Pacer {
        Pacer {
            rate,
            taken: AtomicU64::new(0),
            start_ns: OnceLock::new(),
        }
    }

    /// Rows per second.
    pub(crate) fn rows_per_s(&self) -> f64 {
        self.rate.rows as f64 * 1e9 / self.rate.per_ns as f64
    }

    /// Rows that fall due within one linger and may go together.
    pub(crate) fn rows_max(&self, linger_ns: u64, chunk_rows: usize) -> usize {
        self.rate.rows_within(linger_ns).min(chunk_rows)
    }

    /// Takes the deadlines for the next `rows` rows. The first call starts the clock at `now_ns`.
    pub(crate) fn take(&self, rows: usize, now_ns: u64) -> Due {
        assert!(rows > 0);
        let start_ns = *self.start_ns.get_or_init(|| now_ns);
        // Relaxed: the number is all that instances share.
        let first = self.taken.fetch_add(rows as u64, Ordering::Relaxed);
        Due {
            first_ns: start_ns + self.rate.due_ns(first),
            last_ns: start_ns + self.rate.due_ns(first + rows as u64 - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_shared_and_do_not_drift() {
        let pacer = Pacer::new(Rate {
            rows: 1_000,
            per_ns: 1_000_000_000,
        });
        assert_eq!(pacer.rows_max(5_000_000, 100), 6);
        assert_eq!(pacer.rows_max(5_000_000, 4), 4);
        assert_eq!(pacer.rows_max(0, 100), 1);
        assert_eq!(
            pacer.take(6, 70),
            Due {
                first_ns: 70,
                last_ns: 5_000_070
            }
        );
        // A later call does not move the start.
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
