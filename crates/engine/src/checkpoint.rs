//! Checkpoints: what an instance records at a cut, and what it starts with when a query is restored.
//!
//! The barrier that makes the cut is in [`crate::barrier`]; what an instance does there is in
//! `instance/checkpoint.rs`; storing is not the engine's business.
//!
//! Invariants:
//! - A snapshot is what the rows before the cut have made, on every instance, and nothing else (Carbone,
//!   Ewen and others, "Lightweight Asynchronous Snapshots for Distributed Dataflows", section 4).
//! - Nothing waits for a checkpoint: an instance continues as soon as it has copied its state, or, of a
//!   large state, the first slice.
//! - The instances after a table's side of a join are not checkpointed: tables are read again.

use std::sync::mpsc::Receiver;

use arrow_array::RecordBatch;

use crate::counted::Counted;
use crate::counters::CutCounts;
use crate::error::Result;
use crate::operator::Stateful;
use crate::source::Resume;
use crate::state::{BucketSet, KeyedState, Mark, expire};
use crate::time::EventTime;

/// What an instance records at a cut.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The barrier's number; at the end of an instance, that of the last barrier that it has passed, or
    /// zero.
    pub barrier: u64,
    /// The instance's watermark; `None` before the first.
    pub watermark: Option<EventTime>,
    /// How far the source has been read.
    pub partitions: Vec<PartitionState>,
    /// The state of the head operator.
    pub state: Option<StateSnapshot>,
    /// What the sinks have prepared since the barrier before.
    pub prepared: Vec<Prepared>,
    /// The rows that the instance has counted since its start.
    pub counts: CutCounts,
}

/// How far a partition of a source has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionState {
    /// Where the source resumes.
    pub resume: Resume,
    /// The partition's watermark; `None` before its first row.
    pub watermark: Option<EventTime>,
    /// What was counted of the partition's rows; `None` if an earlier version has stored the checkpoint.
    pub counted: Option<Box<Counted>>,
}

/// The most slices of a snapshot that wait for the store, of some 2 MB each: enough for a disk that pauses
/// for the time of a few slices.
pub const SLICES_MAX: usize = 4;

/// A slice of an operator's state.
#[derive(Debug)]
pub enum Slice {
    /// Some entries.
    Rows(Vec<RecordBatch>),
    /// There are no more. A snapshot without it is incomplete.
    End {
        /// The longest time for which the instance stopped to copy a slice, in nanoseconds.
        longest_ns: u64,
    },
}

/// The state of an operator.
#[derive(Debug)]
pub struct StateSnapshot {
    /// The barrier since which the snapshot holds changes; `None` if it holds everything.
    pub since: Option<u64>,
    /// The state, as [`crate::state::KeyedState::restore`] takes it.
    pub batches: Vec<RecordBatch>,
    /// Further slices of the state, which follow as they are copied.
    pub slices: Option<Receiver<Slice>>,
    /// How many kinds of batches there are at most, with different columns, among all that follow.
    pub layouts: usize,
    /// Whether buckets have moved since the instance started, so that it has others than it started with.
    pub has_moved: bool,
    /// The memory that the whole state takes, in bytes.
    pub bytes: usize,
    /// How long the instance stopped at the barrier, in nanoseconds.
    pub taken_ns: u64,
}

/// Output that a sink has prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// The sink's node in the query graph.
    pub node: usize,
    /// The handle that commits it ([`crate::sink::SinkCheckpoints::commit`]).
    pub commit: String,
    /// When the oldest input of its rows entered the engine, on the clock of [`crate::time::now_ns`];
    /// `None` without rows.
    pub ingest_ns: Option<u64>,
}

/// One instance's snapshots in the order in which they were taken: a full one, then the changes.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    /// The batches of each snapshot.
    pub snapshots: Vec<Vec<RecordBatch>>,
    /// The instance's watermark at the last of them.
    pub watermark: Option<EventTime>,
    /// Whether it also holds keys of other instances than the one that is restored.
    pub is_shared: bool,
}

/// Restores an operator's state for the buckets `own` from the chains of their previous owners; `make`
/// makes another operator like it. Returns the smallest of the owners' watermarks.
///
/// # Errors
///
/// When a snapshot is not of such an operator.
pub fn restore(
    state: &mut dyn KeyedState,
    make: &dyn Fn() -> Result<Box<dyn Stateful>>,
    chains: Vec<Chain>,
    own: &BucketSet,
) -> Result<Option<EventTime>> {
    // Nothing else joins the entries of an only chain.
    let is_only = chains.len() == 1;
    let mut least: Option<EventTime> = None;
    let mut is_shared = false;
    let mut is_first = true;
    for chain in chains {
        is_shared |= chain.is_shared;
        least = match (least, chain.watermark, is_first) {
            (Some(least), Some(watermark), _) => Some(least.min(watermark)),
            (_, watermark, true) => watermark,
            _ => None,
        };
        is_first = false;
        if is_only || chain.snapshots.len() == 1 {
            let batches = chain.snapshots.iter().flatten();
            batches
                .into_iter()
                .try_for_each(|batch| state.restore(batch))?;
            continue;
        }
        // An earlier snapshot still holds entries that were dropped later. Which ones depends on the
        // watermark of the instance that had them, so they are dropped before entries of other instances
        // join them.
        let mut alone = make()?;
        let Some(of_one) = alone.state() else {
            return Ok(None);
        };
        for batch in chain.snapshots.iter().flatten() {
            of_one.restore(batch)?;
        }
        if let Some(watermark) = chain.watermark {
            expire(of_one, watermark)?;
        }
        let left = of_one.snapshot(own, Mark::default())?;
        left.iter().try_for_each(|batch| state.restore(batch))?;
    }
    if is_shared {
        state.discard(&BucketSet::of(|bucket| !own.contains(bucket)))?;
    }
    if let Some(watermark) = least {
        expire(state, watermark)?;
    }
    Ok(least)
}
