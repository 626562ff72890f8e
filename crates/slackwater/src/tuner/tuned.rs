//! The results of tuning.

use slackwater_control::latency::lateness::Late;

/// The results of tuning, for the report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tuned {
    /// The first delay that was permitted, in nanoseconds.
    pub delay_first_ns: u64,
    /// The last delay that was permitted, in nanoseconds; `None` if nothing was tuned.
    pub delay_ns: Option<u64>,
    /// Whether workers choose how to wait by these delays; they do not if `wait` is set.
    pub chooses_wait: bool,
    /// The rows per chunk at the end.
    pub chunk_rows: usize,
    /// The number of corrections.
    pub corrections: u64,
    /// The number of corrections that changed something.
    pub changes: u64,
    /// The number of moves of instances to another worker.
    pub moves: u64,
    /// The largest number of workers in use at once.
    pub workers_used_max: usize,
    /// The CPU time per second and the p99 in nanoseconds, predicted with measured costs.
    pub predicted: Option<(f64, f64)>,
    /// The measured CPU time of the workers per second, without idle time.
    pub measured_cores: Option<f64>,
    /// The rows that were late, and by what.
    pub late: Late,
}
