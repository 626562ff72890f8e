//! Snapshots of a join of two streams: those of its sides ([`KeyedRows`]), each batch with a column
//! `side` in front.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, Int8Array, RecordBatch};

use super::ChangelogJoin;
use crate::error::{Error, Result};
use crate::state::{BucketSet, Clock, KeyedState, Mark, Sliced, snapshot};
use crate::time::EventTime;

fn wrong() -> Error {
    snapshot::wrong("a join", "its first column is not a side of the join")
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
                let side: ArrayRef = Arc::new(Int8Array::from(vec![side as i8; batch.num_rows()]));
                batches.push(snapshot::with_own([("side", side, false)], &batch)?);
            }
        }
        Ok(batches)
    }

    fn sliced(&mut self) -> Option<&mut dyn Sliced> {
        None
    }

    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let side = batch.columns().first();
        let side = side.and_then(|column| column.as_primitive_opt::<Int8Type>());
        let side = side.ok_or_else(wrong)?.value(0);
        let rows = batch.project(&(1..batch.num_columns()).collect::<Vec<_>>())?;
        match side {
            0 | 1 => self.sides[side as usize].restore(&rows, self.clock.mark()),
            _ => Err(wrong()),
        }
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        self.sides.iter_mut().for_each(|side| side.discard(buckets));
        Ok(())
    }

    fn drop_emitted(&mut self, watermark: EventTime) -> Result<()> {
        self.retention.advance(watermark);
        Ok(())
    }
}
