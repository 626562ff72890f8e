//! How many hosts a query wants, from what was measured between looks at it.
//!
//! The rule is that of Kubernetes' horizontal pod autoscaler: hosts × measured share / wished share,
//! rounded up, unless the two shares are within a tolerance of each other; then a window of stabilization in
//! each direction. More hosts are wanted only if each proposal of the shorter window is larger, and fewer
//! only if each proposal of the longer one is smaller. (Kubernetes documentation, "Horizontal Pod
//! Autoscaling", algorithm details and stabilization window.)
//!
//! Three things are added, because this rule is told more than a share:
//! - A target that is missed, or rows that wait ever longer, want one more host, if the hosts are busy
//!   enough for that to help.
//! - While that lasts, no host is given up.
//! - Hosts on which nothing could run are not wanted.
//!
//! The rule settles: with the same work in total, the number that it proposes is proposed again once the
//! query has it.

use std::collections::VecDeque;

/// The wished share of the cores: workers that are busier are relieved
/// ([`crate::latency::elastic::SPREAD_ABOVE`]).
pub const BUSY_WISHED: f64 = 0.7;

/// Deviations of this share change nothing; as in Kubernetes.
pub const TOLERANCE: f64 = 0.1;

/// What is late on hosts with less to do than this is not late for want of hosts.
pub const BUSY_HELPED: f64 = 0.3;

/// Rows that wait for longer than this are a backlog, in seconds.
pub const BACKLOG_S: f64 = 1.0;

/// The most proposals that are kept: one a second in windows of an hour, 24 bytes each. Further ones replace
/// the last.
pub const KEPT_MAX: usize = 3_600;

/// The limits of the number, and the windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// At least so many hosts are wanted.
    pub min: usize,
    /// At most so many.
    pub max: usize,
    /// How long more hosts have to be proposed, in nanoseconds.
    pub more_after_ns: u64,
    /// How long fewer hosts have to be proposed, in nanoseconds.
    pub fewer_after_ns: u64,
}

/// What was measured between two looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// The hosts that the query used.
    pub hosts: usize,
    /// The most hosts on which it could run something.
    pub useful: usize,
    /// The CPU time that it used, as a share of what the cores of these hosts had.
    pub busy: f64,
    /// Whether a sink missed its latency target.
    pub is_late: bool,
    /// How long rows that wait between instances would take at the present rate, in seconds.
    pub backlog_s: f64,
}

/// Why a number of hosts is proposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Nothing was measured yet.
    Unknown,
    /// The share of the cores is as wished.
    Fits,
    /// The hosts are busier than wished.
    Busy,
    /// The hosts are less busy than wished.
    Idle,
    /// A latency target was missed.
    Late,
    /// Rows wait ever longer.
    Backlog,
}

impl Reason {
    /// The reason in a word, for programs.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Unknown => "unknown",
            Reason::Fits => "fits",
            Reason::Busy => "busy",
            Reason::Idle => "idle",
            Reason::Late => "late",
            Reason::Backlog => "backlog",
        }
    }
}

/// The number of hosts that a query wants.
#[derive(Debug, Clone)]
pub struct Wanted {
    limits: Limits,
    hosts: usize,
    reason: Reason,
    backlog_s: f64,
    kept: VecDeque<Proposal>,
}

/// What a look has proposed.
#[derive(Debug, Clone, Copy)]
struct Proposal {
    at_ns: u64,
    hosts: usize,
}

impl Wanted {
    /// Wants as few hosts as there may be, until more is known.
    pub fn new(limits: Limits) -> Wanted {
        Wanted {
            limits,
            hosts: limits.min,
            reason: Reason::Unknown,
            backlog_s: 0.0,
            kept: VecDeque::new(),
        }
    }

    /// The number of hosts, and why.
    pub fn now(&self) -> (usize, Reason) {
        (self.hosts, self.reason)
    }

    /// The query begins to run on `hosts`, for the first time or with other hosts: it keeps them until the
    /// windows are over.
    pub fn begin(&mut self, at_ns: u64, hosts: usize) {
        let hosts = hosts.clamp(self.limits.min, self.limits.max);
        if self.kept.is_empty() {
            self.hosts = hosts;
        }
        self.keep(Proposal { at_ns, hosts });
        self.backlog_s = 0.0;
    }

    /// Takes what was measured until `at_ns`, and returns the number of hosts that are wanted from then on.
    pub fn look(&mut self, at_ns: u64, load: &Load) -> usize {
        let Limits {
            min,
            max,
            more_after_ns,
            fewer_after_ns,
        } = self.limits;
        let (proposed, reason) = self.propose(load);
        self.keep(Proposal {
            at_ns,
            hosts: proposed.clamp(min, max),
        });
        let longest_ns = more_after_ns.max(fewer_after_ns);
        self.kept
            .retain(|kept| at_ns.saturating_sub(kept.at_ns) < longest_ns.max(1));
        let within = |window_ns: u64| {
            // The last one always counts.
            let kept = self.kept.iter();
            let recent =
                kept.filter(move |kept| at_ns.saturating_sub(kept.at_ns) < window_ns.max(1));
            recent.map(|kept| kept.hosts)
        };
        let more = within(more_after_ns).min().unwrap_or(self.hosts);
        let fewer = within(fewer_after_ns).max().unwrap_or(self.hosts);
        let hosts = match self.hosts {
            now if now < more => more,
            now if now > fewer => fewer,
            now => now,
        };
        if hosts != self.hosts || self.reason == Reason::Unknown || hosts == proposed {
            self.reason = reason;
        }
        self.hosts = hosts;
        hosts
    }

    fn propose(&mut self, load: &Load) -> (usize, Reason) {
        let hosts = load.hosts.max(1);
        let busy = if load.busy.is_finite() {
            load.busy.max(0.0)
        } else {
            0.0
        };
        let ratio = busy / BUSY_WISHED;
        let by_share = match (ratio - 1.0).abs() <= TOLERANCE {
            true => hosts,
            // A share is at most 1 but for errors of measurement.
            false => (hosts as f64 * ratio.min(2.0)).ceil() as usize,
        };
        let grows = load.backlog_s >= BACKLOG_S && load.backlog_s > self.backlog_s;
        self.backlog_s = load.backlog_s;
        let is_helped = busy >= BUSY_HELPED;
        let useful = load.useful.max(hosts);
        let troubled = match (load.is_late, grows) {
            (true, _) => Some(Reason::Late),
            (false, true) => Some(Reason::Backlog),
            (false, false) => None,
        };
        match (troubled, is_helped) {
            (Some(reason), true) if by_share <= hosts => ((hosts + 1).min(useful), reason),
            (Some(_), false) => (hosts, Reason::Fits),
            _ if by_share > hosts => (by_share.min(useful), Reason::Busy),
            _ if by_share < hosts => (by_share.max(1), Reason::Idle),
            _ => (hosts, Reason::Fits),
        }
    }

    fn keep(&mut self, proposal: Proposal) {
        if self.kept.len() == KEPT_MAX {
            self.kept.pop_back();
        }
        self.kept.push_back(proposal);
    }
}

#[cfg(test)]
mod tests;
