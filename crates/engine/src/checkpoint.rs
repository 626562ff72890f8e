//! Checkpoints: what an instance says at a cut, and what it begins with when a query is restored.
//!
//! The barrier that makes the cut is in [`crate::barrier`]; what an instance does there in
//! `instance/checkpoint.rs`; storing is not the engine's business.
//!
//! Invariants:
//! - A snapshot is what the rows before the cut have made, on every instance, and nothing else (Carbone,
//!   Ewen and others, "Lightweight Asynchronous Snapshots for Distributed Dataflows", section 4).
//! - Nothing is waited for: an instance goes on as soon as it has copied its state.
//! - What is behind a table's side of a join takes no part: tables are read again.

use arrow_array::RecordBatch;

use crate::error::Result;
use crate::operator::Stateful;
use crate::source::Resume;
use crate::state::{BucketSet, KeyedState, Mark};
use crate::time::EventTime;

/// What an instance has at a cut.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The barrier; at the end of an instance the last one that it had answered, zero for none.
    pub barrier: u64,
    /// Its watermark; none before the first.
    pub watermark: Option<EventTime>,
    /// How far a source was read.
    pub partitions: Vec<PartitionState>,
    /// The state of its head operator.
    pub state: Option<StateSnapshot>,
    /// What its sinks have prepared since the barrier before.
    pub prepared: Vec<Prepared>,
}

/// How far a partition of a source was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionState {
    /// Where the source goes on.
    pub resume: Resume,
    /// Its watermark; none before its first row.
    pub watermark: Option<EventTime>,
}

/// State of an operator.
#[derive(Debug, Clone)]
pub struct StateSnapshot {
    /// The barrier since which it holds what has changed; none for everything.
    pub since: Option<u64>,
    /// It ([`crate::state::KeyedState::restore`] takes it).
    pub batches: Vec<RecordBatch>,
    /// Buckets have moved since the instance began: it has others than those it began with.
    pub has_moved: bool,
    /// What the whole state takes in memory, in bytes.
    pub bytes: usize,
    /// How long the instance stood still for it, in nanoseconds.
    pub taken_ns: u64,
}

/// What a sink has prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// The sink's node in the query graph.
    pub node: usize,
    /// What commits it ([`crate::sink::SinkCheckpoints::commit`]).
    pub commit: String,
    /// When the oldest input of its rows entered the engine, on the clock of
    /// [`crate::time::now_ns`]; none without rows.
    pub ingest_ns: Option<u64>,
}

/// One instance's snapshots in the order in which they were taken: everything, then what changed.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    /// The batches of each snapshot.
    pub snapshots: Vec<Vec<RecordBatch>>,
    /// The instance's watermark at the last of them.
    pub watermark: Option<EventTime>,
    /// It holds keys of other instances than the one that is restored, too.
    pub is_shared: bool,
}

/// Gives an operator the state of the buckets `own` from the chains of those who had them; `make` makes
/// another operator like it. Returns the least watermark that they had.
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
        if let [only] = &chain.snapshots[..] {
            only.iter().try_for_each(|batch| state.restore(batch))?;
            continue;
        }
        // What was dropped between two snapshots is in the earlier one still. Which entries these are
        // the watermark of their own instance says, so they are sorted out before they meet others.
        let mut alone = make()?;
        let Some(of_one) = alone.state() else {
            return Ok(None);
        };
        for batch in chain.snapshots.iter().flatten() {
            of_one.restore(batch)?;
        }
        if let Some(watermark) = chain.watermark {
            of_one.expire(watermark)?;
        }
        let left = of_one.snapshot(own, Mark::default())?;
        left.iter().try_for_each(|batch| state.restore(batch))?;
    }
    if is_shared {
        state.discard(&BucketSet::of(|bucket| !own.contains(bucket)))?;
    }
    if let Some(watermark) = least {
        state.expire(watermark)?;
    }
    Ok(least)
}
