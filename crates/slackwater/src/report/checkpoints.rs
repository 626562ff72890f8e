//! What checkpoints cost.

use serde::Serialize;

use super::count;

/// What checkpoints cost, in the last incarnation.
#[derive(Debug, Clone, Serialize)]
pub struct CheckpointReport {
    /// Checkpoints that were stored.
    pub stored: u64,
    /// Checkpoints that were abandoned.
    pub aborted: u64,
    /// The number of the last one, this run's or an earlier one's.
    pub last: Option<u64>,
    /// Bytes of state that were stored.
    pub bytes: u64,
    /// The average time from the barrier to the stored checkpoint.
    pub duration_ms: Option<f64>,
    /// The longest of those.
    pub duration_max_ms: f64,
    /// The longest pause of an instance to copy its state.
    pub stall_max_ms: f64,
    /// How long rows of transactional sinks waited for their commit; `null` without any.
    pub commit_delay_ms: Option<CommitDelay>,
}

/// The time from the arrival of the oldest row of a commit to the commit.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CommitDelay {
    /// The average.
    pub mean: f64,
    /// The maximum.
    pub max: f64,
}

impl CheckpointReport {
    pub(super) fn summary(
        &self,
        restored_from: Option<u64>,
        restarts: u64,
        rescales: u64,
    ) -> String {
        let mut text = match self.stored {
            1 => "1 checkpoint".to_string(),
            stored => format!("{} checkpoints", count(stored)),
        };
        if let Some(ms) = self.duration_ms {
            let stall_ms = self.stall_max_ms;
            text.push_str(&format!(
                ", {ms:.1} ms each, stalls of at most {stall_ms:.1} ms"
            ));
        }
        if let Some(delay) = &self.commit_delay_ms {
            text.push_str(&format!(", rows committed after {:.0} ms", delay.mean));
        }
        if let Some(number) = restored_from {
            text.push_str(&format!("; resumed from checkpoint {number}"));
        }
        text.push_str(&match rescales {
            0 => String::new(),
            1 => "; went on with other hosts once".to_string(),
            times => format!("; went on with other hosts {times} times"),
        });
        text.push_str(&match restarts {
            0 => String::new(),
            1 => "; restarted once".to_string(),
            times => format!("; restarted {times} times"),
        });
        text
    }
}
