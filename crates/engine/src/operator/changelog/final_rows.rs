//! The rows of a result when its inputs have ended: sorted, and only the first of them if requested
//! (`ORDER BY`, `LIMIT`, `SET 'emit' = 'final'`).
//!
//! Nothing is emitted before the end. A query that is stopped earlier keeps its rows in its state and
//! emits none. Rows that are equal in the order's columns are ordered by all their columns, so that the
//! result, and which rows come first, is the same in every run (I1).
//!
//! Shutdown: the rows leave in [`Operator::advance`] with [`MAX_WATERMARK`], a chunk a call.

use std::vec::IntoIter;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::retractions;
use super::rows::{KeyedRows, RowOrder, Touch};
use crate::chunk::Chunk;
use crate::error::Result;
use crate::operator::{Facts, Output, Progress, Stateful, Timer};
use crate::state::{BucketSet, Clock, KeyedState, Mark, Sliced};
use crate::time::{EventTime, MAX_WATERMARK, MIN_WATERMARK};

/// The most rows that are kept in order as they come: the first ones of an input that only adds rows.
/// More rows are sorted at the end, which is faster than keeping them sorted.
const KEPT_SORTED_MAX: usize = 10_000;

/// Which rows are emitted, and in what order.
#[derive(Debug, Clone)]
pub struct FinalSpec {
    /// The columns to order by; rows that are equal in them are ordered by all columns.
    pub order: RowOrder,
    /// The number of rows to skip at the front.
    pub skip: usize,
    /// The most rows to emit; `None` for all.
    pub limit: Option<usize>,
    /// Whether the input retracts rows.
    pub takes_back: bool,
    /// The columns of the input and of the output.
    pub schema: SchemaRef,
}

impl FinalSpec {
    /// The most rows that need to be kept; `None` for all.
    pub fn kept_max(&self) -> Option<usize> {
        let first = self.limit?.saturating_add(self.skip);
        (!self.takes_back && first <= KEPT_SORTED_MAX).then_some(first)
    }
}

/// Keeps rows until the input ends.
pub struct FinalRows {
    spec: FinalSpec,
    rows: KeyedRows,
    clock: Clock,
    /// Rows that are being emitted, encoded, each with its number of copies.
    emitting: Option<IntoIter<(Box<[u8]>, u32)>>,
}

impl FinalRows {
    /// An operator that has seen nothing.
    ///
    /// # Errors
    ///
    /// When a column's type has no order.
    pub fn new(spec: FinalSpec) -> Result<FinalRows> {
        // Rows are their own keys, so that a retracted row is found fast; if only the first few are
        // needed, they are kept under one key, in order.
        let keys = match spec.kept_max() {
            Some(_) => Vec::new(),
            None => (0..spec.schema.fields().len()).collect(),
        };
        Ok(FinalRows {
            rows: KeyedRows::new(spec.schema.clone(), keys, spec.order.clone())?,
            clock: Clock::default(),
            spec,
            emitting: None,
        })
    }

    /// All rows in order, from `skip` on, at most `limit`.
    fn sorted(&mut self) -> Vec<(Box<[u8]>, u32)> {
        let of_keys = self.rows.keys().flat_map(|of_key| of_key.rows());
        let rows = of_keys.map(|(row, kept)| (Box::<[u8]>::from(row), kept.count));
        let mut rows = rows.collect::<Vec<_>>();
        self.rows.clear();
        rows.sort_unstable();
        let (mut skip, mut left) = (self.spec.skip, self.spec.limit.unwrap_or(usize::MAX));
        rows.retain_mut(|(_, count)| {
            let skipped = skip.min(*count as usize);
            let taken = left.min(*count as usize - skipped);
            skip -= skipped;
            left -= taken;
            *count = taken as u32;
            taken > 0
        });
        rows
    }

    /// Emits up to a chunk of the rows that are left.
    fn emit(&mut self, output: &mut Output) -> Result<Progress> {
        let Some(left) = &mut self.emitting else {
            return Ok(Progress::Done);
        };
        let mut encodings = Vec::new();
        while encodings.len() < output.chunk_rows {
            let Some((row, count)) = left.as_slice().first() else {
                break;
            };
            let room = output.chunk_rows - encodings.len();
            if *count as usize > room {
                // The remaining copies come with the next call.
                encodings.extend(std::iter::repeat_n(row.clone(), room));
                left.as_mut_slice()[0].1 -= room as u32;
                break;
            }
            let (row, count) = left.next().expect("looked at just above");
            encodings.extend(std::iter::repeat_n(row, count as usize));
        }
        let is_done = left.as_slice().is_empty();
        let batch = self.rows.decode(encodings.iter().map(AsRef::as_ref))?;
        output.emit_batch(batch);
        if is_done {
            self.emitting = None;
            return Ok(Progress::Done);
        }
        Ok(Progress::More)
    }
}

impl Stateful for FinalRows {
    fn facts(&self) -> Facts {
        Facts {
            // Rows of the stream stay where they are, and versions are in every instance.
            placed_by: vec![None, None],
            is_replicated: false,
            first_input: None,
            delay_us: 0,
            // Rows are kept as copies.
            shares_input: false,
        }
    }

    fn process(&mut self, _input: usize, chunk: Chunk, _output: &mut Output) -> Result<()> {
        let encoded = self.rows.encode(&chunk)?;
        let retracts = retractions(&chunk);
        let most = self.spec.kept_max();
        let now = Touch {
            mark: self.clock.mark(),
            at: MIN_WATERMARK,
        };
        for row in 0..chunk.rows() {
            let (key, bytes) = (encoded.key(row), encoded.row(row));
            if retracts.as_ref().is_some_and(|retracts| retracts[row]) {
                self.rows.remove(key, bytes, now);
                continue;
            }
            if let Some(most) = most {
                let of_key = self.rows.of_key(key);
                if of_key.is_some_and(|of_key| of_key.is_behind(bytes, most)) {
                    continue;
                }
            }
            self.rows.add(key, bytes, 0, now);
            if let Some(most) = most {
                self.rows.keep_first(key, most, now.mark);
            }
        }
        Ok(())
    }

    fn rest(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: EventTime, output: &mut Output) -> Result<Progress> {
        if watermark < MAX_WATERMARK {
            return Ok(Progress::Done);
        }
        if self.emitting.is_none() {
            self.emitting = Some(self.sorted().into_iter());
        }
        self.emit(output)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    fn end_unit(&mut self, _output: &mut Output) -> Result<()> {
        self.rows.clear();
        self.emitting = None;
        self.clock.restart();
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(self)
    }

    fn bytes(&self) -> usize {
        self.rows.bytes()
    }
}

impl KeyedState for FinalRows {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        Ok(self.rows.snapshot(buckets, since)?.into_iter().collect())
    }

    fn sliced(&mut self) -> Option<&mut dyn Sliced> {
        None
    }

    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        let (mark, at) = (self.clock.mark(), MIN_WATERMARK);
        self.rows.restore(batch, Touch { mark, at })
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        self.rows.discard(buckets);
        Ok(())
    }

    fn drop_emitted(&mut self, watermark: EventTime) -> Result<()> {
        // The input had ended, so all rows have been emitted.
        if watermark == MAX_WATERMARK {
            self.rows.clear();
        }
        Ok(())
    }

    fn publish(&mut self, _cut: u64) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
