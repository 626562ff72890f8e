//! The versions of a table's keys.

use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::SchemaRef;
use arrow_select::interleave::interleave;
use hashbrown::HashTable;

use super::super::table_join::index::Search;
use crate::chunk::Chunk;
use crate::error::Result;
use crate::time::EventTime;

/// Rows that are not looked through for versions nobody needs any more: a chunk's worth.
const ROWS_MIN: usize = 8192;

/// Batches that rows may be picked from without a thought.
const BATCHES_MIN: usize = 64;

/// Versions by key and time.
pub struct Versions {
    schema: SchemaRef,
    by_key: HashTable<Key>,
    /// The rows that versions are.
    batches: Vec<RecordBatch>,
    rows: usize,
    /// Versions that are still needed when they were counted last.
    live_rows: usize,
}

struct Key {
    hash: u64,
    /// Encoded.
    key: Box<[u8]>,
    /// In the order of their times.
    versions: Vec<Version>,
}

#[derive(Clone, Copy)]
struct Version {
    from: EventTime,
    /// Partition and position: of several versions from the same time on the last one counts.
    place: (u32, u64),
    batch: u32,
    row: u32,
}

impl Versions {
    /// Without any.
    pub fn new(schema: SchemaRef) -> Versions {
        Versions {
            schema,
            by_key: HashTable::new(),
            batches: Vec::new(),
            rows: 0,
            live_rows: 0,
        }
    }

    /// Adds the rows of a chunk, which begin at `times`. A key that is NULL equals nothing.
    pub fn add(&mut self, chunk: Chunk, times: &[EventTime], keys: &Search) -> Result<()> {
        let batch = self.batches.len() as u32;
        for (row, &from) in times.iter().enumerate() {
            if keys.is_null[row] {
                continue;
            }
            let origin = chunk.origin.as_ref();
            let place = origin.map(|origin| (origin.partition, origin.positions.at(row)));
            let version = Version {
                from,
                place: place.unwrap_or((0, self.rows as u64 + row as u64)),
                batch,
                row: row as u32,
            };
            let (hash, encoded) = (keys.hashes[row], keys.keys.row(row));
            let same = |known: &Key| *known.key == *encoded.data();
            match self.by_key.find_mut(hash, same) {
                Some(known) => {
                    let order = |version: &Version| (version.from, version.place);
                    let after = known
                        .versions
                        .partition_point(|v| order(v) <= order(&version));
                    known.versions.insert(after, version);
                }
                None => {
                    let key = Key {
                        hash,
                        key: encoded.data().into(),
                        versions: vec![version],
                    };
                    self.by_key.insert_unique(hash, key, |key| key.hash);
                }
            }
        }
        self.rows += times.len();
        self.batches.push(chunk.batch);
        Ok(())
    }

    /// The version of a key at a time: where its row is.
    pub fn at(&self, hash: u64, key: &[u8], time: EventTime) -> Option<(u32, u32)> {
        let known = self.by_key.find(hash, |known| *known.key == *key)?;
        let after = known
            .versions
            .partition_point(|version| version.from <= time);
        let version = known.versions[..after].last()?;
        Some((version.batch, version.row))
    }

    /// The columns of the rows at these places; NULL where there is none.
    pub fn columns(&self, places: &[Option<(u32, u32)>]) -> Result<Vec<ArrayRef>> {
        // Nowhere is behind the last batch.
        let nowhere = (self.batches.len(), 0);
        let places = places.iter().map(|place| match place {
            Some((batch, row)) => (*batch as usize, *row as usize),
            None => nowhere,
        });
        let places = places.collect::<Vec<(usize, usize)>>();
        let columns = self
            .schema
            .fields()
            .iter()
            .enumerate()
            .map(|(column, field)| {
                let null = new_null_array(field.data_type(), 1);
                let batches = self.batches.iter().map(|batch| batch.column(column));
                let arrays = batches.chain([&null]).map(|array| array.as_ref());
                Ok(interleave(&arrays.collect::<Vec<_>>(), &places)?)
            });
        columns.collect()
    }

    /// How many rows are kept.
    #[cfg(test)]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Forgets what no time from `time` on needs: all versions of a key before the one at `time`.
    pub fn forget(&mut self, time: EventTime) -> Result<()> {
        // Looked through when there may be as many to forget as to keep, or when so many small batches
        // have come that each pick would take long: with 1,000 rows to keep for each, copying them
        // costs less than 1,000 row copies a batch.
        let is_long = self.rows >= ROWS_MIN.max(2 * self.live_rows);
        let is_split = self.batches.len() > BATCHES_MIN + self.live_rows / 1000;
        if !is_long && !is_split {
            return Ok(());
        }
        let mut places = Vec::new();
        for known in &mut self.by_key {
            let after = known
                .versions
                .partition_point(|version| version.from <= time);
            known.versions.drain(..after.saturating_sub(1));
            for version in &mut known.versions {
                places.push(Some((version.batch, version.row)));
                (version.batch, version.row) = (0, places.len() as u32 - 1);
            }
        }
        let columns = self.columns(&places)?;
        self.batches = vec![RecordBatch::try_new(self.schema.clone(), columns)?];
        (self.rows, self.live_rows) = (places.len(), places.len());
        Ok(())
    }
}
