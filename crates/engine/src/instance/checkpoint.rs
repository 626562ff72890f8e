//! What an instance does at the barrier of a checkpoint: it records its state, and continues.

use std::collections::BTreeMap;

use super::{Instance, InstanceInput, Notice, Step, slices};
use crate::barrier::{Barrier, Purpose};
use crate::checkpoint::{PartitionState, Prepared, Snapshot, StateSnapshot};
use crate::counters::CutCounts;
use crate::error::Result;
use crate::intake::PartitionSeen;
use crate::state::{BucketSet, Mark};
use crate::time::{EventTime, MAX_WATERMARK, now_ns};

/// An instance's checkpointing state.
#[derive(Default)]
pub(super) struct Member {
    /// The instance's number in the deployment, if it is checkpointed.
    pub number: Option<u32>,
    /// Marks of the state at the barriers that a later snapshot may build upon.
    marks: BTreeMap<u64, Mark>,
    last_barrier: u64,
    /// Whether the source has reported that it has read something since its last barrier.
    has_told_change: bool,
    /// Whether the head operator has other buckets than it started with.
    pub has_moved: bool,
    /// Whether the head operator's state is kept after the end of the input.
    pub keeps_state: bool,
    /// What sinks have prepared at the end.
    pub prepared: Vec<Prepared>,
    /// A snapshot that is being taken in slices.
    pub open: Option<slices::Open>,
}

impl Instance {
    /// Makes the instance checkpointed, as number `number` of the deployment.
    pub fn take_part(&mut self, number: u32) {
        self.member.number = Some(number);
    }

    /// Resumes from a checkpoint: `watermark` is the one that its inputs had reached.
    pub fn resume(&mut self, watermark: Option<EventTime>) {
        if let (Some(ports), Some(watermark)) = (self.input.ports(), watermark) {
            ports.resume(watermark);
        }
    }

    /// Whether a source sends this barrier: barriers of checkpoints don't concern tables, which are read
    /// again.
    pub(super) fn sends(&self, barrier: &Barrier) -> bool {
        let is_checkpoint = matches!(barrier.purpose, Purpose::Checkpoint { .. });
        !is_checkpoint || self.member.number.is_some()
    }

    /// Notes that the source has read something.
    pub(super) fn has_read(&mut self) {
        let member = &mut self.member;
        if member.number.is_some() && !std::mem::replace(&mut member.has_told_change, true) {
            self.notices.push(Notice::Changed);
        }
    }

    /// Takes a snapshot, once all inputs have reached the barrier of a checkpoint.
    pub(super) fn snapshot(
        &mut self,
        barrier: u64,
        since: Option<u64>,
        bases: &[u32],
    ) -> Result<()> {
        let Some(number) = self.member.number else {
            return Ok(());
        };
        let mut snapshot = Snapshot {
            barrier,
            watermark: self.watermark(),
            partitions: self.partitions(),
            counts: CutCounts::of(&self.counters),
            ..Snapshot::default()
        };
        // The snapshot before it was not stored in time.
        if self.has_open_snapshot() {
            self.give_up_slices();
        }
        let is_base = bases.binary_search(&number).is_ok();
        snapshot.state = self.snapshot_state(barrier, since.filter(|_| !is_base), since)?;
        snapshot.prepared = self.prepare()?;
        self.member.last_barrier = barrier;
        self.member.has_told_change = false;
        self.notices.push(Notice::Snapshot(Box::new(snapshot)));
        Ok(())
    }

    /// The snapshot at the instance's end. Only views still have state then.
    ///
    /// # Errors
    ///
    /// When the state can't be copied.
    pub fn last_snapshot(&mut self) -> Result<Option<Box<Snapshot>>> {
        if self.member.number.is_none() {
            return Ok(None);
        }
        let begin_ns = now_ns();
        let has_moved = self.member.has_moved;
        let keeps_state = self.member.keeps_state;
        let head = self.head().filter(|_| keeps_state);
        let bytes = head.as_ref().map_or(0, |head| head.operator.bytes());
        let state = head.and_then(|head| head.operator.state());
        let batches = state.map(|state| state.snapshot(&BucketSet::all(), Mark::default()));
        let state = batches.transpose()?.map(|batches| StateSnapshot {
            since: None,
            layouts: batches.len(),
            batches,
            slices: None,
            has_moved,
            bytes,
            taken_ns: now_ns() - begin_ns,
        });
        Ok(Some(Box::new(Snapshot {
            barrier: self.member.last_barrier,
            // It has emitted everything.
            watermark: Some(MAX_WATERMARK),
            partitions: self.partitions(),
            state,
            prepared: std::mem::take(&mut self.member.prepared),
            counts: CutCounts::of(&self.counters),
        })))
    }

    fn watermark(&self) -> Option<EventTime> {
        match &self.input {
            InstanceInput::Source(intake) => intake.watermark(),
            InstanceInput::Links(ports) | InstanceInput::Head(ports, _) => ports.watermark(),
        }
    }

    /// What is known of the partitions of the source; `None` if the instance reads none.
    pub fn examine(&self) -> Option<Vec<PartitionSeen>> {
        match &self.input {
            InstanceInput::Source(intake) => Some(intake.examine()),
            InstanceInput::Links(_) | InstanceInput::Head(..) => None,
        }
    }

    fn partitions(&mut self) -> Vec<PartitionState> {
        match &mut self.input {
            InstanceInput::Source(intake) => intake.partition_states(),
            InstanceInput::Links(_) | InstanceInput::Head(..) => Vec::new(),
        }
    }

    /// The head's state, or what has changed in it `since` a barrier; `kept` is the last other barrier
    /// that a later snapshot may build upon.
    fn snapshot_state(
        &mut self,
        barrier: u64,
        since: Option<u64>,
        kept: Option<u64>,
    ) -> Result<Option<StateSnapshot>> {
        let has_moved = self.member.has_moved;
        let marks = &self.member.marks;
        // Without a mark, everything counts as changed.
        let mark = since.and_then(|since| marks.get(&since)).copied();
        let begin_ns = now_ns();
        let Some(head) = self.head() else {
            return Ok(None);
        };
        let bytes = head.operator.bytes();
        let Some(state) = head.operator.state() else {
            return Ok(None);
        };
        let (ended, batches, slices, layouts) = match state.sliced() {
            Some(sliced) => {
                let layouts = sliced.layouts();
                let begun = slices::begin(sliced, mark.unwrap_or_default())?;
                let (open, slices) = begun.open.unzip();
                self.member.open = open;
                (begun.mark, begun.batches, slices, layouts)
            }
            None => {
                let batches = state.snapshot(&BucketSet::all(), mark.unwrap_or_default())?;
                (state.clock().end_interval(), batches, None, 0)
            }
        };
        let marks = &mut self.member.marks;
        marks.retain(|&number, _| kept.is_some_and(|kept| number >= kept));
        marks.insert(barrier, ended);
        Ok(Some(StateSnapshot {
            since: since.filter(|_| mark.is_some()),
            batches,
            slices,
            layouts,
            has_moved,
            bytes,
            taken_ns: now_ns() - begin_ns,
        }))
    }

    fn prepare(&mut self) -> Result<Vec<Prepared>> {
        let mut prepared = Vec::new();
        for placed in &mut self.steps {
            if let Step::Sink(sink) = &mut placed.step {
                let (number, node) = (placed.number, placed.node);
                prepared.extend(sink.prepare(number, node, &self.counters)?);
            }
        }
        Ok(prepared)
    }
}
