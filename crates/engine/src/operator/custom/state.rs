//! Snapshots of a custom operator: the keys with the function's states, their timers, the rows that wait, and
//! the hashes of the rows that stand, a batch of each.
//!
//! ```text
//! 0 | has state | keys… | the function's columns…     replaces what is known of the key
//! 1 | time | keys…                                    a timer
//! 2 + input | partition | position | columns…         a row that waits
//! 4294967295 | hash | how many | keys…                 rows that stand, of an operator that retracts rows
//! ```
//!
//! The first column tells them apart. A row is only in the snapshot of the interval in which it came: if it
//! waited then and was processed by a later snapshot, the watermark of that one says so. A key is in the
//! snapshot of every interval in which rows or timers of it were processed, and the latest counts. A key that
//! has nothing left is in one more snapshot, without a state.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt32Array, UInt64Array,
};

use super::Custom;
use super::rows::{KeyRows, Place, STANDING_BYTES};
use crate::error::{Error, Result};
use crate::key::{EncodedKeys, KeyColumns};
use crate::operator::event_times::event_times;
use crate::operator::kept::fit;
use crate::state::{BucketSet, Clock, KeyedState, Mark, Sliced, snapshot};
use crate::time::EventTime;

const KEYS: u32 = 0;
const TIMERS: u32 = 1;
const ROWS: u32 = 2;
const STANDING: u32 = u32::MAX;

fn wrong() -> Error {
    snapshot::wrong("a custom operator", "its columns are not those of this one")
}

/// The first column of `rows` rows.
fn kind(kind: u32, rows: usize) -> ArrayRef {
    Arc::new(UInt32Array::from(vec![kind; rows]))
}

impl Custom {
    fn keys_snapshot(&mut self, keys: &[u32]) -> Result<RecordBatch> {
        let have_state = keys.iter().map(|&key| Some(self.keys.get(key).has_state));
        let mut columns: Vec<ArrayRef> = vec![
            kind(KEYS, keys.len()),
            Arc::new(have_state.collect::<BooleanArray>()),
        ];
        let of_keys = keys.iter().map(|&key| self.keys.key(key));
        columns.extend(self.key_encoder.decode(of_keys)?);
        columns.extend(self.function.states().save(keys)?);
        snapshot::unnamed(columns)
    }

    fn timers_snapshot(&self, keys: &[u32]) -> Result<RecordBatch> {
        let timers = keys.iter().flat_map(|&key| {
            let timers = self.keys.get(key).timers.iter();
            timers.map(move |&at| (key, at))
        });
        let (keys, times): (Vec<u32>, Vec<EventTime>) = timers.unzip();
        let mut columns: Vec<ArrayRef> =
            vec![kind(TIMERS, keys.len()), Arc::new(Int64Array::from(times))];
        let keys = keys.iter().map(|&key| self.keys.key(key));
        columns.extend(self.key_encoder.decode(keys)?);
        snapshot::unnamed(columns)
    }

    fn standing_snapshot(&self, keys: &[u32]) -> Result<RecordBatch> {
        let rows = keys.iter().flat_map(|&key| {
            let standing = self.keys.get(key).standing.iter();
            standing.map(move |(&hash, &count)| (key, hash, count))
        });
        let rows = rows.collect::<Vec<(u32, u64, u32)>>();
        let hashes = rows.iter().map(|(_, hash, _)| *hash);
        let counts = rows.iter().map(|(_, _, count)| *count);
        let mut columns: Vec<ArrayRef> = vec![
            kind(STANDING, rows.len()),
            Arc::new(UInt64Array::from_iter_values(hashes)),
            Arc::new(UInt32Array::from_iter_values(counts)),
        ];
        let keys = rows.iter().map(|(key, _, _)| self.keys.key(*key));
        columns.extend(self.key_encoder.decode(keys)?);
        snapshot::unnamed(columns)
    }

    fn rows_snapshot(&self, input: usize, keys: &[u32], since: Mark) -> Result<RecordBatch> {
        let keys = keys.iter().map(|&key| self.keys.get(key));
        let rows = keys.flat_map(|rows| rows.waiting.iter());
        let rows = rows.filter(|(place, mark)| place.input as usize == input && **mark > since);
        let places = rows.map(|(place, _)| place).collect::<Vec<&Place>>();
        let parser = self.converters[input].parser();
        let values = places.iter().map(|place| parser.parse(&place.values));
        let partitions = places.iter().map(|place| place.partition);
        let positions = places.iter().map(|place| place.position);
        let mut columns: Vec<ArrayRef> = vec![
            kind(ROWS + input as u32, places.len()),
            Arc::new(UInt32Array::from_iter_values(partitions)),
            Arc::new(UInt64Array::from_iter_values(positions)),
        ];
        columns.extend(self.converters[input].convert_rows(values)?);
        snapshot::unnamed(columns)
    }

    /// The keys in these columns.
    fn restored_keys(&self, columns: &[ArrayRef], rows: usize) -> Result<EncodedKeys> {
        let first = &self.spec.inputs[0];
        let types = first.keys.iter();
        let types = types.map(|&key| first.schema.field(key).data_type());
        if !types.eq(columns.iter().map(|column| column.data_type())) {
            return Err(wrong());
        }
        self.encode(KeyColumns::new(columns.to_vec(), rows)?)
    }

    fn restore_keys(&mut self, columns: &[ArrayRef], rows: usize) -> Result<()> {
        let (have_state, columns) = columns.split_first().ok_or_else(wrong)?;
        let have_state = have_state.as_boolean_opt().ok_or_else(wrong)?;
        let split = columns.split_at_checked(self.spec.inputs[0].keys.len());
        let (keys, states) = split.ok_or_else(wrong)?;
        let keys = self.restored_keys(keys, rows)?;
        for row in 0..rows {
            let has_state = have_state.value(row);
            let known = self.keys.find(keys.key(row));
            if known.is_none() && !has_state {
                continue;
            }
            let number = self.keys.find_or_insert(keys.key(row), KeyRows::default);
            self.keys.touch(number, self.clock.mark());
            let of_key = self.keys.get_mut(number);
            of_key.timers.clear();
            self.bytes -= of_key.standing.len() * STANDING_BYTES;
            of_key.standing.clear();
            of_key.has_state = has_state;
            let is_empty = of_key.is_empty();
            match has_state {
                true => self.function.states().load(number, states, row)?,
                false => self.function.states().forget(number),
            }
            match is_empty {
                true => drop(self.keys.remove(number)),
                false => self.set_due(number),
            }
        }
        Ok(())
    }

    fn restore_timers(&mut self, columns: &[ArrayRef], rows: usize) -> Result<()> {
        let (times, keys) = columns.split_first().ok_or_else(wrong)?;
        let times = times.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
        let keys = self.restored_keys(keys, rows)?;
        for row in 0..rows {
            let number = self.keys.find_or_insert(keys.key(row), KeyRows::default);
            self.keys.touch(number, self.clock.mark());
            self.keys.get_mut(number).timers.insert(times.value(row));
            self.set_due(number);
        }
        Ok(())
    }

    fn restore_standing(&mut self, columns: &[ArrayRef], rows: usize) -> Result<()> {
        let [hashes, counts, keys @ ..] = columns else {
            return Err(wrong());
        };
        let hashes = hashes.as_primitive_opt::<UInt64Type>().ok_or_else(wrong)?;
        let counts = counts.as_primitive_opt::<UInt32Type>().ok_or_else(wrong)?;
        let keys = self.restored_keys(keys, rows)?;
        for row in 0..rows {
            let number = self.keys.find_or_insert(keys.key(row), KeyRows::default);
            self.keys.touch(number, self.clock.mark());
            let standing = &mut self.keys.get_mut(number).standing;
            let before = standing.insert(hashes.value(row), counts.value(row));
            self.bytes += before.map_or(STANDING_BYTES, |_| 0);
        }
        Ok(())
    }

    fn restore_rows(&mut self, input: usize, columns: &[ArrayRef]) -> Result<()> {
        let [partitions, positions, columns @ ..] = columns else {
            return Err(wrong());
        };
        let partitions = partitions.as_primitive_opt::<UInt32Type>();
        let partitions = partitions.ok_or_else(wrong)?;
        let positions = positions.as_primitive_opt::<UInt64Type>();
        let positions = positions.ok_or_else(wrong)?;
        let of_input = self.spec.inputs.get(input).ok_or_else(wrong)?;
        let time_column = of_input.time_column.ok_or_else(wrong)?;
        if !fit(columns, &of_input.schema) {
            return Err(wrong());
        }
        let rows = RecordBatch::try_new(of_input.schema.clone(), columns.to_vec());
        let rows = rows.map_err(|_| wrong())?;
        let times = event_times(rows.column(time_column), &self.spec.name)?;
        let keys = self.encode(KeyColumns::of_batch(&rows, &of_input.keys)?)?;
        let places = partitions.values().iter().zip(positions.values());
        let places = times.iter().zip(places);
        let places = places.map(|(&time, (&partition, &position))| (time, partition, position));
        self.keep(input, &rows, &keys, places)
    }
}

impl KeyedState for Custom {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        snapshot::assert_between_inputs(self.piece.is_some());
        // Whoever has everything up to `since` knows that these have nothing left.
        self.leave_out(|rows| rows.gone <= since);
        let mut keys = self.keys.changed(buckets, since);
        if since == Mark::default() {
            keys.retain(|&key| !self.keys.get(key).is_empty());
        }
        let mut snapshot = vec![self.keys_snapshot(&keys)?, self.timers_snapshot(&keys)?];
        if self.is_ordered() {
            for input in 0..self.spec.inputs.len() {
                snapshot.push(self.rows_snapshot(input, &keys, since)?);
            }
        }
        if self.spec.emits_updates {
            snapshot.push(self.standing_snapshot(&keys)?);
        }
        snapshot.retain(|batch| batch.num_rows() > 0);
        Ok(snapshot)
    }

    fn sliced(&mut self) -> Option<&mut dyn Sliced> {
        None
    }

    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let (kind, columns) = batch.columns().split_first().ok_or_else(wrong)?;
        let kind = kind.as_primitive_opt::<UInt32Type>().ok_or_else(wrong)?;
        if kind.null_count() > 0 {
            return Err(wrong());
        }
        match kind.value(0) {
            KEYS => self.restore_keys(columns, batch.num_rows()),
            TIMERS => self.restore_timers(columns, batch.num_rows()),
            STANDING => self.restore_standing(columns, batch.num_rows()),
            rows => self.restore_rows((rows - ROWS) as usize, columns),
        }
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        for key in self.keys.numbers(|hash| buckets.contains_hash(hash)) {
            self.function.states().forget(key);
            let rows = self.keys.remove(key);
            self.bytes -= rows.bytes();
        }
        Ok(())
    }

    fn drop_emitted(&mut self, _watermark: EventTime) -> Result<()> {
        let complete = self.complete();
        while let Some(key) = self.keys.first_due(complete) {
            // Rows that were complete had been processed before the snapshot was taken.
            let rows = self.keys.get_mut(key);
            let mut bytes = 0;
            while let Some(first) = rows.waiting.first_entry()
                && first.key().time <= complete
            {
                bytes += first.remove_entry().0.bytes();
            }
            rows.timers.retain(|&at| at > complete);
            let is_empty = rows.is_empty();
            self.bytes -= bytes;
            match is_empty {
                true => {
                    self.function.states().forget(key);
                    self.keys.remove(key);
                }
                false => self.set_due(key),
            }
        }
        Ok(())
    }

    fn publish(&mut self, _cut: u64) -> bool {
        false
    }
}
