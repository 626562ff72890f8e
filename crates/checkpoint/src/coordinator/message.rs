//! The inputs and outputs of a coordinator.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Flight;
use crate::manifest::{Manifest, Part, Partition};

/// A member's report for a cut.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    /// A source's partitions, and how far each was read.
    pub partitions: Vec<Partition>,
    /// The member's watermark; `None` before the first one.
    pub watermark: Option<i64>,
    /// Everything that a sink has prepared and not committed, including that of earlier barriers.
    pub pending: Vec<Value>,
    /// Parts that it is storing, each of which is announced with [`Input::PartStored`].
    pub parts: usize,
    /// The size of its state in memory.
    pub memory: u64,
}

/// An event for the coordinator.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// A source has read something after the last barrier that it sent. May be repeated at any time.
    Changed,
    /// The query should stop: one more checkpoint is taken as soon as possible, with or without changes, and
    /// the sources end after its barrier. No barrier follows it.
    Stop,
    /// Buckets of this node are about to move between its instances. Sent before they do, and not while a
    /// checkpoint is in flight.
    Moved {
        /// The node's key.
        node: String,
    },
    /// A member has taken its snapshot, and continues while its parts are stored.
    Done {
        /// The barrier.
        barrier: u64,
        /// The member.
        member: usize,
        /// What it says.
        report: Report,
    },
    /// A part is stored: one that was asked for, or, before it, a base as of the last stored checkpoint,
    /// which a standby has made ([`super::Coordinator::set_relayed`]). The member's report counts both.
    PartStored {
        /// The barrier.
        barrier: u64,
        /// The member.
        member: usize,
        /// The part, as the store has described it.
        part: Part,
    },
    /// Taking a snapshot or storing a part or the manifest has failed. It is unknown whether the manifest is
    /// stored.
    Failed {
        /// The barrier.
        barrier: u64,
        /// The reason, with the place.
        reason: String,
    },
    /// A member has ended, after its last row.
    Ended {
        /// The member.
        member: usize,
        /// The last barrier that it answered with [`Input::Done`]; zero if none. For later barriers this
        /// report is its answer. (Messages may overtake each other.)
        last_barrier: u64,
        /// What it says.
        report: Report,
    },
    /// The manifest is stored.
    ManifestStored {
        /// The barrier.
        barrier: u64,
    },
    /// A sink has committed everything up to this barrier.
    Committed {
        /// The barrier.
        barrier: u64,
        /// The member.
        member: usize,
    },
    /// An instance or a process has failed: this incarnation takes no more checkpoints.
    Lost {
        /// Why.
        reason: String,
    },
    /// The store reports that a later incarnation has started.
    Fenced {
        /// Who.
        reason: String,
    },
}

/// An action for the caller.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Every source sends the barrier, and every member takes a snapshot at it.
    Inject {
        /// The barrier.
        barrier: u64,
        /// Members that don't write a base take a snapshot of what has changed since this barrier, the last
        /// one whose checkpoint was stored. That includes what changed since later barriers.
        since: Option<u64>,
        /// Members that write a base.
        bases: Vec<usize>,
        /// Whether sources end after it ([`Input::Stop`]); nobody would answer a later one.
        stops: bool,
    },
    /// Store the manifest; the store sets its number and epoch.
    Store(Box<Manifest>),
    /// Sinks commit everything that they prepared up to this barrier. Committing again does nothing.
    Commit {
        /// The barrier.
        barrier: u64,
    },
    /// The checkpoint is aborted; sinks keep what they prepared for it.
    Abort {
        /// The barrier.
        barrier: u64,
        /// The reason; `None` if the query has ended meanwhile, because its last checkpoint contains
        /// everything.
        reason: Option<String>,
    },
    /// Old checkpoints may be removed ([`crate::CheckpointWriter::sweep`]), now or later.
    Sweep,
    /// All rows are committed: the query is finished.
    Finished,
    /// The query can't continue.
    Stop {
        /// Why.
        reason: String,
    },
}

/// The cost of checkpoints, in sums over those that were stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Costs {
    /// Checkpoints that were stored.
    pub stored: u64,
    /// Checkpoints that were aborted.
    pub aborted: u64,
    /// Parts that were stored.
    pub parts: u64,
    /// Bases among the parts.
    pub bases: u64,
    /// Bytes of the parts.
    pub bytes: u64,
    /// The time from the barrier to the last snapshot.
    pub align_ns: u64,
    /// The time from the barrier to the stored manifest.
    pub total_ns: u64,
    /// The longest of the latter times.
    pub longest_ns: u64,
}

impl Costs {
    pub(super) fn add(&mut self, flight: &Flight, now_ns: u64) {
        let total_ns = now_ns.saturating_sub(flight.begun_ns);
        let aligned_ns = flight.aligned_ns.unwrap_or(now_ns);
        self.stored += 1;
        self.align_ns += aligned_ns.saturating_sub(flight.begun_ns);
        self.total_ns += total_ns;
        self.longest_ns = self.longest_ns.max(total_ns);
        self.parts += flight.parts.len() as u64;
        let bases = flight.parts.iter().filter(|(_, part)| part.since.is_none());
        self.bases += bases.count() as u64;
        self.bytes += flight.parts.iter().map(|(_, part)| part.bytes).sum::<u64>();
    }
}
