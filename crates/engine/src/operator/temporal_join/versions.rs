//! The versions of a table's keys.

use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::SchemaRef;
use arrow_select::interleave::interleave;
use hashbrown::HashTable;

use crate::chunk::Chunk;
use crate::error::Result;
use crate::key::{EncodedKeys, Key};
use crate::state::{Mark, Touched};
use crate::time::EventTime;

/// The number of rows below which no unneeded versions are looked for: a chunk's worth.
const ROWS_MIN: usize = 8192;

/// The number of batches from which rows may be picked without much cost. It is lower in tests, so that
/// their short inputs also make the join forget versions.
const BATCHES_MIN: usize = if cfg!(test) { 4 } else { 64 };

/// The versions of keys, by key and time.
pub struct Versions {
    schema: SchemaRef,
    /// The numbers of keys by hash. A key stays, because its latest version does.
    by_key: HashTable<u32>,
    keys: Vec<OfKey>,
    /// When each key last got a version.
    touched: Touched,
    /// The rows of the versions.
    batches: Vec<RecordBatch>,
    rows: usize,
    /// The number of versions that were still needed when last counted.
    live_rows: usize,
    /// The place of the next version that comes without one.
    arrived: u64,
}

struct OfKey {
    hash: u64,
    /// The encoded key.
    key: Box<[u8]>,
    /// The versions in the order of their times.
    versions: Vec<Version>,
}

#[derive(Clone, Copy)]
struct Version {
    from: EventTime,
    place: Place,
    batch: u32,
    row: u32,
    mark: Mark,
}

/// The partition and position of a version: of several versions from the same time on, only the last one
/// counts and is kept.
pub type Place = (u32, u64);

impl OfKey {
    /// Adds a version, unless there is a later one from the same time on.
    fn add(&mut self, version: Version) {
        let before = self.versions.partition_point(|v| v.from < version.from);
        match self.versions.get_mut(before) {
            Some(known) if known.from == version.from => {
                if known.place < version.place {
                    *known = version;
                }
            }
            _ => self.versions.insert(before, version),
        }
    }
}

impl Versions {
    /// An empty set of versions.
    pub fn new(schema: SchemaRef) -> Versions {
        Versions {
            schema,
            by_key: HashTable::new(),
            keys: Vec::new(),
            touched: Touched::default(),
            batches: Vec::new(),
            rows: 0,
            live_rows: 0,
            arrived: 0,
        }
    }

    /// The places of a chunk's rows; if they have none, their order of arrival.
    pub fn places(&mut self, chunk: &Chunk) -> Vec<Place> {
        let before = self.arrived;
        self.arrived += chunk.rows() as u64;
        let place = |row: usize| match &chunk.origin {
            Some(origin) => origin.place(row),
            None => (0, before + row as u64),
        };
        (0..chunk.rows()).map(place).collect()
    }

    /// Adds rows, which are valid from `times` on. A NULL key equals nothing. A version that exists
    /// already counts once.
    pub fn add(
        &mut self,
        rows: RecordBatch,
        times: &[EventTime],
        places: &[Place],
        keys: &EncodedKeys,
        mark: Mark,
    ) {
        let batch = self.batches.len() as u32;
        for (row, (&from, &place)) in times.iter().zip(places).enumerate() {
            if keys.is_null(row) {
                continue;
            }
            let version = Version {
                from,
                place,
                batch,
                row: row as u32,
                mark,
            };
            let key = keys.key(row);
            let keys = &mut self.keys;
            let same = |&number: &u32| *keys[number as usize].key == *key.bytes();
            let number = match self.by_key.find(key.hash(), same).copied() {
                Some(number) => {
                    keys[number as usize].add(version);
                    number
                }
                None => {
                    let number = keys.len() as u32;
                    keys.push(OfKey {
                        hash: key.hash(),
                        key: key.bytes().into(),
                        versions: vec![version],
                    });
                    let hash = |&number: &u32| keys[number as usize].hash;
                    self.by_key.insert_unique(key.hash(), number, hash);
                    self.touched.grow(keys.len());
                    number
                }
            };
            self.touched.touch(number, mark);
        }
        self.rows += times.len();
        self.batches.push(rows);
    }

    /// Makes versions that come without a place later than these.
    pub fn arrive_behind(&mut self, places: &[Place]) {
        let last = places.iter().map(|place| place.1.saturating_add(1)).max();
        self.arrived = self.arrived.max(last.unwrap_or(0));
    }

    /// The versions that came since `since`, with their places, in any order.
    pub fn since(&mut self, since: Mark) -> Result<(RecordBatch, Vec<Place>)> {
        let keys = self.touched.since(since).into_iter();
        let versions = keys.flat_map(|key| &self.keys[key as usize].versions);
        let new = versions.filter(|version| version.mark > since);
        let (rows, places): (Vec<_>, Vec<_>) = new
            .map(|version| (Some((version.batch, version.row)), version.place))
            .unzip();
        let columns = self.columns(&rows)?;
        Ok((RecordBatch::try_new(self.schema.clone(), columns)?, places))
    }

    /// About how many bytes the rows take.
    pub fn bytes(&self) -> usize {
        let batches = self.batches.iter();
        batches.map(|batch| batch.get_array_memory_size()).sum()
    }

    /// The place of the row that is the version of a key at a time.
    pub fn at(&self, key: Key<'_>, time: EventTime) -> Option<(u32, u32)> {
        let same = |&number: &u32| *self.keys[number as usize].key == *key.bytes();
        let known = &self.keys[*self.by_key.find(key.hash(), same)? as usize];
        let after = known
            .versions
            .partition_point(|version| version.from <= time);
        let version = known.versions[..after].last()?;
        Some((version.batch, version.row))
    }

    /// The columns of the rows at these places; NULL for no place.
    pub fn columns(&self, places: &[Option<(u32, u32)>]) -> Result<Vec<ArrayRef>> {
        // The batch after the last one stands for no place.
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

    /// Forgets versions that no time from `time` on needs: all versions of a key before the one at
    /// `time`.
    pub fn forget(&mut self, time: EventTime) -> Result<()> {
        // Versions are searched when there may be as many to forget as to keep, or when so many small
        // batches have come that each pick would take long: with 1,000 rows to keep for each, copying
        // them costs less than 1,000 row copies a batch.
        let is_long = self.rows >= ROWS_MIN.max(2 * self.live_rows);
        let is_split = self.batches.len() > BATCHES_MIN + self.live_rows / 1000;
        if !is_long && !is_split {
            return Ok(());
        }
        let mut places = Vec::new();
        for known in &mut self.keys {
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
