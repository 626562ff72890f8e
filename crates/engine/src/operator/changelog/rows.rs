//! Rows by key, each with a count: the state of joins and top-N.
//!
//! A row is kept encoded, so that it can be found by its content when it is retracted, and rows of one key
//! are sorted: in the order of [`RowOrder`], then of all their columns, or of their bytes where any order
//! will do ([`packed`]). It is the same whichever came first (I1).

mod encoder;
mod head;
mod number;
mod of_key;
mod packed;
mod slab;
mod slices;
mod snapshots;
mod sorted;
mod text;

use std::collections::VecDeque;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

pub(super) use self::encoder::Encoder;
pub use self::encoder::{Encoded, RowOrder};
use self::slab::Slab;
use self::sorted::SortedRows;
use crate::chunk::Chunk;
use crate::error::Result;
use crate::key::Key;
use crate::state::{BucketSet, Mark, Touched};
use crate::time::{EventTime, MIN_WATERMARK};

/// Rows by key.
pub struct KeyedRows {
    encoder: Encoder,
    /// Places in `slab`, by the keys' hashes.
    table: HashTable<u32>,
    slab: Slab,
    /// When the rows of each place in `slab` last changed.
    touched: Touched,
    /// Rows that were removed since the last stored snapshot, which may still hold them, in order of their
    /// marks.
    gone: VecDeque<Gone>,
    /// A snapshot that is being taken in slices.
    open: Option<slices::Open>,
    bytes: usize,
}

/// The rows of one key.
#[derive(Default)]
pub struct OfKey {
    hash: u64,
    rows: SortedRows,
    /// The watermark when any of the rows last changed.
    pub touched_at: EventTime,
}

/// The mark and the watermark that a changed row gets.
#[derive(Debug, Clone, Copy)]
pub struct Touch {
    /// See [`crate::state::Clock::mark`].
    pub mark: Mark,
    /// See [`Retention::now`].
    pub at: EventTime,
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// The number of copies, at least one.
    pub count: u32,
    /// The number of partners on the other side, if a join counts them.
    pub partners: u32,
    /// The watermark when the row last changed.
    pub touched_at: EventTime,
    mark: Mark,
}

struct Gone {
    hash: u64,
    key: Box<[u8]>,
    row: Box<[u8]>,
    mark: Mark,
}

/// The memory of a row in addition to its bytes: its head, and what its page leaves unused.
const ROW_BYTES: usize = 16;
/// The memory of a key in addition to its bytes: its entry, and its place in a table that is half full.
const KEY_BYTES: usize = size_of::<OfKey>() + 10;

impl KeyedRows {
    /// No rows yet, with the columns of `schema`, by the columns `keys` (none: all rows have one key).
    pub fn new(schema: SchemaRef, keys: Vec<usize>, order: RowOrder) -> Result<KeyedRows> {
        Ok(KeyedRows::of(Encoder::sorted(schema, keys, order)?))
    }

    /// The same for rows whose order doesn't matter, as long as it is always the same.
    pub fn unordered(schema: SchemaRef, keys: Vec<usize>) -> Result<KeyedRows> {
        Ok(KeyedRows::of(Encoder::packed(schema, keys)?))
    }

    fn of(encoder: Encoder) -> KeyedRows {
        KeyedRows {
            encoder,
            table: HashTable::new(),
            slab: Slab::default(),
            touched: Touched::default(),
            gone: VecDeque::new(),
            open: None,
            bytes: 0,
        }
    }

    /// Encodes the rows of a chunk.
    pub fn encode(&self, chunk: &Chunk) -> Result<Encoded> {
        self.encoder.encode(chunk)
    }

    /// Encodes the beginnings of a chunk's rows: see [`OfKey::is_beyond`].
    pub fn encode_order(&self, chunk: &Chunk) -> Result<Option<Encoded>> {
        self.encoder.encode_order(chunk)
    }

    /// The rows that these encodings stand for.
    pub fn decode<'r>(&self, encodings: impl Iterator<Item = &'r [u8]>) -> Result<RecordBatch> {
        self.encoder.decode(encodings)
    }

    /// All keys with their rows.
    pub fn keys(&self) -> impl Iterator<Item = &OfKey> {
        self.slab.iter()
    }

    /// The rows of a key that were not forgotten.
    pub fn of_key(&self, key: Key<'_>) -> Option<&OfKey> {
        let place = self.place(key)?;
        Some(self.slab.get(place))
    }

    /// The rows of a key, to be changed now ([`Kept::set_partners`]).
    pub fn of_key_mut(&mut self, key: Key<'_>, mark: Mark) -> Option<&mut OfKey> {
        let place = self.place(key)?;
        self.touch(place, mark);
        Some(self.slab.get_mut(place))
    }

    fn place(&self, key: Key<'_>) -> Option<u32> {
        let is_it = |&place: &u32| self.slab.get(place).is(key);
        self.table.find(key.hash(), is_it).copied()
    }

    /// The place of a key whose rows change now; it is created if it is new.
    fn place_or_new(&mut self, key: Key<'_>, mark: Mark) -> u32 {
        let slab = &self.slab;
        let is_it = |&place: &u32| slab.get(place).is(key);
        let place = match (self.table).entry(key.hash(), is_it, |&place| slab.get(place).hash) {
            Entry::Occupied(there) => *there.get(),
            Entry::Vacant(vacant) => {
                let place = self.slab.add(OfKey {
                    hash: key.hash(),
                    rows: SortedRows::new(key.bytes()),
                    touched_at: MIN_WATERMARK,
                });
                vacant.insert(place);
                self.bytes += key.bytes().len() + KEY_BYTES;
                place
            }
        };
        self.touched.grow(place as usize + 1);
        self.touch(place, mark);
        place
    }

    /// Notes that the rows of a key change now.
    fn touch(&mut self, place: u32, mark: Mark) {
        self.copy_early(place);
        self.touched.touch(place, mark);
    }

    /// Adds one copy of a row, which has this many partners now. Returns the row's new entry.
    pub fn add(&mut self, key: Key<'_>, row: &[u8], partners: u32, now: Touch) -> Kept {
        let place = self.place_or_new(key, now.mark);
        let of_key = self.slab.get_mut(place);
        of_key.touched_at = now.at;
        let mut kept = Kept {
            count: 1,
            partners,
            touched_at: now.at,
            mark: now.mark,
        };
        match of_key.rows.find(row) {
            Ok(there) => {
                kept.count += of_key.rows.kept(there).count;
                of_key.rows.set(there, kept);
            }
            Err(place) => {
                of_key.rows.insert(place, row, kept);
                self.bytes += row.len() + ROW_BYTES;
            }
        }
        kept
    }

    /// Removes one copy of a row; returns the entry before, or `None` if the row was forgotten.
    pub fn remove(&mut self, key: Key<'_>, row: &[u8], now: Touch) -> Option<Kept> {
        let of_key = self.of_key_mut(key, now.mark)?;
        let there = of_key.rows.find(row).ok()?;
        let before = of_key.rows.kept(there);
        of_key.touched_at = now.at;
        if before.count > 1 {
            let count = before.count - 1;
            let after = Kept {
                count,
                touched_at: now.at,
                mark: now.mark,
                ..before
            };
            of_key.rows.set(there, after);
        } else {
            of_key.rows.remove(there);
            self.forget(key, row, now.mark);
        }
        Some(before)
    }

    /// Called after the removal of a row.
    fn forget(&mut self, key: Key<'_>, row: &[u8], mark: Mark) {
        self.bytes = self.bytes.saturating_sub(row.len() + ROW_BYTES);
        // Before the first mark has ended, no snapshot can hold the row.
        if !mark.is_first() {
            self.gone.push_back(Gone {
                hash: key.hash(),
                key: key.bytes().into(),
                row: row.into(),
                mark,
            });
        }
        let is_it = |&place: &u32| self.slab.get(place).is(key);
        if let Ok(found) = self.table.find_entry(key.hash(), is_it)
            && self.slab.get(*found.get()).rows.is_empty()
        {
            self.bytes = self.bytes.saturating_sub(key.bytes().len() + KEY_BYTES);
            let (place, _) = found.remove();
            self.slab.remove(place);
        }
    }

    /// Keeps only the first `most` rows of a key, counting each copy.
    pub fn keep_first(&mut self, key: Key<'_>, most: usize, mark: Mark) {
        loop {
            let Some(of_key) = self.of_key_mut(key, mark) else {
                return;
            };
            let excess = of_key.count().saturating_sub(most);
            if excess == 0 {
                return;
            }
            let (row, place) = of_key.rows.last().expect("there are too many");
            let row = Box::<[u8]>::from(row);
            let kept = of_key.rows.kept(place);
            if kept.count as usize > excess {
                let count = kept.count - excess as u32;
                of_key.rows.set(
                    place,
                    Kept {
                        count,
                        mark,
                        ..kept
                    },
                );
                return;
            }
            of_key.rows.remove(place);
            self.forget(key, &row, mark);
        }
    }

    /// Stamps what was touched before any watermark: it changes now.
    pub fn stamp(&mut self, now: Touch) {
        let places = self.table.iter().copied().collect::<Vec<u32>>();
        for place in places {
            let of_key = self.slab.get(place);
            let is_early = |(_, kept): (&[u8], Kept)| kept.touched_at == MIN_WATERMARK;
            let has_early = of_key.rows.iter().any(is_early);
            if !has_early {
                continue;
            }
            self.touch(place, now.mark);
            let of_key = self.slab.get_mut(place);
            of_key.touched_at = of_key.touched_at.max(now.at);
            of_key.rows.for_each_mut(|kept| {
                if kept.touched_at == MIN_WATERMARK {
                    (kept.touched_at, kept.mark) = (now.at, now.mark);
                }
            });
        }
    }

    /// Drops all rows for which `is_old` is true of the times of the key's and of their own last change.
    pub fn drop_old(&mut self, mark: Mark, is_old: impl Fn(EventTime, EventTime) -> bool) {
        let KeyedRows {
            gone,
            bytes,
            slab,
            touched,
            open,
            ..
        } = self;
        self.table.retain(|&mut place| {
            let of_key = slab.get_mut(place);
            let (hash, key_at) = (of_key.hash, of_key.touched_at);
            let is_row_old = |(_, kept): (&[u8], Kept)| is_old(key_at, kept.touched_at);
            let has_old = of_key.rows.iter().any(is_row_old);
            if !has_old {
                return true;
            }
            slices::copy_early(open, touched, of_key, place);
            touched.touch(place, mark);
            let keeps_gone = !mark.is_first();
            let key = keeps_gone.then(|| Box::<[u8]>::from(of_key.rows.key()));
            of_key.rows.retain(|row, kept| {
                let stays = !is_old(key_at, kept.touched_at);
                if !stays {
                    *bytes = bytes.saturating_sub(row.len() + ROW_BYTES);
                    gone.extend(key.clone().map(|key| Gone {
                        hash,
                        key,
                        row: row.into(),
                        mark,
                    }));
                }
                stays
            });
            let stays = !of_key.rows.is_empty();
            if !stays {
                *bytes = bytes.saturating_sub(of_key.rows.key().len() + KEY_BYTES);
                slab.remove(place);
            }
            stays
        });
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.table.clear();
        self.slab = Slab::default();
        self.touched.clear();
        self.gone.clear();
        self.open = None;
        self.bytes = 0;
    }

    /// About how many bytes it holds.
    pub fn bytes(&self) -> usize {
        let gone = self.gone.iter().map(|gone| gone.key.len() + gone.row.len());
        let gone = gone.sum::<usize>() + self.gone.capacity() * size_of::<Gone>();
        self.bytes + gone + self.touched.bytes()
    }

    fn put(&mut self, key: Key<'_>, row: &[u8], kept: Kept) {
        #[cfg(test)]
        crate::state::work::note(1);
        if kept.count == 0 {
            if let Some(of_key) = self.of_key_mut(key, kept.mark)
                && let Ok(there) = of_key.rows.find(row)
            {
                of_key.rows.remove(there);
                self.forget(key, row, kept.mark);
            }
            return;
        }
        let place = self.place_or_new(key, kept.mark);
        let of_key = self.slab.get_mut(place);
        of_key.touched_at = of_key.touched_at.max(kept.touched_at);
        match of_key.rows.find(row) {
            Ok(there) => of_key.rows.set(there, kept),
            Err(place) => {
                of_key.rows.insert(place, row, kept);
                self.bytes += row.len() + ROW_BYTES;
            }
        }
    }

    /// Drops the rows of `buckets`, which belong to another instance now.
    pub fn discard(&mut self, buckets: &BucketSet) {
        let (bytes, slab) = (&mut self.bytes, &mut self.slab);
        self.table.retain(|&mut place| {
            let of_key = slab.get(place);
            let stays = !buckets.contains_hash(of_key.hash);
            if !stays {
                let rows = of_key.rows.iter().map(|(row, _)| row.len() + ROW_BYTES);
                let of_key = rows.sum::<usize>() + of_key.rows.key().len() + KEY_BYTES;
                *bytes = bytes.saturating_sub(of_key);
                slab.remove(place);
            }
            stays
        });
        self.gone.retain(|gone| !buckets.contains_hash(gone.hash));
    }
}
