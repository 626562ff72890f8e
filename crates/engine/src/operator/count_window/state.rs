//! Snapshots of count windows: the whole state of each key that has changed, which replaces the earlier
//! state. A row per kept row, or one without a row:
//!
//! ```text
//! seen | number | time | partition | position | keys… | columns…
//! ```
//!
//! `seen` is the number of rows of the key that have a number, `number` is the row's own: [`PENDING`] if
//! it has none yet, [`NO_ROW`] if no row is kept.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt32Array, UInt64Array};
use arrow_schema::DataType;
use arrow_select::take::take;

use super::{CountWindow, KeptRow};
use crate::error::{Error, Result};
use crate::key::KeyColumns;
use crate::operator::kept::{fit, own_column, places};
use crate::state::{BucketSet, Clock, KeyedState, Mark, Sliced, snapshot};
use crate::time::EventTime;

/// The number of columns before the keys.
const OWN_COLUMNS: usize = 5;

const PENDING: i64 = -1;
const NO_ROW: i64 = -2;

fn wrong() -> Error {
    snapshot::wrong("count windows", "its columns are not those of the rows")
}

/// A row of a snapshot: the key, the row's number, the row.
type Entry<'k> = (u32, i64, Option<&'k KeptRow>);

impl CountWindow {
    /// The state of the keys `chosen`, which are in order.
    fn entries(&self, chosen: &[u32]) -> Vec<Entry<'_>> {
        let mut entries = Vec::new();
        if chosen.is_empty() {
            return entries;
        }
        for &key in chosen {
            entries.push((key, NO_ROW, None));
            let rows = self.counters[key as usize].rows.iter();
            entries.extend(rows.map(|(number, row)| (key, *number, Some(row))));
        }
        // Rows wait until the watermark passes them: there are no more than came since then.
        for ((row, key), &times) in &self.pending {
            if chosen.binary_search(key).is_ok() {
                entries.extend((0..times).map(|_| (*key, PENDING, Some(row))));
            }
        }
        entries
    }

    fn batch_of(&self, entries: &[Entry<'_>]) -> Result<RecordBatch> {
        let rows = entries.iter().filter_map(|(_, _, row)| *row);
        let (partitions, positions) = places(rows.clone());
        let times = Int64Array::from_iter_values(rows.clone().map(|row| row.order.0));
        let mut of_rows: Vec<ArrayRef> =
            vec![Arc::new(times), Arc::new(partitions), Arc::new(positions)];
        of_rows.extend(self.keeper.columns(rows)?);
        // Spreads the rows out over the entries; an entry without a row has NULL.
        let mut next = 0;
        let places = entries.iter().map(|(_, _, row)| {
            row.map(|_| {
                next += 1;
                next - 1
            })
        });
        let places = places.collect::<UInt32Array>();
        let spread = of_rows.iter().map(|column| take(column, &places, None));
        let mut spread = spread.collect::<std::result::Result<Vec<_>, _>>()?;
        let columns_of_row = spread.split_off(3);
        let seen = entries.iter();
        let seen = seen.map(|(key, ..)| self.counters[*key as usize].seen);
        let numbers = entries.iter().map(|(_, number, _)| *number);
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(seen)),
            Arc::new(Int64Array::from_iter_values(numbers)),
        ];
        columns.extend(spread);
        let keys = entries.iter().map(|(key, ..)| *key);
        columns.extend(self.keys.columns(&keys.collect::<Vec<u32>>())?);
        columns.extend(columns_of_row);
        snapshot::unnamed(columns)
    }

    /// Forgets the state of these keys.
    fn forget_keys(&mut self, keys: &BTreeSet<u32>) {
        for &key in keys {
            let rows = std::mem::take(&mut self.counters[key as usize].rows);
            self.bytes -= rows.iter().map(|(_, row)| row.bytes()).sum::<usize>();
        }
        let bytes = &mut self.bytes;
        self.pending.retain(|(row, key), times| {
            let goes = keys.contains(key);
            if goes {
                *bytes -= row.bytes() * *times as usize;
            }
            !goes
        });
    }
}

impl KeyedState for CountWindow {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        snapshot::assert_between_inputs(!self.full.is_empty());
        let mut chosen = self.touched.since(since);
        chosen.retain(|&key| buckets.contains_hash(self.keys.hash(key as usize)));
        let entries = self.entries(&chosen);
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        Ok(vec![self.batch_of(&entries)?])
    }

    fn sliced(&mut self) -> Option<&mut dyn Sliced> {
        None
    }

    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        let first_column = OWN_COLUMNS + self.key_types.len();
        if batch.num_columns() < first_column {
            return Err(wrong());
        }
        let seen = own_column::<Int64Array>(batch, 0).ok_or_else(wrong)?;
        let numbers = own_column::<Int64Array>(batch, 1).ok_or_else(wrong)?;
        let keys = &batch.columns()[OWN_COLUMNS..first_column];
        let types = keys.iter().map(|key| key.data_type());
        if !types.eq(&self.key_types) || !fit(&batch.columns()[first_column..], &self.spec.input) {
            return Err(wrong());
        }
        let keys = KeyColumns::new(keys.to_vec(), batch.num_rows())?;
        let keys = self.key_numbers(&keys)?;
        self.forget_keys(&keys.iter().copied().collect());
        // The rows only, in the order of their numbers.
        let mut rows = (0..batch.num_rows() as u32).collect::<Vec<u32>>();
        rows.retain(|&row| numbers.value(row as usize) != NO_ROW);
        rows.sort_by_key(|&row| numbers.value(row as usize));
        let only = take_rows(batch, &rows)?;
        let times = own_column::<Int64Array>(&only, 2).ok_or_else(wrong)?;
        let partitions = own_column::<UInt32Array>(&only, 3).ok_or_else(wrong)?;
        let positions = own_column::<UInt64Array>(&only, 4).ok_or_else(wrong)?;
        let columns = &only.columns()[first_column..];
        let kept = self
            .keeper
            .restore(columns, times.values(), partitions, positions)?;
        for (row, &key) in keys.iter().enumerate() {
            self.counters[key as usize].seen = seen.value(row);
            self.touched.touch(key, self.clock.mark());
        }
        for (&row, kept) in rows.iter().zip(kept) {
            let key = keys[row as usize];
            match numbers.value(row as usize) {
                PENDING => self.wait(key, kept),
                number => {
                    self.bytes += kept.bytes();
                    let counter = &mut self.counters[key as usize];
                    counter.rows.push_back((number, kept));
                }
            }
        }
        Ok(())
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        snapshot::discard_by_copy(self, buckets, CountWindow::forget)
    }

    fn drop_emitted(&mut self, _watermark: EventTime) -> Result<()> {
        // A key that has emitted something has changed: the last snapshot has its state.
        Ok(())
    }

    fn publish(&mut self, _cut: u64) -> bool {
        false
    }
}

fn take_rows(batch: &RecordBatch, rows: &[u32]) -> Result<RecordBatch> {
    debug_assert!(batch.num_columns() > 0 && batch.column(0).data_type() == &DataType::Int64);
    let rows = UInt32Array::from(rows.to_vec());
    Ok(arrow_select::take::take_record_batch(batch, &rows)?)
}
