//! How many hosts a query wants, from what its processes have used: the readings between two looks.
//!
//! Nothing is read but when somebody looks, and once at the end, so that a silent query stays silent (I7).

use serde::Serialize;
use slackwater_control::wanted::{Limits, Load, Reason, Wanted};

/// Looks that follow each other faster are taken together.
const INTERVAL_MIN_NS: u64 = 1_000_000_000;

/// A target is missed in an interval if it was for this share of it.
const LATE_SHARE: f64 = 0.1;

/// What the processes of an incarnation have counted so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostsReading {
    /// The CPU time of processes on hosts that are to be used.
    pub cpu_s: f64,
    /// Rows that have left through sinks.
    pub rows_out: u64,
    /// How long a sink has missed its target.
    pub violated_ns: u64,
    /// Rows that were taken from links.
    pub taken: u64,
    /// Rows that wait on links.
    pub waiting: u64,
}

/// What an incarnation runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    /// The hosts that are to be used.
    pub hosts: usize,
    /// Their cores.
    pub cores: f64,
    /// The most hosts on which it could run something.
    pub useful: usize,
}

/// The hosts of a query, for those who start and stop hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HostsKnown {
    /// How many hosts the query wants.
    pub wanted: usize,
    /// Why, in a word.
    pub reason: &'static str,
    /// How many hosts it runs on.
    pub used: usize,
    /// How many hosts are there, used or not.
    pub joined: usize,
    /// At least so many are wanted.
    pub min: usize,
    /// At most so many.
    pub max: usize,
}

/// The number of hosts that is wanted, over all incarnations.
pub struct Wishes {
    limits: Limits,
    wanted: Wanted,
    used: Used,
    last: HostsReading,
    last_ns: u64,
    /// Whether the last rows that left were late: windows let none leave for a while.
    is_late: bool,
    /// Whether somebody has looked: then the end, when hosts are idle, doesn't count.
    was_looked_at: bool,
}

impl Wishes {
    /// Nothing is known.
    pub fn new(limits: Limits) -> Wishes {
        Wishes {
            limits,
            wanted: Wanted::new(limits),
            used: Used::default(),
            last: HostsReading::default(),
            last_ns: 0,
            is_late: false,
            was_looked_at: false,
        }
    }

    /// An incarnation begins.
    pub fn begin(&mut self, at_ns: u64, used: Used) {
        self.wanted.begin(at_ns, used.hosts);
        (self.used, self.last, self.last_ns) = (used, HostsReading::default(), at_ns);
        self.is_late = false;
    }

    /// Somebody looks at what has been counted.
    pub fn look(&mut self, at_ns: u64, reading: HostsReading) {
        self.was_looked_at = true;
        self.read(at_ns, reading);
    }

    /// The incarnation has ended; returns the number of hosts that are wanted, `None` if it was too short to
    /// say.
    pub fn end(&mut self, at_ns: u64, reading: HostsReading) -> Option<usize> {
        if !self.was_looked_at {
            self.read(at_ns, reading);
        }
        let (hosts, reason) = self.wanted.now();
        (reason != Reason::Unknown).then_some(hosts)
    }

    /// What is known; `joined` hosts are there.
    pub fn known(&self, joined: usize) -> HostsKnown {
        let (wanted, reason) = self.wanted.now();
        HostsKnown {
            wanted,
            reason: reason.word(),
            used: self.used.hosts,
            joined,
            min: self.limits.min,
            max: self.limits.max,
        }
    }

    fn read(&mut self, at_ns: u64, reading: HostsReading) {
        let interval_ns = at_ns.saturating_sub(self.last_ns);
        if interval_ns < INTERVAL_MIN_NS || self.used.hosts == 0 || self.used.cores <= 0.0 {
            return;
        }
        let last = std::mem::replace(&mut self.last, reading);
        self.last_ns = at_ns;
        let interval_s = interval_ns as f64 / 1e9;
        // A process that didn't answer in time counts as before.
        let cpu_s = (reading.cpu_s - last.cpu_s).max(0.0);
        let violated_s = reading.violated_ns.saturating_sub(last.violated_ns) as f64 / 1e9;
        let taken_per_s = reading.taken.saturating_sub(last.taken) as f64 / interval_s;
        if reading.rows_out != last.rows_out {
            self.is_late = violated_s > interval_s * LATE_SHARE;
        }
        let load = Load {
            hosts: self.used.hosts,
            useful: self.used.useful,
            busy: cpu_s / interval_s / self.used.cores,
            is_late: self.is_late,
            backlog_s: match reading.waiting {
                0 => 0.0,
                waiting => waiting as f64 / taken_per_s,
            },
        };
        self.wanted.look(at_ns, &load);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn wishes() -> Wishes {
        let mut wishes = Wishes::new(Limits {
            min: 1,
            max: 3,
            more_after_ns: 10 * S,
            fewer_after_ns: 20 * S,
        });
        let used = Used {
            hosts: 1,
            cores: 2.0,
            useful: 3,
        };
        wishes.begin(S, used);
        wishes
    }

    fn used(cpu_s: f64) -> HostsReading {
        HostsReading {
            cpu_s,
            ..HostsReading::default()
        }
    }

    #[test]
    fn cpu_time_is_compared_with_the_cores_of_the_hosts() {
        let mut wishes = wishes();
        for second in 2..20 {
            wishes.look(second * S, used((second - 1) as f64 * 1.9));
        }
        let known = wishes.known(1);
        assert_eq!((known.wanted, known.reason, known.used), (2, "busy", 1));
        assert_eq!(
            wishes.end(21 * S, used(99.0)),
            Some(2),
            "the end doesn't count"
        );
    }

    #[test]
    fn looks_that_follow_each_other_closely_are_one() {
        let mut wishes = wishes();
        for tenth in 1..200 {
            // All of the CPU time falls into every tenth look.
            let cpu_s = (tenth / 10) as f64 * 1.2;
            wishes.look(S + tenth * S / 10, used(cpu_s));
        }
        assert_eq!(wishes.known(1).wanted, 1);
    }

    #[test]
    fn a_run_that_nobody_looked_at_is_judged_as_a_whole_and_a_short_one_is_not() {
        assert_eq!(wishes().end(61 * S, used(110.0)), Some(2));
        assert_eq!(wishes().end(61 * S, used(12.0)), Some(1));
        assert_eq!(wishes().end(S + S / 2, used(1.0)), None);
    }

    #[test]
    fn rows_that_nobody_takes_are_a_backlog_and_no_rows_are_none() {
        let mut wishes = wishes();
        for second in 2..30 {
            let reading = HostsReading {
                taken: second * 1_000,
                waiting: second * second * 100,
                ..used((second - 1) as f64)
            };
            wishes.look(second * S, reading);
        }
        assert_eq!(wishes.known(1).reason, "backlog");
        let mut idle = self::wishes();
        idle.look(9 * S, HostsReading::default());
        assert_eq!((idle.known(1).wanted, idle.known(1).reason), (1, "idle"));
    }

    #[test]
    fn a_missed_target_wants_more_also_while_no_rows_leave() {
        let mut wishes = wishes();
        for second in 2..30 {
            let reading = HostsReading {
                rows_out: second / 5 * 100,
                violated_ns: second / 5 * S / 2,
                ..used((second - 1) as f64)
            };
            wishes.look(second * S, reading);
        }
        assert_eq!(
            (wishes.known(1).wanted, wishes.known(1).reason),
            (2, "late")
        );
    }
}
