//! What came of keeping latency targets.

use serde::Serialize;

/// How a query was kept to its latency target.
#[derive(Debug, Clone, Serialize)]
pub struct TuningReport {
    /// How long the sources' workers could sleep at first, as planned; 0 is interrupts.
    pub delay_first_ms: f64,
    /// How long they could at last.
    pub delay_ms: f64,
    /// Rows per chunk at most, at last.
    pub chunk_rows: usize,
    /// Corrections.
    pub corrections: u64,
    /// Those that changed something.
    pub changes: u64,
    /// Instances that went to another worker.
    pub moves: u64,
    /// The most workers that were in use at once.
    pub workers_used_max: usize,
    /// Predicted by the model with what was learned: CPU time of the workers in % of a core.
    pub predicted_cpu_percent: Option<f64>,
    /// The same as measured, while something was done.
    pub measured_cpu_percent: Option<f64>,
    /// Predicted: latency that 99 of 100 rows keep.
    pub predicted_p99_ms: Option<f64>,
}
