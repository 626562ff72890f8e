//! Snapshots of a join of two streams: those of its sides ([`KeyedRows`]), each batch with a column
//! `side` in front.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, Int8Array, RecordBatch};

use super::{ChangelogJoin, KeyedRows, Touch};
use crate::error::{Error, Result};
use crate::state::{BucketSet, Clock, KeyedState, Mark, Sliced, snapshot};
use crate::time::EventTime;

fn wrong() -> Error {
    snapshot::wrong("a join", "its first column is not a side of the join")
}

fn of_side(side: usize, batch: &RecordBatch) -> Result<RecordBatch> {
    let side: ArrayRef = Arc::new(Int8Array::from(vec![side as i8; batch.num_rows()]));
    snapshot::with_own([("side", side, false)], batch)
}

impl KeyedState for ChangelogJoin {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        snapshot::assert_between_inputs(self.pending.is_some());
        let mut batches = Vec::new();
        for (side, rows) in self.sides.iter_mut().enumerate() {
            if let Some(batch) = rows.snapshot(buckets, since)? {
                batches.push(of_side(side, &batch)?);
            }
        }
        Ok(batches)
    }

    fn sliced(&mut self) -> Option<&mut dyn Sliced> {
        Some(self)
    }

    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let side = batch.columns().first();
        let side = side.and_then(|column| column.as_primitive_opt::<Int8Type>());
        let side = side.ok_or_else(wrong)?.value(0);
        let rows = batch.project(&(1..batch.num_columns()).collect::<Vec<_>>())?;
        let (mark, at) = (self.clock.mark(), self.retention.early());
        match side {
            0 | 1 => self.sides[side as usize].restore(&rows, Touch { mark, at }),
            _ => Err(wrong()),
        }
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        self.sides.iter_mut().for_each(|side| side.discard(buckets));
        Ok(())
    }

    fn drop_emitted(&mut self, watermark: EventTime) -> Result<()> {
        self.begin_retention(watermark);
        self.retention.advance(watermark);
        Ok(())
    }

    fn publish(&mut self, _cut: u64) -> bool {
        false
    }
}

impl Sliced for ChangelogJoin {
    fn begin(&mut self, since: Mark) -> Mark {
        snapshot::assert_between_inputs(self.pending.is_some());
        let until = self.clock.end_interval();
        let sides = self.sides.iter_mut();
        sides.for_each(|side| side.begin_slices(since, until));
        until
    }

    fn next(&mut self, entries: usize) -> Result<Option<Vec<RecordBatch>>> {
        for (side, rows) in self.sides.iter_mut().enumerate() {
            if let Some(slice) = rows.next_slice(entries)? {
                let slice = slice.iter().map(|batch| of_side(side, batch));
                return slice.collect::<Result<Vec<RecordBatch>>>().map(Some);
            }
        }
        Ok(None)
    }

    fn give_up(&mut self) {
        self.sides.iter_mut().for_each(KeyedRows::give_up_slices);
    }

    fn layouts(&self) -> usize {
        self.sides.len()
    }
}
