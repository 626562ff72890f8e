//! Snapshots of keyed rows: `count | partners | touched_at | columns…`. A row with the count 0 was removed.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::DataType;

use super::{Kept, KeyedRows, Touch};
use crate::error::{Error, Result};
use crate::key::Key;
use crate::state::{BucketSet, Mark, snapshot};
use crate::time::{EventTime, MIN_WATERMARK};

/// The columns of a snapshot before those of the rows.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnColumns {
    counts: Vec<u32>,
    partners: Vec<u32>,
    touched_at: Vec<EventTime>,
}

impl OwnColumns {
    pub(super) fn push(&mut self, kept: Kept) {
        self.counts.push(kept.count);
        self.partners.push(kept.partners);
        self.touched_at.push(kept.touched_at);
    }

    /// A row that was removed.
    pub(super) fn push_gone(&mut self) {
        self.counts.push(0);
        self.partners.push(0);
        self.touched_at.push(MIN_WATERMARK);
    }
}

impl KeyedRows {
    /// Columns of a snapshot before those of the rows: count, partners, touched_at.
    pub const OWN_COLUMNS: usize = 3;

    /// The error for a snapshot that is not of these rows.
    pub fn wrong_snapshot() -> Error {
        snapshot::wrong("keyed rows", "its columns are not those of the rows")
    }

    /// The rows of `buckets` that changed since `since`, in one batch; removed rows have a count of 0.
    pub fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Option<RecordBatch>> {
        let (mut encodings, mut own) = (Vec::<&[u8]>::new(), OwnColumns::default());
        if since > Mark::default() {
            self.gone.retain(|gone| gone.mark > since);
            for gone in &self.gone {
                let of_key = self.of_key(Key::stored(gone.hash, &gone.key));
                let is_back = of_key.is_some_and(|of_key| of_key.rows.find(&gone.row).is_ok());
                if !is_back && buckets.contains_hash(gone.hash) {
                    encodings.push(&gone.row);
                    own.push_gone();
                }
            }
        }
        for place in self.touched.since(since) {
            let of_key = self.slab.get(place);
            if !buckets.contains_hash(of_key.hash) {
                continue;
            }
            for (row, kept) in of_key.rows.iter() {
                if kept.mark > since {
                    encodings.push(row);
                    own.push(kept);
                }
            }
        }
        if encodings.is_empty() {
            return Ok(None);
        }
        self.batch(encodings.into_iter(), own).map(Some)
    }

    /// The batch of a snapshot.
    pub(super) fn batch<'r>(
        &self,
        rows: impl Iterator<Item = &'r [u8]>,
        own: OwnColumns,
    ) -> Result<RecordBatch> {
        let rows = self.decode(rows)?;
        let count: ArrayRef = Arc::new(UInt32Array::from(own.counts));
        let partners: ArrayRef = Arc::new(UInt32Array::from(own.partners));
        let touched_at: ArrayRef = Arc::new(Int64Array::from(own.touched_at));
        let own = [
            ("count", count, false),
            ("partners", partners, false),
            ("touched_at", touched_at, false),
        ];
        snapshot::with_own(own, &rows)
    }

    /// Restores the rows of a snapshot, replacing existing entries. Rows that were touched before any
    /// watermark count from now.
    pub fn restore(&mut self, batch: &RecordBatch, now: Touch) -> Result<()> {
        let wrong = Self::wrong_snapshot;
        let types = batch.columns().iter().skip(Self::OWN_COLUMNS);
        let types = types
            .map(|column| column.data_type())
            .collect::<Vec<&DataType>>();
        let expected = self
            .encoder
            .schema
            .fields()
            .iter()
            .map(|field| field.data_type());
        if types != expected.collect::<Vec<&DataType>>() {
            return Err(wrong());
        }
        let column = |index: usize| batch.column(index);
        let counts = column(0)
            .as_primitive_opt::<UInt32Type>()
            .ok_or_else(wrong)?;
        let partners = column(1)
            .as_primitive_opt::<UInt32Type>()
            .ok_or_else(wrong)?;
        let touched = column(2)
            .as_primitive_opt::<Int64Type>()
            .ok_or_else(wrong)?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let rows = RecordBatch::try_new_with_options(
            self.encoder.schema.clone(),
            batch.columns()[Self::OWN_COLUMNS..].to_vec(),
            &options,
        )?;
        let encoded = self.encoder.encode_batch(&rows)?;
        for row in 0..rows.num_rows() {
            let (key, bytes) = (encoded.key(row), encoded.row(row));
            let kept = Kept {
                count: counts.value(row),
                partners: partners.value(row),
                touched_at: match touched.value(row) {
                    MIN_WATERMARK => now.at,
                    touched_at => touched_at,
                },
                mark: now.mark,
            };
            self.put(key, bytes, kept);
        }
        Ok(())
    }
}
