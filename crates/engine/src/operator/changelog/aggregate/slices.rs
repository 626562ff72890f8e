//! Snapshots of an updating aggregation in slices, as those of [`crate::operator::aggregate`]: groups that
//! are about to change, and aren't copied yet, are copied first; all of them if they get new numbers.

use arrow_array::RecordBatch;

use super::UpdatingAggregate;
use crate::error::Result;
use crate::state::{Changes, Mark, Sliced};

/// A snapshot of which some groups aren't copied yet.
pub struct Open {
    /// The last interval whose changes it has.
    until: Mark,
    /// Whether it has everything, so that groups that are gone need no mention.
    is_full: bool,
    left: Changes,
    /// What was copied because it was about to change. With the slices it is no more than a snapshot at
    /// once would have.
    early: Vec<RecordBatch>,
}

impl UpdatingAggregate {
    /// The groups that a snapshot mentions.
    pub(super) fn mentioned(&self, mut groups: Vec<u32>, is_full: bool) -> Vec<u32> {
        if is_full && !self.stays_empty() {
            groups.retain(|&group| self.table.of_group[group as usize].rows > 0);
        }
        groups
    }

    /// Copies those of `self.groups` that an open snapshot wants: they change now.
    pub(super) fn copy_early(&mut self) -> Result<()> {
        let Some(open) = &self.open else {
            return Ok(());
        };
        let touched = &self.table.touched;
        let early = touched.wanted(&self.groups, &open.left, open.until);
        let early = self.mentioned(early, open.is_full);
        self.copy(&early)
    }

    /// Copies all that is left of an open snapshot: the groups get other numbers now.
    pub(super) fn copy_rest(&mut self) -> Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let touched = &mut self.table.touched;
        let rest = touched.next(&mut open.left, open.until, usize::MAX);
        let is_full = open.is_full;
        let rest = self.mentioned(rest, is_full);
        self.copy(&rest)
    }

    fn copy(&mut self, groups: &[u32]) -> Result<()> {
        if let (Some(open), false) = (&mut self.open, groups.is_empty()) {
            open.early.push(self.table.rows(groups)?);
        }
        Ok(())
    }
}

impl Sliced for UpdatingAggregate {
    fn begin(&mut self, since: Mark) -> Mark {
        self.saved = self.saved.max(since);
        let left = self.table.touched.changes(since);
        let until = self.clock.end_interval();
        self.open = Some(Open {
            until,
            is_full: since == Mark::default(),
            left,
            early: Vec::new(),
        });
        until
    }

    fn next(&mut self, entries: usize) -> Result<Option<Vec<RecordBatch>>> {
        loop {
            let Some(open) = &mut self.open else {
                return Ok(None);
            };
            if !open.left.is_done() {
                let touched = &mut self.table.touched;
                let chosen = touched.next(&mut open.left, open.until, entries);
                let is_full = open.is_full;
                let chosen = self.mentioned(chosen, is_full);
                self.copy(&chosen)?;
            } else if open.early.is_empty() {
                self.open = None;
                return Ok(None);
            }
            if let Some(open) = &mut self.open
                && !open.early.is_empty()
            {
                return Ok(Some(std::mem::take(&mut open.early)));
            }
        }
    }

    fn give_up(&mut self) {
        self.open = None;
    }

    fn layouts(&self) -> usize {
        1
    }
}
