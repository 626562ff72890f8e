//! Snapshots of a join of two streams: those of its sides ([`KeyedRows`]), each batch behind a column
//! `side`.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, Int8Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

use super::ChangelogJoin;
use crate::error::{Error, Result};
use crate::state::{BucketSet, KeyedState, Mark};
use crate::time::EventTime;

fn wrong() -> Error {
    Error::new(
        "snapshot of a join",
        "its first column is no side of the join",
    )
    .hint("restore from another checkpoint")
}

fn with_side(side: usize, batch: &RecordBatch) -> Result<RecordBatch> {
    let own: ArrayRef = Arc::new(Int8Array::from(vec![side as i8; batch.num_rows()]));
    let of_rows = batch.schema();
    let fields = [Arc::new(Field::new("side", DataType::Int8, false))].into_iter();
    let fields = fields.chain(of_rows.fields().iter().cloned());
    let columns = [own].into_iter().chain(batch.columns().iter().cloned());
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok(RecordBatch::try_new(schema, columns.collect())?)
}

impl KeyedState for ChangelogJoin {
    fn mark(&mut self) -> Mark {
        let [left, right] = &mut self.sides;
        left.mark();
        right.mark()
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        assert!(
            self.pending.is_none(),
            "a snapshot is taken between inputs: these rows would be lost"
        );
        let mut batches = Vec::new();
        for (side, rows) in self.sides.iter_mut().enumerate() {
            if let Some(batch) = rows.snapshot(buckets, since)? {
                batches.push(with_side(side, &batch)?);
            }
        }
        Ok(batches)
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
            0 | 1 => self.sides[side as usize].restore(&rows),
            _ => Err(wrong()),
        }
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        self.sides.iter_mut().for_each(|side| side.discard(buckets));
        Ok(())
    }

    fn expire(&mut self, watermark: EventTime) -> Result<()> {
        self.retention.advance(watermark);
        Ok(())
    }
}
