//! Snapshots of a window join: a batch per window, side and interval of changes. Two columns stand
//! before the side's own: `window_end` (ticks) and `side` (0 left, 1 right).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type};
use arrow_array::{ArrayRef, BooleanArray, Int8Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

use super::WindowJoin;
use crate::error::{Error, Result};
use crate::key::KeyColumns;
use crate::operator::window::ticks_to_us;
use crate::state::{BucketSet, KeyedState, Mark};
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
    fn mark(&mut self) -> Mark {
        let ended = self.mark;
        self.mark = Mark(ended.0 + 1);
        ended
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        assert!(
            self.firing.is_none(),
            "a snapshot is taken between inputs: these rows would be lost"
        );
        let mut snapshot = Vec::new();
        for (&end, sides) in &self.windows {
            for (side, kept) in sides.iter().enumerate() {
                for (_, batch) in kept.batches.iter().filter(|(mark, _)| *mark > since) {
                    let batch = self.rows_in(side, batch, buckets)?;
                    let rows = batch.num_rows();
                    if rows == 0 {
                        continue;
                    }
                    let mut columns: Vec<ArrayRef> = vec![
                        Arc::new(Int64Array::from(vec![end; rows])),
                        Arc::new(Int8Array::from(vec![side as i8; rows])),
                    ];
                    columns.extend(batch.columns().iter().cloned());
                    let mut fields = vec![
                        Arc::new(Field::new("window_end", DataType::Int64, false)),
                        Arc::new(Field::new("side", DataType::Int8, false)),
                    ];
                    fields.extend(batch.schema().fields().iter().cloned());
                    let schema = Arc::new(Schema::new(fields));
                    snapshot.push(RecordBatch::try_new(schema, columns)?);
                }
            }
        }
        Ok(snapshot)
    }

    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        let wrong = || {
            Error::new(
                "snapshot of a window join",
                "its columns are not those of a side",
            )
        };
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

    fn expire(&mut self, watermark: EventTime) -> Result<()> {
        let unit = self.spec.windows.unit;
        self.windows
            .retain(|&end, _| ticks_to_us(end, unit) > watermark);
        self.watermark = self.watermark.max(watermark);
        Ok(())
    }
}
