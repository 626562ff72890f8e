//! How latency targets were met.

use serde::Serialize;

/// How a query was tuned for its latency target.
#[derive(Debug, Clone, Serialize)]
pub struct TuningReport {
    /// How long the sources' workers could sleep at the start, as planned; 0 means interrupts.
    pub delay_first_ms: f64,
    /// How long they could sleep at the end.
    pub delay_ms: f64,
    /// The most rows per chunk at the end.
    pub chunk_rows: usize,
    /// The number of corrections.
    pub corrections: u64,
    /// The number of corrections that changed something.
    pub changes: u64,
    /// The number of moves of instances to another worker.
    pub moves: u64,
    /// The largest number of workers in use at once.
    pub workers_used_max: usize,
    /// The CPU time of the workers in % of a core, predicted by the model with measured costs.
    pub predicted_cpu_percent: Option<f64>,
    /// The same as measured, without idle time.
    pub measured_cpu_percent: Option<f64>,
    /// The predicted 99th percentile of the latency.
    pub predicted_p99_ms: Option<f64>,
}
