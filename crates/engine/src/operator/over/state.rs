//! Snapshots of an OVER: a batch of rows, and one of the running values by key.
//!
//! ```text
//! 0 | done | partition | position | columns…
//! 1 | rows | rank | times | last | keys… | states…
//! ```
//!
//! The first column tells the two apart. A row is only in the snapshot of the interval in which it came:
//! if it waited then and was done by a later snapshot, the watermark of that one says so. A key is in the
//! snapshot of every interval in which rows of it were done, and the latest counts.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int8Array, Int64Array, RecordBatch, UInt32Array, UInt64Array,
};

use super::rows::{Counts, KeyRows, Place, RunsOn};
use super::{Arrival, Over};
use crate::error::{Error, Result};
use crate::key::KeyColumns;
use crate::state::{BucketSet, Clock, KeyedState, Mark, Sliced, snapshot};
use crate::time::EventTime;

fn wrong() -> Error {
    snapshot::wrong("an OVER", "its columns are not those of this one")
}

fn u64s(column: &ArrayRef) -> Result<&UInt64Array> {
    column.as_primitive_opt::<UInt64Type>().ok_or_else(wrong)
}

impl Over {
    fn row_snapshot(&self, keys: &[u32], since: Mark) -> Result<RecordBatch> {
        let keys = keys.iter().map(|&key| self.keys.get(key));
        let rows = keys.flat_map(|rows| {
            let done = rows.done.iter().map(|row| (&row.place, row.mark, true));
            let waiting = rows.waiting.iter();
            done.chain(waiting.map(|(place, mark)| (place, *mark, false)))
        });
        let rows = rows.filter(|(_, mark, _)| *mark > since);
        let rows = rows.map(|(place, _, is_done)| (place, is_done));
        let (places, are_done): (Vec<&Place>, Vec<bool>) = rows.unzip();
        let parser = self.row_converter.parser();
        let values = places.iter().map(|place| parser.parse(&place.values));
        let partitions = places.iter().map(|place| place.partition);
        let positions = places.iter().map(|place| place.position);
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int8Array::from(vec![0; places.len()])),
            Arc::new(BooleanArray::from(are_done)),
            Arc::new(UInt32Array::from_iter_values(partitions)),
            Arc::new(UInt64Array::from_iter_values(positions)),
        ];
        columns.extend(self.row_converter.convert_rows(values)?);
        snapshot::unnamed(columns)
    }

    fn running_snapshot(&mut self, keys: &[u32], since: Mark) -> Result<RecordBatch> {
        let keys = keys.iter();
        let running = keys.filter_map(|&number| Some((number, self.keys.get(number).running?)));
        let changed = running.filter(|(_, running)| running.mark > since);
        let changed = changed.collect::<Vec<(u32, RunsOn)>>();
        let count = |count_of: fn(&Counts) -> u64| {
            let counts = changed.iter().map(|(_, running)| count_of(&running.counts));
            Arc::new(UInt64Array::from_iter_values(counts)) as ArrayRef
        };
        let last = changed.iter().map(|(_, running)| running.counts.last);
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int8Array::from(vec![1; changed.len()])),
            count(|counts| counts.rows),
            count(|counts| counts.rank),
            count(|counts| counts.times),
            Arc::new(last.collect::<Int64Array>()),
        ];
        if !self.spec.keys.is_empty() {
            let keys = changed.iter().map(|(number, _)| self.keys.key(*number));
            columns.extend(self.key_encoder.decode(keys)?);
        }
        let groups = changed.iter().map(|(_, running)| running.group);
        columns.extend(self.running.states(&groups.collect::<Vec<u32>>())?);
        snapshot::unnamed(columns)
    }

    fn restore_rows(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let [are_done, partitions, positions, columns @ ..] = columns else {
            return Err(wrong());
        };
        let are_done = are_done.as_boolean_opt().ok_or_else(wrong)?;
        let partitions = partitions.as_primitive_opt::<UInt32Type>();
        let partitions = partitions.ok_or_else(wrong)?.values().iter();
        let positions = u64s(positions)?.values().iter();
        let places = partitions.zip(positions);
        let places = places.zip(are_done.values().iter());
        let places = places.map(|((&partition, &position), is_done)| Arrival {
            partition,
            position,
            is_done,
        });
        let rows = RecordBatch::try_new(self.spec.input.clone(), columns.to_vec());
        let rows = rows.map_err(|_| wrong())?;
        let times = self.times(&rows)?;
        self.keep(&rows, &times, places)
    }

    fn restore_running(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let [rows, rank, times, last, columns @ ..] = columns else {
            return Err(wrong());
        };
        let (rows, rank, times) = (u64s(rows)?, u64s(rank)?, u64s(times)?);
        let last = last.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
        let split = columns.split_at_checked(self.spec.keys.len());
        let (keys, states) = split.ok_or_else(wrong)?;
        let types = self.spec.keys.iter().zip(keys);
        if types
            .into_iter()
            .any(|(&key, column)| self.spec.input.field(key).data_type() != column.data_type())
        {
            return Err(wrong());
        }
        let keys = KeyColumns::new(keys.to_vec(), rows.len())?;
        let keys = self.key_encoder.encode(keys)?;
        let (mut groups, mut replaced) = (Vec::new(), Vec::new());
        for row in 0..rows.len() {
            let key = self.keys.find_or_insert(keys.key(row), KeyRows::default);
            let mark = self.clock.mark();
            // The state of an earlier snapshot is replaced.
            let mut running = match self.keys.get(key).running {
                Some(known) => {
                    replaced.push(known.group);
                    RunsOn { mark, ..known }
                }
                None => self.running.new_group(mark),
            };
            running.counts = Counts {
                rows: rows.value(row),
                rank: rank.value(row),
                times: times.value(row),
                last: last.is_valid(row).then(|| last.value(row)),
            };
            groups.push(running.group);
            self.keys.get_mut(key).running = Some(running);
            self.keys.touch(key, mark);
        }
        self.running.reset(&replaced);
        self.running.merge(&groups, states)
    }
}

impl KeyedState for Over {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        let keys = self.keys.changed(buckets, since);
        let mut snapshot = vec![self.row_snapshot(&keys, since)?];
        if self.running.is_needed() {
            snapshot.push(self.running_snapshot(&keys, since)?);
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
        let kind = kind.as_primitive_opt::<Int8Type>().ok_or_else(wrong)?;
        match kind.value(0) {
            0 => self.restore_rows(columns),
            1 => self.restore_running(columns),
            _ => Err(wrong()),
        }
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        for key in self.keys.numbers(|hash| buckets.contains_hash(hash)) {
            let rows = self.keys.remove(key);
            self.bytes -= rows.bytes();
        }
        self.running.keep_only(&mut self.keys)
    }

    fn drop_emitted(&mut self, _watermark: EventTime) -> Result<()> {
        let complete = self.complete();
        while let Some(key) = self.keys.first_due(complete) {
            // Rows that were complete had been emitted before the snapshot was taken.
            self.keys.get_mut(key).note_done(complete);
            self.forget(key);
        }
        Ok(())
    }

    fn publish(&mut self, _cut: u64) -> bool {
        false
    }
}
