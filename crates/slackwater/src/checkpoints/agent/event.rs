//! What agents report to the coordinator.

use serde::{Deserialize, Serialize};
use slackwater_checkpoint::coordinator::Report;
use slackwater_checkpoint::manifest::Part;
use slackwater_engine::counters::CutCounts;

use crate::checkpoints::Suspected;

/// What agents report to the coordinator. Members are named by their index in [`Members`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AgentEvent {
    /// A source has read something.
    Changed,
    /// A member has taken its snapshot.
    Taken {
        /// The barrier.
        barrier: u64,
        /// The member.
        member: usize,
        /// What the member reports.
        report: Report,
        /// How long its instance was paused for the snapshot, in nanoseconds.
        taken_ns: u64,
    },
    /// A member has ended.
    Ended {
        /// The member.
        member: usize,
        /// The last barrier that the member answered.
        last_barrier: u64,
        /// What the member reports.
        report: Report,
    },
    /// The rows that an instance has counted at a barrier, or at its end.
    Counted {
        /// The barrier, or the last one that it has passed.
        barrier: u64,
        /// The instance.
        instance: usize,
        /// Whether the instance has ended.
        has_ended: bool,
        /// The rows since its start.
        counts: CutCounts,
    },
    /// A part is stored.
    Stored {
        /// The barrier.
        barrier: u64,
        /// The member.
        member: usize,
        /// The stored part.
        part: Part,
        /// The longest time for which its instance stopped to copy a slice of it, in nanoseconds.
        longest_ns: u64,
    },
    /// A part could not be stored.
    Failed {
        /// The barrier.
        barrier: u64,
        /// The reason, with the place.
        reason: String,
    },
    /// All sinks of the process have committed what they had prepared up to a barrier.
    Committed {
        /// The barrier.
        barrier: u64,
        /// The members that have prepared something since they started.
        members: Vec<usize>,
        /// The time from the oldest input of each commit to now, in nanoseconds.
        delays_ns: Vec<u64>,
    },
    /// Rows that a process was processing when it died.
    Suspects(Vec<Suspected>),
    /// At its end, what a sink has prepared could not be made durable or committed.
    NotCommitted {
        /// The reason, with the place.
        reason: String,
    },
}

impl AgentEvent {
    /// How long an instance was paused, in nanoseconds, if the event is about that.
    pub fn paused_ns(&self) -> u64 {
        match self {
            AgentEvent::Taken { taken_ns, .. } => *taken_ns,
            AgentEvent::Stored { longest_ns, .. } => *longest_ns,
            _ => 0,
        }
    }
}
