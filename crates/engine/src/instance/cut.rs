//! What an instance does at a barrier ([`crate::barrier`]). If the barrier moves buckets of the head
//! operator, the instance hands state over, waits for the state that it receives, and only then forwards
//! the barrier.

use arrow_array::RecordBatch;

use super::{Control, Head, Instance, InstanceInput};
use crate::barrier::{Barrier, Handover, Purpose};
use crate::checkpoint::Snapshot;
use crate::error::Result;
use crate::state::{BucketSet, Mark};

/// A barrier, and the instances whose state is still missing.
pub(super) struct Cut {
    barrier: Barrier,
    missing: Vec<usize>,
}

/// What an instance reports to the control path.
#[derive(Debug)]
pub enum Notice {
    /// State for another instance.
    Handover(Handover, Vec<RecordBatch>),
    /// The instance's part in a move of buckets is done.
    Moved {
        /// The barrier's number.
        barrier: u64,
    },
    /// A snapshot at the barrier of a checkpoint.
    Snapshot(Box<Snapshot>),
    /// A source has read something since the last barrier that it sent.
    Changed,
    /// The operators of the process hold more than they may. Reported once.
    OverBudget {
        /// How much they hold, in bytes.
        held: u64,
        /// How much they may hold, in bytes.
        limit: u64,
    },
}

impl Instance {
    /// Makes a source send a barrier as soon as it can; has no effect on other instances.
    pub fn request(&mut self, barrier: Barrier) {
        let is_source = matches!(self.input, InstanceInput::Source(_));
        if is_source && !self.ended && self.sends(&barrier) {
            self.requested.push_back(barrier);
        }
    }

    /// Takes state that another instance has handed over.
    ///
    /// # Errors
    ///
    /// When the head operator can't restore it.
    pub fn take_over(&mut self, handover: Handover, state: Vec<RecordBatch>) -> Result<()> {
        match &mut self.cut {
            Some(cut) if cut.barrier.number == handover.barrier => {
                cut.missing.retain(|&giver| giver != handover.from);
            }
            _ => {
                self.early.push((handover, state));
                return Ok(());
            }
        }
        if let Some(kept) = self.head().and_then(|head| head.operator.state()) {
            state.iter().try_for_each(|batch| kept.restore(batch))?;
        }
        self.leave_cut()
    }

    /// The notices since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// The head operator, if it keeps state.
    pub(super) fn head(&mut self) -> Option<&mut Head> {
        match &mut self.input {
            InstanceInput::Head(_, head) => Some(head),
            InstanceInput::Source(_) | InstanceInput::Links(_) => None,
        }
    }

    /// Acts on a barrier that all inputs have reached.
    pub(super) fn reach(&mut self, barrier: Barrier) -> Result<()> {
        let node = match barrier.purpose {
            Purpose::Move { node, .. } => node,
            Purpose::Checkpoint {
                since,
                ref bases,
                stops,
            } => {
                self.snapshot(barrier.number, since, bases)?;
                self.control(Control::Barrier(barrier))?;
                if stops {
                    self.stop();
                }
                return Ok(());
            }
            Purpose::Publish => {
                if let Some(state) = self.head().and_then(|head| head.operator.state()) {
                    state.publish(barrier.number);
                }
                return self.control(Control::Barrier(barrier));
            }
        };
        let index = self.index;
        let mut missing = Vec::new();
        if self.has_open_snapshot() {
            self.give_up_slices();
        }
        if let Some(head) = self.head().filter(|head| head.node == node) {
            let mut leaving = Vec::new();
            if let Some(state) = head.operator.state() {
                for to in barrier.takers(index) {
                    let moves = barrier.moves_of(node).iter().filter(|step| {
                        (usize::from(step.from), usize::from(step.to)) == (index, to)
                    });
                    let moved = moves.map(|step| usize::from(step.bucket));
                    let moved = BucketSet::from_iter(moved);
                    let batches = state.snapshot(&moved, Mark::default())?;
                    state.discard(&moved)?;
                    let handover = Handover {
                        barrier: barrier.number,
                        node,
                        from: index,
                        to,
                    };
                    leaving.push(Notice::Handover(handover, batches));
                }
            }
            self.member.has_moved = true;
            missing = barrier.givers(index);
            self.notices.append(&mut leaving);
        }
        self.cut = Some(Cut { barrier, missing });
        // State for later barriers is put back.
        for (handover, state) in std::mem::take(&mut self.early) {
            self.take_over(handover, state)?;
        }
        self.leave_cut()
    }

    /// Forwards the barrier if no state is missing.
    fn leave_cut(&mut self) -> Result<()> {
        match self.cut.take() {
            Some(cut) if cut.missing.is_empty() => {
                let moves = |head: &mut Head| !cut.barrier.moves_of(head.node).is_empty();
                if self.head().is_some_and(moves) {
                    let barrier = cut.barrier.number;
                    self.notices.push(Notice::Moved { barrier });
                }
                self.control(Control::Barrier(cut.barrier))
            }
            cut => {
                self.cut = cut;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
