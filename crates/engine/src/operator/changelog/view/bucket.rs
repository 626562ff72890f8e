//! The rows of one bucket of a view, by key. A bucket is copied as a whole if it changes while a reader
//! holds it, so its rows lie in one allocation.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;

use crate::error::{Error, Result};
use crate::key::Key;
use crate::state::Mark;
use crate::time::{EventTime, MAX_WATERMARK};

/// The rows of a bucket.
#[derive(Clone)]
pub(super) struct Bucket {
    table: HashTable<Entry>,
    /// The encodings: of each entry its key, then its row.
    bytes: Vec<u8>,
    /// How many of `bytes` belong to no entry.
    unused: usize,
    /// When it last changed.
    pub changed: Mark,
    /// No row expires before this time.
    pub first_expiry: EventTime,
}

/// Where a row lies, and what is known of it.
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    start: u32,
    key_bytes: u32,
    row_bytes: u32,
    stamp: Stamp,
}

/// What is kept beside a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The number of copies, at least one.
    pub count: u32,
    /// When the row last changed.
    pub mark: Mark,
    /// The watermark from which on the row is no longer kept.
    pub expires: EventTime,
}

/// A row of a bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'b> {
    /// The row's key.
    pub key: Key<'b>,
    /// The row's encoding.
    pub row: &'b [u8],
    /// What is kept beside it.
    pub stamp: Stamp,
}

/// The least number of bytes without an entry at which they are worth a copy of the others.
const UNUSED_MIN: usize = 1024;

/// The memory of an entry in addition to its bytes, in a table that is half full.
const ENTRY_BYTES: usize = 2 * (size_of::<Entry>() + 1);

impl Default for Bucket {
    fn default() -> Bucket {
        Bucket {
            table: HashTable::new(),
            bytes: Vec::new(),
            unused: 0,
            changed: Mark::default(),
            first_expiry: MAX_WATERMARK,
        }
    }
}

impl Entry {
    fn key<'b>(&self, bytes: &'b [u8]) -> Key<'b> {
        let start = self.start as usize;
        Key::stored(self.hash, &bytes[start..start + self.key_bytes as usize])
    }

    fn row<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let start = self.start as usize + self.key_bytes as usize;
        &bytes[start..start + self.row_bytes as usize]
    }

    fn len(&self) -> usize {
        self.key_bytes as usize + self.row_bytes as usize
    }

    fn is(&self, key: Key<'_>, bytes: &[u8]) -> bool {
        self.hash == key.hash() && self.key(bytes).bytes() == key.bytes()
    }

    fn shown<'b>(&self, bytes: &'b [u8]) -> Row<'b> {
        Row {
            key: self.key(bytes),
            row: self.row(bytes),
            stamp: self.stamp,
        }
    }
}

impl Bucket {
    /// The row of a key.
    pub fn get(&self, key: Key<'_>) -> Option<Row<'_>> {
        let entry = self
            .table
            .find(key.hash(), |entry| entry.is(key, &self.bytes))?;
        Some(entry.shown(&self.bytes))
    }

    /// Sets the row of a key.
    ///
    /// # Errors
    ///
    /// When the bucket's rows would take 4 GiB or more.
    pub fn put(&mut self, key: Key<'_>, row: &[u8], stamp: Stamp) -> Result<()> {
        self.changed = self.changed.max(stamp.mark);
        self.first_expiry = self.first_expiry.min(stamp.expires);
        let bytes = &self.bytes;
        if let Some(entry) = (self.table).find_mut(key.hash(), |entry| entry.is(key, bytes))
            && entry.row_bytes as usize == row.len()
        {
            let start = entry.start as usize + entry.key_bytes as usize;
            entry.stamp = stamp;
            self.bytes[start..start + row.len()].copy_from_slice(row);
            return Ok(());
        }
        let start = self.bytes.len();
        let (Ok(end), Ok(place)) = (
            u32::try_from(start + key.bytes().len() + row.len()),
            u32::try_from(start),
        ) else {
            let error = "the rows of one bucket of the view take 4 GiB";
            return Err(Error::new("materialized view", error)
                .hint("keep fewer columns, or let old rows expire"));
        };
        let entry = Entry {
            hash: key.hash(),
            start: place,
            key_bytes: key.bytes().len() as u32,
            row_bytes: end - place - key.bytes().len() as u32,
            stamp,
        };
        let is_it = |entry: &Entry| entry.is(key, bytes);
        match self.table.entry(key.hash(), is_it, |entry| entry.hash) {
            Place::Occupied(mut there) => {
                self.unused += there.get().len();
                *there.get_mut() = entry;
            }
            Place::Vacant(vacant) => {
                vacant.insert(entry);
            }
        }
        self.bytes.extend_from_slice(key.bytes());
        self.bytes.extend_from_slice(row);
        self.tidy();
        Ok(())
    }

    /// Changes what is kept beside the row of a key, which is there.
    pub fn set(&mut self, key: Key<'_>, stamp: Stamp) {
        self.changed = self.changed.max(stamp.mark);
        self.first_expiry = self.first_expiry.min(stamp.expires);
        let bytes = &self.bytes;
        let entry = (self.table).find_mut(key.hash(), |entry| entry.is(key, bytes));
        entry.expect("the row is there").stamp = stamp;
    }

    /// Removes the row of a key; returns whether there was one.
    pub fn remove(&mut self, key: Key<'_>, mark: Mark) -> bool {
        let bytes = &self.bytes;
        let Ok(found) = (self.table).find_entry(key.hash(), |entry| entry.is(key, bytes)) else {
            return false;
        };
        let (entry, _) = found.remove();
        self.changed = self.changed.max(mark);
        self.unused += entry.len();
        self.tidy();
        true
    }

    /// All rows, in no order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.table.iter().map(|entry| entry.shown(&self.bytes))
    }

    /// The number of rows, without their copies.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// About how many bytes it holds.
    pub fn bytes(&self) -> usize {
        self.bytes.capacity() + self.table.len() * ENTRY_BYTES
    }

    /// Copies the rows together when more than half of the bytes belong to none.
    fn tidy(&mut self) {
        if self.unused < UNUSED_MIN || self.unused * 2 < self.bytes.len() {
            return;
        }
        let mut bytes = Vec::with_capacity(self.bytes.len() - self.unused);
        for entry in self.table.iter_mut() {
            let start = entry.start as usize;
            entry.start = bytes.len() as u32;
            bytes.extend_from_slice(&self.bytes[start..start + entry.len()]);
        }
        (self.bytes, self.unused) = (bytes, 0);
    }
}
