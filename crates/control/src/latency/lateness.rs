//! What made rows late: the host, or the query's own work.
//!
//! A host takes time from a worker in three ways: a sleep lasts longer than asked, another thread has the
//! core while the worker is ready to run, or the hypervisor runs other machines. The operating system counts
//! each; no shorter sleep changes any.

/// Time that the host took from a worker in an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// How much longer its sleeps lasted than asked, without the usual oversleep, in nanoseconds.
    pub overslept_ns: u64,
    /// The largest part of that which a single sleep had, in nanoseconds.
    pub longest_ns: u64,
    /// How long it was ready to run while another thread had its core, in nanoseconds.
    pub queued_ns: u64,
    /// How long the hypervisor kept its core from running, in nanoseconds.
    pub stolen_ns: u64,
}

impl Lost {
    /// The total, without counting twice: a sleep also lasts longer because the core was taken.
    pub fn total_ns(&self) -> u64 {
        self.overslept_ns
            .max(self.queued_ns.saturating_add(self.stolen_ns))
    }

    /// The most that a single row may have been held up: by the longest of the sleeps, and by what was taken
    /// from the worker while it was awake, of which only the sum is known.
    pub fn at_once_ns(&self) -> u64 {
        let awake_ns = self.total_ns() - self.overslept_ns;
        self.longest_ns.saturating_add(awake_ns)
    }

    /// The larger of each, for workers that a row passes side by side.
    #[must_use]
    pub fn max(self, other: Lost) -> Lost {
        Lost {
            overslept_ns: self.overslept_ns.max(other.overslept_ns),
            longest_ns: self.longest_ns.max(other.longest_ns),
            queued_ns: self.queued_ns.max(other.queued_ns),
            stolen_ns: self.stolen_ns.max(other.stolen_ns),
        }
    }
}

/// The late rows of a query, and what the host took from it in the intervals in which rows were late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Late {
    /// Rows that left later than their target.
    pub rows: u64,
    /// Those of them that would have been in time without what the host took in their interval.
    pub by_host: u64,
    /// What the host took in intervals with late rows.
    pub lost: Lost,
    /// The length of those intervals, in nanoseconds.
    pub interval_ns: u64,
    /// How long the host kept workers from running that waited to be woken, in nanoseconds. Latencies leave
    /// that out, because they count from the end of a wait.
    pub unseen_ns: u64,
    /// The length of the intervals in which workers waited to be woken, in nanoseconds.
    pub woken_ns: u64,
}

impl Late {
    /// Adds an interval in which workers waited to be woken.
    pub fn add_unseen(&mut self, lost: &Lost, interval_ns: u64) {
        self.unseen_ns += lost.total_ns();
        self.woken_ns += interval_ns;
    }

    /// Adds an interval in which `rows` were late, `by_host` of them by the host.
    pub fn add(&mut self, rows: u64, by_host: u64, lost: &Lost, interval_ns: u64) {
        if rows == 0 {
            return;
        }
        self.rows += rows;
        self.by_host += by_host;
        self.lost.overslept_ns += lost.overslept_ns;
        self.lost.queued_ns += lost.queued_ns;
        self.lost.stolen_ns += lost.stolen_ns;
        self.interval_ns += interval_ns;
    }

    /// What was added since an earlier state.
    #[must_use]
    pub fn since(&self, earlier: &Late) -> Late {
        let lost = |pick: fn(&Lost) -> u64| pick(&self.lost).saturating_sub(pick(&earlier.lost));
        Late {
            rows: self.rows.saturating_sub(earlier.rows),
            by_host: self.by_host.saturating_sub(earlier.by_host),
            lost: Lost {
                overslept_ns: lost(|lost| lost.overslept_ns),
                // A maximum has no difference.
                longest_ns: 0,
                queued_ns: lost(|lost| lost.queued_ns),
                stolen_ns: lost(|lost| lost.stolen_ns),
            },
            interval_ns: self.interval_ns.saturating_sub(earlier.interval_ns),
            unseen_ns: self.unseen_ns.saturating_sub(earlier.unseen_ns),
            woken_ns: self.woken_ns.saturating_sub(earlier.woken_ns),
        }
    }

    /// The sum of two paths.
    #[must_use]
    pub fn with(mut self, other: &Late) -> Late {
        self.add(other.rows, other.by_host, &other.lost, other.interval_ns);
        self.unseen_ns += other.unseen_ns;
        self.woken_ns += other.woken_ns;
        self
    }

    /// Whether the host made most late rows late.
    pub fn is_by_host(&self) -> bool {
        self.by_host * 2 > self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_twice_counts_once() {
        let lost = Lost {
            overslept_ns: 40,
            longest_ns: 15,
            queued_ns: 30,
            stolen_ns: 5,
        };
        assert_eq!((lost.total_ns(), lost.at_once_ns()), (40, 15));
        let awake = Lost {
            overslept_ns: 0,
            longest_ns: 0,
            ..lost
        };
        assert_eq!((awake.total_ns(), awake.at_once_ns()), (35, 35));
    }

    #[test]
    fn intervals_without_late_rows_are_left_out() {
        let lost = Lost {
            queued_ns: 7,
            ..Lost::default()
        };
        let mut late = Late::default();
        late.add(0, 0, &lost, 100);
        assert_eq!(late, Late::default());
        late.add_unseen(&lost, 50);
        late.add(10, 6, &lost, 100);
        assert!(late.is_by_host());
        let both = late.with(&late);
        assert_eq!(
            (both.rows, both.lost.queued_ns, both.interval_ns),
            (20, 14, 200)
        );
        assert_eq!((both.unseen_ns, both.woken_ns), (14, 100));
        let since = both.since(&late);
        assert_eq!(since, late);
        late.add(10, 1, &lost, 100);
        assert!(!late.is_by_host());
    }
}
