//! What threads and processes cost.

use serde::Serialize;

/// What a worker thread cost.
#[derive(Debug, Clone, Serialize)]
pub struct ThreadReport {
    /// CPU time, from the operating system; `null` if the system doesn't count it.
    pub cpu_s: Option<f64>,
    /// The time between waits.
    pub busy_s: f64,
    /// Waits after which there was work.
    pub activations: u64,
    /// Timed sleeps.
    pub sleeps: u64,
    /// Timed sleeps that a wake-up ended early.
    pub sleeps_ended_early: u64,
    /// Waits for a wake-up.
    pub parks: u64,
    /// How often it changed between sleeping and waiting to be woken.
    pub mode_changes: u64,
    /// The requested time of all sleeps.
    pub asked_ms: f64,
    /// The actual time of all sleeps.
    pub slept_ms: f64,
}

/// A worker process.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessReport {
    /// The process's number.
    pub process: usize,
    /// The process id.
    pub pid: u32,
    /// CPU time of all its threads.
    pub cpu_s: f64,
    /// The process's largest resident size.
    pub peak_rss_bytes: u64,
    /// Voluntary context switches of all its threads.
    pub wakeups: u64,
    /// How often the process was asked for its activity, for a latency target.
    pub looks: u64,
    /// How often one of its workers was told how to wait, or a source how to cut its rows into chunks.
    pub settings: u64,
}
