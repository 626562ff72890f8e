//! What a coordinator is told, and what it says.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Flight;
use crate::manifest::{Manifest, Part, Partition};

/// What a member says of its cut.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    /// A source's partitions: those that it reads, and how far it was.
    pub partitions: Vec<Partition>,
    /// Its watermark; none before the first.
    pub watermark: Option<i64>,
    /// Everything that a sink has prepared and not committed, from earlier barriers too.
    pub pending: Vec<Value>,
    /// Parts that it is storing, each of which is announced with [`Input::PartStored`].
    pub parts: usize,
    /// What its state takes in memory.
    pub memory: u64,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// A source has read something that is behind the barrier that it sent last. May come as often as
    /// one likes.
    Changed,
    /// The query is to be stopped: one more checkpoint as soon as possible, changes or not, behind whose
    /// barrier the sources end. No barrier follows it.
    Stop,
    /// Buckets of this node are about to move between its instances: said before they do, and not while a
    /// checkpoint is in flight.
    Moved {
        /// The node's key.
        node: String,
    },
    /// A member has taken its snapshot, and goes on while its parts are stored.
    Done {
        /// The barrier.
        barrier: u64,
        /// The member.
        member: usize,
        /// What it says.
        report: Report,
    },
    /// A part is stored.
    PartStored {
        /// The barrier.
        barrier: u64,
        /// The member.
        member: usize,
        /// The part, as the store has described it.
        part: Part,
    },
    /// A snapshot, a part or the manifest can't be had. It is not known whether the manifest is stored.
    Failed {
        /// The barrier.
        barrier: u64,
        /// Why; names the place.
        reason: String,
    },
    /// A member has ended, after its last row.
    Ended {
        /// The member.
        member: usize,
        /// The last barrier that it answered with [`Input::Done`]; zero for none. For later ones this
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
    /// An instance or a process has failed: there will be no more checkpoints from this incarnation.
    Lost {
        /// Why.
        reason: String,
    },
    /// The store says that a later incarnation has begun.
    Fenced {
        /// Who.
        reason: String,
    },
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Every source sends the barrier, and every member snapshots at it.
    Inject {
        /// The barrier.
        barrier: u64,
        /// Members that are no base snapshot what has changed since this barrier: the last one that was
        /// stored. What changed since later ones is in it, too.
        since: Option<u64>,
        /// Members that snapshot everything.
        bases: Vec<usize>,
        /// Sources end behind it ([`Input::Stop`]); nobody would answer a later one.
        stops: bool,
    },
    /// The manifest is to be stored; its number and epoch are the store's.
    Store(Box<Manifest>),
    /// Sinks commit everything that they prepared up to this barrier. Committing again what is committed
    /// does nothing.
    Commit {
        /// The barrier.
        barrier: u64,
    },
    /// The checkpoint is given up; sinks keep what they prepared for it.
    Abort {
        /// The barrier.
        barrier: u64,
        /// Why; none where the query has ended meanwhile, whose last checkpoint says it all.
        reason: Option<String>,
    },
    /// What is old may be removed ([`crate::CheckpointWriter::sweep`]), now or later.
    Sweep,
    /// All rows are committed: the query has come to its end.
    Finished,
    /// The query can't go on.
    Stop {
        /// Why.
        reason: String,
    },
}

/// What checkpoints have cost, in sums over those that were stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Costs {
    /// Checkpoints that were stored.
    pub stored: u64,
    /// Checkpoints that were given up.
    pub aborted: u64,
    /// Parts, and how many of them were bases.
    pub parts: u64,
    /// Bases among the parts.
    pub bases: u64,
    /// Bytes of the parts.
    pub bytes: u64,
    /// From the barrier to the last snapshot.
    pub align_ns: u64,
    /// From the barrier to the stored manifest.
    pub total_ns: u64,
    /// The longest of those.
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
