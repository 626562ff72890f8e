//! Snapshots of a view in slices. A snapshot shares the buckets as they were when it began, so what changes
//! meanwhile needs no care.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::{Bucket, View};
use crate::error::Result;
use crate::state::{BucketSet, Mark, Sliced};

/// A snapshot of which some buckets aren't copied yet.
pub(super) struct Open {
    since: Mark,
    /// The removed rows, unless they are taken.
    gone: Option<Result<RecordBatch>>,
    left: VecDeque<Arc<Bucket>>,
}

impl Sliced for View {
    fn begin(&mut self, since: Mark) -> Mark {
        self.forget_gone(since);
        let all = BucketSet::all();
        let has_gone = since > Mark::default();
        let gone = has_gone.then(|| self.stored(self.gone(&all, since)));
        let left = self.buckets.iter().filter(|bucket| bucket.changed > since);
        let left = left.cloned().collect();
        self.open = Some(Open { since, gone, left });
        self.clock.end_interval()
    }

    fn next(&mut self, entries: usize) -> Result<Option<Vec<RecordBatch>>> {
        let Some(mut open) = self.open.take() else {
            return Ok(None);
        };
        let mut slice = Vec::new();
        let gone = open.gone.take().transpose()?;
        slice.extend(gone.filter(|gone| gone.num_rows() > 0));
        let mut chosen = Vec::new();
        let mut looked_at = 0;
        while looked_at < entries
            && let Some(bucket) = open.left.pop_front()
        {
            looked_at += bucket.len();
            chosen.push(bucket);
        }
        let rows = chosen.iter().flat_map(|bucket| bucket.rows());
        let rows = rows.filter(|row| row.stamp.mark > open.since);
        let batch = self.stored(rows.map(|row| (row.stamp.count, row.row)))?;
        slice.extend(Some(batch).filter(|batch| batch.num_rows() > 0));
        let is_last = open.left.is_empty() && slice.is_empty();
        self.open = Some(open).filter(|_| !is_last);
        Ok(Some(slice).filter(|_| !is_last))
    }

    fn give_up(&mut self) {
        self.open = None;
    }

    fn layouts(&self) -> usize {
        1
    }
}
