//! The activity of a process between two looks, as plain data.
//!
//! Idle instances are left out. The size is
//! bounded: a hundred bytes for each worker and instance, and for each instance of a sink at most one pair of
//! numbers for each of its latency slots.

use serde::{Deserialize, Serialize};

/// The activity of one process since the last look.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// The process's number.
    pub process: usize,
    /// The time since the last look, in nanoseconds.
    pub interval_ns: u64,
    /// The time that the hypervisor took from each of its cores on average, in nanoseconds. Counted once per
    /// second.
    #[serde(default)]
    pub stolen_ns: u64,
    /// The activity of all its workers.
    pub workers: Vec<WorkerSeen>,
    /// The activity of the instances that were not idle.
    pub instances: Vec<InstanceSeen>,
    /// The latencies of sinks that wrote rows.
    pub sinks: Vec<SinkSeen>,
    /// What links to other processes carried, for those that this process sends on.
    pub links: Vec<LinkSeen>,
    /// The largest fill of each source's buffer, 0 to 1, by node; without empty ones.
    pub fills: Vec<(usize, f64)>,
}

/// The activity of one worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSeen {
    /// The worker, by its number in the deployment.
    pub worker: usize,
    /// Time between waits, in nanoseconds.
    pub busy_ns: u64,
    /// The number of waits after which there was work.
    pub activations: u64,
    /// The number of timed sleeps.
    pub sleeps: u64,
    /// By how much sleeps exceeded their time that were held up, in nanoseconds.
    #[serde(default)]
    pub overslept_ns: u64,
    /// The largest part of that which a single sleep had, in nanoseconds.
    #[serde(default)]
    pub overslept_longest_ns: u64,
    /// The CPU time of its thread in nanoseconds; `None` if the system doesn't count it.
    pub cpu_ns: Option<u64>,
    /// How long its thread was ready to run while another had its core, in nanoseconds.
    #[serde(default)]
    pub queued_ns: u64,
}

/// The activity of one instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceSeen {
    /// The instance, by its number in the deployment.
    pub instance: usize,
    /// The number of records that its source has read.
    pub rows_in: u64,
    /// The number of chunks from its source or from links.
    pub chunks: u64,
    /// The number of rows from its source or from links.
    pub rows_taken: u64,
    /// Whether they came from a source.
    pub reads: bool,
    /// The time that it worked, in nanoseconds.
    pub busy_ns: u64,
}

/// The latencies of rows that left a sink.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkSeen {
    /// The sink's node in the query graph.
    pub node: usize,
    /// Latencies in nanoseconds, and how many rows had them.
    pub latencies: Vec<(u64, u64)>,
}

/// What a link to another process carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSeen {
    /// The link, by its number in the deployment.
    pub link: usize,
    /// The number of rows.
    pub rows: u64,
    /// The bytes of all frames.
    pub bytes: u64,
}

impl InstanceSeen {
    /// The activity of an instance that was idle since the last look, but may have read before.
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
