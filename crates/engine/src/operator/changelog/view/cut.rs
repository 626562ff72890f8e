//! A view at a cut, for readers.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;

use super::bucket::{Bucket, Row};
use crate::error::Result;
use crate::hash::{BUCKETS, bucket};
use crate::key::KeyColumns;
use crate::operator::changelog::rows::Encoder;
use crate::time::EventTime;

/// What one instance of a view has published: the rows of its buckets.
#[derive(Clone)]
pub(super) struct Part {
    /// The number of the barrier; [`u64::MAX`] at the end of the input.
    pub number: u64,
    /// The watermark that the instance has reached.
    pub watermark: EventTime,
    /// Rows that expire by this time have expired, though the instance may still have them.
    pub expired_to: EventTime,
    pub encoder: Arc<Encoder>,
    pub buckets: Arc<[Arc<Bucket>]>,
}

/// The rows of a view at a cut. They stay as they are while somebody has it.
pub struct Cut {
    number: u64,
    watermark: EventTime,
    expired_to: EventTime,
    encoder: Arc<Encoder>,
    buckets: Box<[Arc<Bucket>]>,
}

impl Cut {
    /// The cut that the parts of all instances make. At a barrier each bucket belongs to one instance.
    pub(super) fn of(parts: &[Part]) -> Option<Cut> {
        let first = parts.first()?;
        let mut buckets = first.buckets.to_vec();
        for part in &parts[1..] {
            for (own, other) in buckets.iter_mut().zip(part.buckets.iter()) {
                if other.len() > 0 {
                    debug_assert_eq!(own.len(), 0, "a bucket has one owner");
                    *own = Arc::clone(other);
                }
            }
        }
        let least = |time: fn(&Part) -> EventTime| parts.iter().map(time).min();
        Some(Cut {
            number: parts.iter().map(|part| part.number).min()?,
            watermark: least(|part| part.watermark)?,
            expired_to: least(|part| part.expired_to)?,
            encoder: Arc::clone(&first.encoder),
            buckets: buckets.into(),
        })
    }

    /// The number of the barrier that made the cut; [`u64::MAX`] if the input has ended.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the input of the view has ended, so that no other cut differs from it.
    pub fn is_last(&self) -> bool {
        self.number == u64::MAX
    }

    /// The watermark that the view has reached.
    pub fn watermark(&self) -> EventTime {
        self.watermark
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.encoder.schema
    }

    /// The number of rows, with their copies; those that have expired count until they are removed.
    pub fn rows(&self) -> usize {
        let buckets = self.buckets.iter();
        let rows = buckets.flat_map(|bucket| bucket.rows());
        rows.map(|row| row.stamp.count as usize).sum()
    }

    /// About how many bytes the rows take.
    pub fn bytes(&self) -> usize {
        debug_assert_eq!(self.buckets.len(), BUCKETS);
        self.buckets.iter().map(|bucket| bucket.bytes()).sum()
    }

    /// The rows whose keys are among `keys`: the columns of the key, of any number of rows, of the types
    /// that the view has. A key that is not there adds no row.
    ///
    /// # Errors
    ///
    /// When the columns are not those of the key.
    pub fn get(&self, keys: Vec<ArrayRef>) -> Result<RecordBatch> {
        let rows = keys.first().map_or(1, |column| column.len());
        let keys = self.encoder.encode_keys(KeyColumns::new(keys, rows)?)?;
        let found = (0..rows).filter_map(|row| {
            let key = keys.key(row);
            self.buckets[bucket(key.hash())].get(key)
        });
        self.encoder.decode(self.copies(found))
    }

    /// All rows, in no order, in batches of whole buckets with at least `rows` rows where there are as many.
    pub fn batches(&self, rows: usize) -> impl Iterator<Item = Result<RecordBatch>> + '_ {
        let mut place = 0;
        std::iter::from_fn(move || self.next_batch(&mut place, rows))
    }

    /// The next batch of [`Cut::batches`]; `place` is how far the rows were read, 0 at first.
    pub fn next_batch(&self, place: &mut usize, rows: usize) -> Option<Result<RecordBatch>> {
        let mut found = Vec::new();
        while found.len() < rows
            && let Some(bucket) = self.buckets.get(*place)
        {
            found.extend(self.copies(bucket.rows()));
            *place += 1;
        }
        (!found.is_empty()).then(|| self.encoder.decode(found.into_iter()))
    }

    /// The encodings of those of `rows` that have not expired, each as often as there are copies.
    fn copies<'b>(&self, rows: impl Iterator<Item = Row<'b>>) -> impl Iterator<Item = &'b [u8]> {
        let expired_to = self.expired_to;
        let kept = rows.filter(move |row| row.stamp.expires > expired_to);
        kept.flat_map(|row| std::iter::repeat_n(row.row, row.stamp.count as usize))
    }
}
