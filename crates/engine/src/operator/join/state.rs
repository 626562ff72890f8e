//! Snapshots of a window join: a batch per window, side and interval of changes. Two columns come before
//! the side's own: `window_end` (ticks) and `side` (0 left, 1 right).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type};
use arrow_array::{ArrayRef, BooleanArray, Int8Array, Int64Array, RecordBatch};

use super::WindowJoin;
use crate::error::Result;
use crate::key::KeyColumns;
use crate::operator::window::ticks_to_us;
use crate::state::{BucketSet, Clock, KeyedState, Mark, Sliced, snapshot};
use crate::time::EventTime;

impl WindowJoin {
    /// The rows of `batch` (of side `side`) that belong to `buckets`.
    fn rows_in(
        &self,
        side: usize,
        batch: &RecordBatch,
        buckets: &BucketSet,
    ) -> Result<RecordBatch> {
        let keys = KeyColumns::of_batch(batch, self.spec.sides[side].placed_by())?;
        let keep = keys
            .hashes()
            .iter()
            .map(|&hash| Some(buckets.contains_hash(hash)));
        let keep = keep.collect::<BooleanArray>();
        Ok(arrow_select::filter::filter_record_batch(batch, &keep)?)
    }
}

impl KeyedState for WindowJoin {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        snapshot::assert_between_inputs(self.firing.is_some());
        let mut batches = Vec::new();
        for (&end, sides) in &self.windows {
            for (side, kept) in sides.iter().enumerate() {
                // Marks only grow.
                let first = kept.batches.partition_point(|(mark, _)| *mark <= since);
                for (_, batch) in &kept.batches[first..] {
                    let batch = self.rows_in(side, batch, buckets)?;
                    let rows = batch.num_rows();
                    if rows == 0 {
                        continue;
                    }
                    let ends: ArrayRef = Arc::new(Int64Array::from(vec![end; rows]));
                    let sides: ArrayRef = Arc::new(Int8Array::from(vec![side as i8; rows]));
                    let own = [("window_end", ends, false), ("side", sides, false)];
                    batches.push(snapshot::with_own(own, &batch)?);
                }
            }
        }
        Ok(batches)
    }

    fn sliced(&mut self) -> Option<&mut dyn Sliced> {
        None
    }

    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        let wrong = || snapshot::wrong("a window join", "its columns are not those of a side");
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let column = |index: usize| batch.columns().get(index).ok_or_else(wrong);
        let end = column(0)?
            .as_primitive_opt::<Int64Type>()
            .ok_or_else(wrong)?
            .value(0);
        let side = column(1)?
            .as_primitive_opt::<Int8Type>()
            .ok_or_else(wrong)?
            .value(0);
        let side = usize::try_from(side)
            .ok()
            .filter(|&side| side < 2)
            .ok_or_else(wrong)?;
        let schema = self.spec.sides[side].schema.clone();
        let rows = RecordBatch::try_new(schema, batch.columns()[2..].to_vec())?;
        self.keep(side, end, rows)
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        let keep = BucketSet::of(|bucket| !buckets.contains(bucket));
        let mut windows = std::mem::take(&mut self.windows);
        for sides in windows.values_mut() {
            for (side, kept) in sides.iter_mut().enumerate() {
                for (_, batch) in &mut kept.batches {
                    *batch = self.rows_in(side, batch, &keep)?;
                }
                kept.batches.retain(|(_, batch)| batch.num_rows() > 0);
            }
        }
        windows.retain(|_, sides| sides.iter().any(|kept| !kept.batches.is_empty()));
        self.windows = windows;
        Ok(())
    }

    fn drop_emitted(&mut self, watermark: EventTime) -> Result<()> {
        let unit = self.spec.windows.unit;
        self.windows
            .retain(|&end, _| ticks_to_us(end, unit) > watermark);
        Ok(())
    }

    fn publish(&mut self, _cut: u64) -> bool {
        false
    }
}
