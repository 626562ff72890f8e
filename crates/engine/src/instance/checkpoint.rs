//! What an instance does at the barrier of a checkpoint: it notes what it has, and goes on.

use std::collections::BTreeMap;

use super::{Instance, InstanceInput, Notice, Step};
use crate::barrier::{Barrier, Purpose};
use crate::checkpoint::{PartitionState, Prepared, Snapshot, StateSnapshot};
use crate::error::Result;
use crate::state::{BucketSet, Mark};
use crate::time::{EventTime, MAX_WATERMARK, now_ns};

/// An instance's part in checkpoints.
#[derive(Default)]
pub(super) struct Member {
    /// Its number in the deployment, where it takes part at all.
    pub number: Option<u32>,
    /// Where state stood at the barriers that a later snapshot may build upon.
    marks: BTreeMap<u64, Mark>,
    last_barrier: u64,
    /// A source has said that there is something behind its last barrier.
    has_told_change: bool,
    /// Its head operator has other buckets than it began with.
    pub has_moved: bool,
    /// What sinks have prepared at the end.
    pub prepared: Vec<Prepared>,
}

impl Instance {
    /// It takes part in checkpoints, as instance `number` of the deployment.
    pub fn take_part(&mut self, number: u32) {
        self.member.number = Some(number);
    }

    /// Goes on where a checkpoint was taken: `watermark` is what its inputs had come to.
    pub fn resume(&mut self, watermark: Option<EventTime>) {
        if let (Some(ports), Some(watermark)) = (self.input.ports(), watermark) {
            ports.resume(watermark);
        }
    }

    /// Whether a source sends this barrier: one of a checkpoint doesn't concern tables, which are read
    /// again.
    pub(super) fn sends(&self, barrier: &Barrier) -> bool {
        matches!(barrier.purpose, Purpose::Move { .. }) || self.member.number.is_some()
    }

    /// The source has read something.
    pub(super) fn has_read(&mut self) {
        let member = &mut self.member;
        if member.number.is_some() && !std::mem::replace(&mut member.has_told_change, true) {
            self.notices.push(Notice::Changed);
        }
    }

    /// All inputs have come to the barrier of a checkpoint.
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
            ..Snapshot::default()
        };
        let is_base = bases.binary_search(&number).is_ok();
        snapshot.state = self.snapshot_state(barrier, since.filter(|_| !is_base), since)?;
        snapshot.prepared = self.prepare()?;
        self.member.last_barrier = barrier;
        self.member.has_told_change = false;
        self.notices.push(Notice::Snapshot(Box::new(snapshot)));
        Ok(())
    }

    /// What it has to say of its end.
    pub fn last_snapshot(&mut self) -> Option<Box<Snapshot>> {
        self.member.number?;
        Some(Box::new(Snapshot {
            barrier: self.member.last_barrier,
            // It has emitted all that it had.
            watermark: Some(MAX_WATERMARK),
            partitions: self.partitions(),
            state: None,
            prepared: std::mem::take(&mut self.member.prepared),
        }))
    }

    fn watermark(&self) -> Option<EventTime> {
        match &self.input {
            InstanceInput::Source(intake) => intake.watermark(),
            InstanceInput::Links(ports) | InstanceInput::Head(ports, _) => ports.watermark(),
        }
    }

    fn partitions(&mut self) -> Vec<PartitionState> {
        match &mut self.input {
            InstanceInput::Source(intake) => intake.partition_states(),
            InstanceInput::Links(_) | InstanceInput::Head(..) => Vec::new(),
        }
    }

    /// The head's state, or what of it has changed `since` a barrier; `kept` is the last barrier that a
    /// later snapshot may build upon, beside this one.
    fn snapshot_state(
        &mut self,
        barrier: u64,
        since: Option<u64>,
        kept: Option<u64>,
    ) -> Result<Option<StateSnapshot>> {
        let has_moved = self.member.has_moved;
        let marks = &self.member.marks;
        // Without a mark for it everything has changed.
        let mark = since.and_then(|since| marks.get(&since)).copied();
        let begin_ns = now_ns();
        let Some(head) = self.head() else {
            return Ok(None);
        };
        let bytes = head.operator.bytes();
        let Some(state) = head.operator.state() else {
            return Ok(None);
        };
        let batches = state.snapshot(&BucketSet::all(), mark.unwrap_or_default())?;
        let ended = state.mark();
        let marks = &mut self.member.marks;
        marks.retain(|&of, _| kept.is_some_and(|kept| of >= kept));
        marks.insert(barrier, ended);
        Ok(Some(StateSnapshot {
            since: since.filter(|_| mark.is_some()),
            batches,
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
