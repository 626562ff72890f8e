//! What a process has done between two looks, as plain data.
//!
//! What did nothing is left out. The size is bounded: a hundred bytes for each worker and instance, and for
//! each instance of a sink at most one pair of numbers for each of its latency slots.

use serde::{Deserialize, Serialize};

/// What one process has done since it was looked at last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// The process's number.
    pub process: usize,
    /// How long it is since, in nanoseconds.
    pub interval_ns: u64,
    /// All of its workers.
    pub workers: Vec<WorkerSeen>,
    /// Its instances that did something.
    pub instances: Vec<InstanceSeen>,
    /// Its sinks with a latency target that rows left.
    pub sinks: Vec<SinkSeen>,
    /// How full the buffers of sources were at most, 0 to 1, by node; those that were not empty.
    pub fills: Vec<(usize, f64)>,
}

/// What one worker has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSeen {
    /// The worker, by its number in the deployment.
    pub worker: usize,
    /// Time between waits, in nanoseconds.
    pub busy_ns: u64,
    /// Waits after which there was something to do.
    pub activations: u64,
    /// Timed sleeps.
    pub sleeps: u64,
    /// CPU time of its thread, in nanoseconds; `None` where the system doesn't count it.
    pub cpu_ns: Option<u64>,
}

/// What one instance has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceSeen {
    /// The instance, by its number in the deployment.
    pub instance: usize,
    /// Records that its source has read.
    pub rows_in: u64,
    /// Chunks that it took from its source or from links.
    pub chunks: u64,
    /// Rows that it took from its source or from links.
    pub rows_taken: u64,
    /// Whether it has taken them from a source.
    pub reads: bool,
    /// Time that it spent on its work, in nanoseconds.
    pub busy_ns: u64,
}

/// How late rows left a sink.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkSeen {
    /// The sink's node in the query graph.
    pub node: usize,
    /// Latencies in nanoseconds, and how many rows had them.
    pub latencies: Vec<(u64, u64)>,
}

impl InstanceSeen {
    /// An instance that did nothing since the last look, but may have read before.
    pub(super) fn nothing(like: &InstanceSeen) -> InstanceSeen {
        InstanceSeen {
            instance: like.instance,
            reads: like.reads,
            ..InstanceSeen::default()
        }
    }
}

impl Seen {
    /// Whether nothing was done.
    pub fn is_silent(&self) -> bool {
        let rows = self.instances.iter().map(|instance| instance.rows_in);
        rows.sum::<u64>() == 0 && self.workers.iter().all(|worker| worker.activations == 0)
    }
}
