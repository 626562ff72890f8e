//! What checkpoints cost, for the report and for those who look.

use super::Coordinator;
use crate::metrics::CheckpointCounts;
use crate::report::{CheckpointReport, CommitDelay};

impl Coordinator {
    /// The counts of this incarnation.
    pub fn counts(&self) -> CheckpointCounts {
        let costs = self.costs();
        CheckpointCounts {
            stored: costs.stored,
            aborted: costs.aborted,
            total_ns: costs.total_ns,
            bytes: costs.bytes,
            last: self.stored_at,
            standby: None,
        }
    }
}

impl From<&Coordinator> for CheckpointReport {
    fn from(coordinator: &Coordinator) -> CheckpointReport {
        let (costs, delays) = (coordinator.costs(), coordinator.delays());
        let ms = |ns: u64| ns as f64 / 1e6;
        CheckpointReport {
            stored: costs.stored,
            aborted: costs.aborted,
            last: coordinator.last(),
            bytes: costs.bytes,
            duration_ms: (costs.stored > 0).then(|| ms(costs.total_ns) / costs.stored as f64),
            duration_max_ms: ms(costs.longest_ns),
            stall_max_ms: ms(coordinator.stall_max_ns()),
            commit_delay_ms: (delays.count > 0).then(|| CommitDelay {
                mean: ms(delays.sum_ns) / delays.count as f64,
                max: ms(delays.max_ns),
            }),
        }
    }
}
