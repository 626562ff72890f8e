//! Snapshots of an aggregation in slices: the operator continues in between.
//!
//! A slice has the groups as they were when the snapshot began. So groups that are about to change, and
//! aren't copied yet, are copied first; and so are all groups of a window that is about to be emitted.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;

use super::Aggregate;
use crate::error::Result;
use crate::state::{Changes, Mark, Sliced, snapshot};

/// A snapshot of which some groups aren't copied yet.
pub struct Open {
    /// The last interval whose changes it has.
    until: Mark,
    /// What is left of each window, by its end in ticks.
    left: BTreeMap<i64, Changes>,
    /// What was copied because it was about to change. With the slices it is no more than a snapshot at
    /// once would have.
    early: Vec<RecordBatch>,
}

impl Aggregate {
    /// Notes that groups of the window at `end` change now.
    pub(super) fn touch(&mut self, end: i64, groups: &[u32]) -> Result<()> {
        let mark = self.clock.mark();
        let Some(table) = self.tables.get_mut(&end) else {
            return Ok(());
        };
        if let Some(open) = &mut self.open
            && let Some(left) = open.left.get(&end)
        {
            let early = table.touched.wanted(groups, left, open.until);
            if !early.is_empty() {
                open.early.push(table.snapshot(end, &early, None)?);
            }
        }
        table.touch(groups, mark);
        Ok(())
    }

    /// Copies what is left of the window at `end`, which is about to be emitted.
    pub(super) fn copy_rest(&mut self, end: i64) -> Result<()> {
        let (Some(open), Some(table)) = (&mut self.open, self.tables.get_mut(&end)) else {
            return Ok(());
        };
        let Some(mut left) = open.left.remove(&end) else {
            return Ok(());
        };
        let chosen = table.touched.next(&mut left, open.until, usize::MAX);
        if !chosen.is_empty() {
            open.early.push(table.snapshot(end, &chosen, None)?);
        }
        Ok(())
    }
}

impl Sliced for Aggregate {
    fn begin(&mut self, since: Mark) -> Mark {
        snapshot::assert_between_inputs(self.firing.is_some());
        let tables = self.tables.iter_mut();
        let left = tables.map(|(&end, table)| (end, table.touched.changes(since)));
        let left = left.collect();
        let until = self.clock.end_interval();
        self.open = Some(Open {
            until,
            left,
            early: Vec::new(),
        });
        until
    }

    fn next(&mut self, entries: usize) -> Result<Option<Vec<RecordBatch>>> {
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        let mut slice = std::mem::take(&mut open.early);
        while let Some(mut first) = open.left.first_entry() {
            let end = *first.key();
            let Some(table) = self.tables.get_mut(&end) else {
                first.remove();
                continue;
            };
            let changes = first.get_mut();
            let chosen = table.touched.next(changes, open.until, entries);
            if changes.is_done() {
                first.remove();
            }
            if !chosen.is_empty() {
                slice.push(table.snapshot(end, &chosen, None)?);
                return Ok(Some(slice));
            }
        }
        if !slice.is_empty() {
            return Ok(Some(slice));
        }
        self.open = None;
        Ok(None)
    }

    fn give_up(&mut self) {
        self.open = None;
    }

    fn layouts(&self) -> usize {
        1
    }
}
