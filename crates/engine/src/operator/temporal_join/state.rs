//! Snapshots of a temporal join: a batch of rows that wait and one of versions, with these columns before
//! those of the side:
//!
//! ```text
//! side | behind | partition | position | watermark | kind | columns…
//! ```
//!
//! `side` is 0 for the stream and 1 for the table. A row that waits has the time that the watermark must
//! pass before it is ready, its origin, if it has one, and its kind, if rows are not only inserted. A
//! version only has its place.
//!
//! A row that waits belongs to the bucket of its key, if it has one, else to the first bucket. It is in
//! one instance only, and in the snapshot of one interval only. Versions are in all instances. An
//! instance is restored from all snapshots, so each version comes several times, and counts once.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, Int8Array, Int64Array, RecordBatch, UInt32Array, UInt64Array, new_null_array,
};
use arrow_schema::{DataType, Schema, SchemaRef};
use arrow_select::concat::concat_batches;

use super::versions::Place;
use super::{KEPT_BEHIND_US, STREAM, TABLE, TemporalJoin, Waiting};
use crate::chunk::{Chunk, Origin, Partitions, Positions};
use crate::error::{Error, Result};
use crate::hash::bucket;
use crate::state::{BucketSet, Clock, KeyedState, Mark, Sliced, snapshot};
use crate::time::EventTime;

/// The number of columns before those of the side.
const OWN_COLUMNS: usize = 6;

fn wrong() -> Error {
    snapshot::wrong("a temporal join", "its columns are not those of a side")
}

/// The columns before those of a side.
struct Own<'b> {
    behind: &'b Int64Array,
    partition: &'b UInt32Array,
    position: &'b UInt64Array,
    watermark: &'b Int64Array,
    kind: &'b Int8Array,
}

impl<'b> Own<'b> {
    fn read(batch: &'b RecordBatch) -> Result<Own<'b>> {
        let column = |index: usize| batch.column(index);
        Ok(Own {
            behind: column(1)
                .as_primitive_opt::<Int64Type>()
                .ok_or_else(wrong)?,
            partition: column(2)
                .as_primitive_opt::<UInt32Type>()
                .ok_or_else(wrong)?,
            position: column(3)
                .as_primitive_opt::<UInt64Type>()
                .ok_or_else(wrong)?,
            watermark: column(4)
                .as_primitive_opt::<Int64Type>()
                .ok_or_else(wrong)?,
            kind: column(5).as_primitive_opt::<Int8Type>().ok_or_else(wrong)?,
        })
    }

    /// Rows that can be in one chunk have the same value of this.
    fn of_chunk(&self, row: usize) -> (Option<u32>, bool, bool) {
        let partition = self.partition.is_valid(row);
        (
            partition.then(|| self.partition.value(row)),
            self.watermark.is_valid(row),
            self.kind.is_valid(row),
        )
    }

    /// The rows `from..to` of `rows`, which can be in one chunk.
    fn chunk(&self, rows: &RecordBatch, from: usize, to: usize) -> Result<Waiting> {
        let length = to - from;
        let (partition, has_watermarks, has_kinds) = self.of_chunk(from);
        let positions = self.position.slice(from, length);
        let behind = self.behind.slice(from, length);
        if behind.null_count() > 0 || (partition.is_some() && positions.null_count() > 0) {
            return Err(wrong());
        }
        let mut chunk = Chunk::new(rows.slice(from, length), 0);
        chunk.origin = partition.map(|partition| Origin {
            partitions: Partitions::One(partition),
            positions: Positions::List(positions),
            watermarks: has_watermarks.then(|| self.watermark.slice(from, length)),
        });
        chunk.kinds = has_kinds.then(|| self.kind.slice(from, length));
        Ok(Waiting {
            chunk: super::copied(&chunk)?,
            behind: behind.values().to_vec(),
            mark: Mark::default(),
        })
    }
}

/// The batch of a snapshot with these columns before those of the side.
fn with_own(
    side: usize,
    own: [ArrayRef; OWN_COLUMNS - 1],
    rows: &RecordBatch,
) -> Result<RecordBatch> {
    let side: ArrayRef = Arc::new(Int8Array::from(vec![side as i8; rows.num_rows()]));
    let [behind, partition, position, watermark, kind] = own;
    let own = [
        ("side", side, false),
        ("behind", behind, true),
        ("partition", partition, true),
        ("position", position, true),
        ("watermark", watermark, true),
        ("kind", kind, true),
    ];
    snapshot::with_own(own, rows)
}

impl TemporalJoin {
    fn stream_schema(&self) -> SchemaRef {
        let all = self.spec.join.schema.fields();
        let own = all.len() - self.spec.join.table.fields().len();
        Arc::new(Schema::new(all[..own].to_vec()))
    }

    /// Which of the rows belong to the buckets.
    fn in_buckets(&self, waiting: &Waiting, buckets: &BucketSet) -> Result<Vec<bool>> {
        let keys = self.keys(STREAM, &waiting.chunk.batch)?;
        let bucket_of = |row: usize| match keys.is_null(row) {
            true => 0,
            false => bucket(keys.key(row).hash()),
        };
        let rows = 0..keys.count();
        Ok(rows.map(|row| buckets.contains(bucket_of(row))).collect())
    }

    fn waiting_snapshot(&self, waiting: &Waiting) -> Result<RecordBatch> {
        let chunk = &waiting.chunk;
        let rows = chunk.rows();
        let mut own = [
            Arc::new(Int64Array::from(waiting.behind.clone())) as ArrayRef,
            new_null_array(&DataType::UInt32, rows),
            new_null_array(&DataType::UInt64, rows),
            new_null_array(&DataType::Int64, rows),
            new_null_array(&DataType::Int8, rows),
        ];
        if let Some(origin) = &chunk.origin {
            let positions = (0..rows).map(|row| origin.positions.at(row));
            let partitions = (0..rows).map(|row| origin.partitions.at(row));
            own[1] = Arc::new(UInt32Array::from_iter_values(partitions));
            own[2] = Arc::new(UInt64Array::from_iter_values(positions));
            if let Some(watermarks) = &origin.watermarks {
                own[3] = Arc::new(watermarks.clone());
            }
        }
        if let Some(kinds) = &chunk.kinds {
            own[4] = Arc::new(kinds.clone());
        }
        let columns = chunk.batch.columns().to_vec();
        let of_stream = RecordBatch::try_new(self.stream_schema(), columns)?;
        with_own(STREAM, own, &of_stream)
    }

    fn version_snapshot(&mut self, since: Mark) -> Result<RecordBatch> {
        let (versions, places) = self.versions.since(since)?;
        let partitions = places.iter().map(|place| place.0);
        let positions = places.iter().map(|place| place.1);
        let own = [
            new_null_array(&DataType::Int64, places.len()),
            Arc::new(UInt32Array::from_iter_values(partitions)) as ArrayRef,
            Arc::new(UInt64Array::from_iter_values(positions)),
            new_null_array(&DataType::Int64, places.len()),
            new_null_array(&DataType::Int8, places.len()),
        ];
        with_own(TABLE, own, &versions)
    }

    fn restore_waiting(&mut self, batch: &RecordBatch) -> Result<()> {
        let own = Own::read(batch)?;
        let columns = batch.columns()[OWN_COLUMNS..].to_vec();
        let rows = RecordBatch::try_new(self.stream_schema(), columns)?;
        let mut from = 0;
        for row in 1..=rows.num_rows() {
            if row < rows.num_rows() && own.of_chunk(row) == own.of_chunk(from) {
                continue;
            }
            let mut waiting = own.chunk(&rows, from, row)?;
            waiting.mark = self.clock.mark();
            self.waiting.push_back(waiting);
            from = row;
        }
        Ok(())
    }

    fn restore_versions(&mut self, batch: &RecordBatch) -> Result<()> {
        let own = Own::read(batch)?;
        if own.partition.null_count() > 0 || own.position.null_count() > 0 {
            return Err(wrong());
        }
        let columns = batch.columns()[OWN_COLUMNS..].to_vec();
        let rows = RecordBatch::try_new(self.spec.join.table.clone(), columns)?;
        let (chunk, times) = self.timed(TABLE, &Chunk::new(rows, 0))?;
        let places = own.partition.values().iter().zip(own.position.values());
        let places = places.map(|(&partition, &position)| (partition, position));
        let places = places.collect::<Vec<Place>>();
        let keys = self.keys(TABLE, &chunk.batch)?;
        self.versions.arrive_behind(&places);
        self.versions
            .add(chunk.batch, &times, &places, &keys, self.clock.mark());
        Ok(())
    }
}

impl KeyedState for TemporalJoin {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        snapshot::assert_between_inputs(!self.ready.is_empty());
        let mut parts = Vec::new();
        for waiting in self.waiting.iter().filter(|waiting| waiting.mark > since) {
            let part = waiting.only(self.in_buckets(waiting, buckets)?)?;
            if part.chunk.rows() > 0 {
                parts.push(self.waiting_snapshot(&part)?);
            }
        }
        let mut batches = Vec::new();
        if let Some(first) = parts.first() {
            batches.push(concat_batches(&first.schema(), &parts)?);
        }
        let versions = self.version_snapshot(since)?;
        if versions.num_rows() > 0 {
            batches.push(versions);
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
        if batch.num_columns() < OWN_COLUMNS {
            return Err(wrong());
        }
        let side = batch.column(0).as_primitive_opt::<Int8Type>();
        match side.ok_or_else(wrong)?.value(0) {
            0 => self.restore_waiting(batch),
            1 => self.restore_versions(batch),
            _ => Err(wrong()),
        }
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        for waiting in std::mem::take(&mut self.waiting) {
            let keep = self.in_buckets(&waiting, buckets)?;
            let kept = waiting.only(keep.into_iter().map(|gone| !gone).collect())?;
            if kept.chunk.rows() > 0 {
                self.waiting.push_back(kept);
            }
        }
        Ok(())
    }

    fn drop_emitted(&mut self, watermark: EventTime) -> Result<()> {
        for waiting in std::mem::take(&mut self.waiting) {
            self.waiting.extend(waiting.split(watermark)?.1);
        }
        // Of several instances that it is restored from, this is the smallest watermark. What another one
        // had forgotten, this one still had.
        self.kept_from = watermark.saturating_sub(KEPT_BEHIND_US);
        self.versions.forget(self.kept_from)
    }

    fn publish(&mut self, _cut: u64) -> bool {
        false
    }
}
