//! The kept rows of one side: by key, in the order of their times.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::SchemaRef;

use crate::error::Result;
use crate::hash;
use crate::key::Key;
use crate::operator::keyed::Keyed;
use crate::state::Mark;
use crate::time::EventTime;

/// The place of a row among those of its key: its time, then its number.
pub type Place = (EventTime, u64);

/// A row with its state.
pub struct Kept {
    /// Whether it has found a partner, so that it is not padded.
    pub matched: bool,
    /// When it came, or found its first partner.
    pub mark: Mark,
    /// The encoded values.
    pub values: Box<[u8]>,
}

/// The bits of a row's number that are a hash of its values, if every instance has the row; the others tell
/// rows of the same hash apart.
const NUMBER_HASH: u64 = !0xFFFF_FFFF;

/// About how many bytes a row takes in addition to its values: its place and its part of the tree.
const ROW_BYTES: usize = 56;

/// One side.
pub struct Side {
    /// Converts whole rows.
    pub converter: RowConverter,
    /// Rows by key. A key is due when its first row has no partner left to wait for.
    pub keys: Keyed<BTreeMap<Place, Kept>>,
    bytes: usize,
}

impl Side {
    /// A side without rows.
    pub fn new(schema: &SchemaRef) -> Result<Side> {
        let fields = schema.fields().iter();
        let fields = fields.map(|field| SortField::new(field.data_type().clone()));
        Ok(Side {
            converter: RowConverter::new(fields.collect())?,
            keys: Keyed::default(),
            bytes: 0,
        })
    }

    /// The rows of a batch, encoded.
    pub fn encode(&self, batch: &RecordBatch) -> Result<Rows> {
        Ok(self.converter.convert_columns(batch.columns())?)
    }

    /// The columns of encoded rows.
    pub fn decode<'a>(&self, rows: impl Iterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>> {
        let parser = self.converter.parser();
        let rows = rows.map(|values| parser.parse(values));
        Ok(self.converter.convert_rows(rows)?)
    }

    /// The columns of kept rows.
    pub fn columns(&self, rows: impl Iterator<Item = (u32, Place)>) -> Result<Vec<ArrayRef>> {
        let values = rows.map(|(key, place)| &*self.keys.get(key)[&place].values);
        self.decode(values)
    }

    /// The place of a new row that every instance has: its number begins with the hash of its values, so that
    /// equal rows of one time are next to each other.
    pub fn place_by_values(&self, key: Key<'_>, time: EventTime, values: &[u8]) -> Place {
        let first = hash::of_bytes(values) & NUMBER_HASH;
        let rows = self.keys.find(key).map(|key| self.keys.get(key));
        let last = rows.and_then(|rows| {
            let range = (time, first)..=(time, first | !NUMBER_HASH);
            rows.range(range).next_back().map(|(place, _)| place.1)
        });
        (time, last.map_or(first, |last| last + 1))
    }

    /// How many of a key's rows at the time of `end` have these values and a number before that of `end`, of
    /// rows that every instance has.
    pub fn equal_before(&self, key: u32, end: Place, values: &[u8]) -> u64 {
        let first = (end.0, hash::of_bytes(values) & NUMBER_HASH);
        let rows = self.keys.get(key).range(first..end.max(first));
        rows.filter(|(_, row)| *row.values == *values).count() as u64
    }

    /// How many of a key's rows at this time have these values, of rows that every instance has.
    pub fn equal(&self, key: Key<'_>, time: EventTime, values: &[u8]) -> u64 {
        let end = (time, hash::of_bytes(values) | !NUMBER_HASH);
        let key = self.keys.find(key);
        key.map_or(0, |key| self.equal_before(key, end, values))
    }

    /// Keeps a row, replacing one at the same place. The caller sets when its key is due.
    pub fn insert(&mut self, key: Key<'_>, place: Place, row: Kept) {
        let key = self.keys.find_or_insert(key, BTreeMap::new);
        self.bytes += row.values.len() + ROW_BYTES;
        self.keys.touch(key, row.mark);
        if let Some(before) = self.keys.get_mut(key).insert(place, row) {
            self.bytes -= before.values.len() + ROW_BYTES;
        }
    }

    /// The places of a key's rows from one time to another, after `last`.
    pub fn between(
        &self,
        key: u32,
        from: EventTime,
        to: EventTime,
        last: Option<Place>,
    ) -> impl Iterator<Item = Place> {
        let rows = self.keys.get(key);
        let first = match last {
            Some(last) => Excluded(last),
            None => Included((from, 0)),
        };
        // Reversed limits contain nothing; nor does a range that ends before it begins.
        let is_empty = from > to || last.is_some_and(|last| last >= (to, u64::MAX));
        let range = (!is_empty).then(|| rows.range((first, Included((to, u64::MAX)))));
        range.into_iter().flatten().map(|(place, _)| *place)
    }

    /// Notes that a row has found a partner; returns whether it is its first.
    pub fn note_matched(&mut self, key: u32, place: Place, mark: Mark) -> bool {
        let row = self.keys.get_mut(key).get_mut(&place);
        let Some(row) = row.filter(|row| !row.matched) else {
            return false;
        };
        (row.matched, row.mark) = (true, mark);
        self.keys.touch(key, mark);
        true
    }

    /// The time of a key's first row.
    pub fn first_time(&self, key: u32) -> Option<EventTime> {
        let first = self.keys.get(key).first_key_value();
        first.map(|((time, _), _)| *time)
    }

    /// Removes a key's first row.
    pub fn pop_first(&mut self, key: u32) -> Option<Kept> {
        let (_, row) = self.keys.get_mut(key).pop_first()?;
        self.bytes -= row.values.len() + ROW_BYTES;
        Some(row)
    }

    /// Forgets the key if it has no rows.
    pub fn forget_empty(&mut self, key: u32) {
        if self.keys.get(key).is_empty() {
            self.keys.remove(key);
        }
    }

    /// Forgets a key and its rows.
    pub fn remove(&mut self, key: u32) {
        for row in self.keys.remove(key).values() {
            self.bytes -= row.values.len() + ROW_BYTES;
        }
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.bytes = 0;
    }

    /// About how many bytes it holds.
    pub fn bytes(&self) -> usize {
        self.keys.bytes() + self.bytes
    }
}
