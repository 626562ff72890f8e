//! The rows of views, by key, and the changes to them.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use slackwater_link::waiter::Waker;

/// How many parts rows are divided into, by a hash of their key. A scan reads part after part, and a row
/// never changes its part, so it finds every row that is there all the time. One million rows are 250 a
/// part, which is one step of a scan.
pub(super) const PARTS: usize = 4096;

/// The most batches of changes on their way to the main thread: whoever sends more waits.
const BATCHES_MAX: usize = 64;

/// A column of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The name.
    pub name: Arc<str>,
    /// Whether its values stand without quotes in JSON: numbers and booleans.
    pub is_plain: bool,
}

/// A view, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSchema {
    /// The name, which is the first part of every key.
    pub name: Arc<str>,
    /// The columns.
    pub columns: Vec<Column>,
    /// Which columns are the key.
    pub key: Vec<usize>,
}

impl TableSchema {
    /// The only column that is not in the key, if there is just one.
    pub(super) fn value(&self) -> Option<usize> {
        let mut others = (0..self.columns.len()).filter(|index| !self.key.contains(index));
        others.next().filter(|_| others.next().is_none())
    }
}

/// A row: the values of its columns as text; `None` is NULL.
pub(super) type Values = Arc<[Option<Box<[u8]>>]>;

/// A row, and whose it is.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub schema: Arc<TableSchema>,
    pub values: Values,
}

/// A change to the rows of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The row with this key ([`key_of`]) is now this one.
    Put(Box<[u8]>, Arc<[Option<Box<[u8]>>]>),
    /// There is no row with this key.
    Remove(Box<[u8]>),
    /// All rows of the view are gone: its query began again, and sends them.
    Clear,
}

/// Changes of views, by their index, applied together.
type Batch = Vec<(usize, Vec<Change>)>;

/// Nobody applies changes any more.
#[derive(Debug, PartialEq, Eq)]
pub struct FeedClosed;

/// Where the changes of views go. Cloned for each thread that sends some.
#[derive(Clone)]
pub struct Feed {
    sender: SyncSender<Batch>,
    waker: Waker,
}

impl Feed {
    /// Applies changes to the view with this index. Waits while the main thread is behind.
    ///
    /// # Errors
    ///
    /// When the door is closed.
    pub fn apply(&self, table: usize, changes: Vec<Change>) -> Result<(), FeedClosed> {
        self.apply_all(vec![(table, changes)])
    }

    /// Applies changes to several views at once: no command sees some of them only.
    ///
    /// # Errors
    ///
    /// When the door is closed.
    pub fn apply_all(&self, changes: Vec<(usize, Vec<Change>)>) -> Result<(), FeedClosed> {
        let sent = self.sender.send(changes);
        self.waker.wake();
        sent.map_err(|_| FeedClosed)
    }
}

/// Both ends of the way of changes.
pub(super) fn feed(waker: Waker) -> (Feed, Receiver<Batch>) {
    let (sender, receiver) = std::sync::mpsc::sync_channel(BATCHES_MAX);
    (Feed { sender, waker }, receiver)
}

/// The key of a row as clients say it: the view's name and the values of the key's columns, with `:`
/// between. `%`, `:` and bytes that are not printable ASCII are written as `%` and two digits in values; NULL
/// is `%00`.
pub fn key_of<'a>(table: &str, values: impl IntoIterator<Item = Option<&'a [u8]>>) -> Box<[u8]> {
    let mut key = table.as_bytes().to_vec();
    for value in values {
        key.push(b':');
        let Some(value) = value else {
            key.extend_from_slice(b"%00");
            continue;
        };
        for &byte in value {
            match byte {
                b'%' | b':' | 0..=b' ' | 127 => {
                    key.push(b'%');
                    for digit in [byte >> 4, byte & 15] {
                        key.push(b"0123456789ABCDEF"[usize::from(digit)]);
                    }
                }
                _ => key.push(byte),
            }
        }
    }
    key.into()
}

/// Rows by key: the view's index, and the values.
type Part = HashMap<Box<[u8]>, (usize, Values), RandomState>;

/// The rows of all views.
pub(super) struct Tables {
    schemas: Vec<Arc<TableSchema>>,
    parts: Vec<Part>,
    hasher: RandomState,
    /// The number of rows of each view.
    rows: Vec<usize>,
    /// The views whose rows have never come.
    missing: Vec<bool>,
    /// How many bytes of changes were applied: what replication calls an offset.
    pub offset: u64,
    changes: Receiver<Batch>,
}

impl Tables {
    pub fn new(schemas: Vec<TableSchema>, changes: Receiver<Batch>) -> Tables {
        let hasher = RandomState::default();
        let part = || HashMap::with_hasher(hasher.clone());
        let (rows, missing) = (vec![0; schemas.len()], vec![true; schemas.len()]);
        Tables {
            schemas: schemas.into_iter().map(Arc::new).collect(),
            parts: (0..PARTS).map(|_| part()).collect(),
            hasher: hasher.clone(),
            rows,
            missing,
            offset: 0,
            changes,
        }
    }

    /// Applies a batch that waits. Returns whether there was one.
    pub fn take(&mut self) -> bool {
        match self.changes.try_recv() {
            Ok(batch) => {
                for (table, changes) in batch {
                    self.missing[table] = false;
                    self.apply(table, changes);
                }
                true
            }
            // Without senders the rows stay as they are.
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => false,
        }
    }

    /// Whether the rows of some view have never come: then it can't be told which there are.
    pub fn are_loading(&self) -> bool {
        self.missing.contains(&true)
    }

    fn apply(&mut self, table: usize, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Put(key, values) => {
                    let bytes = values.iter().flatten().map(|value| value.len());
                    self.offset += (key.len() + bytes.sum::<usize>()) as u64;
                    let part = self.part(&key);
                    let before = self.parts[part].insert(key, (table, values));
                    self.rows[table] += 1;
                    self.forget(before);
                }
                Change::Remove(key) => {
                    self.offset += key.len() as u64;
                    let part = self.part(&key);
                    let before = self.parts[part].remove(&key);
                    self.forget(before);
                }
                Change::Clear => {
                    for part in &mut self.parts {
                        part.retain(|_, (of, _)| *of != table);
                    }
                    self.rows[table] = 0;
                }
            }
        }
    }

    /// Counts a row that is not there any more.
    fn forget(&mut self, row: Option<(usize, Values)>) {
        if let Some((table, _)) = row {
            self.rows[table] -= 1;
        }
    }

    fn part(&self, key: &[u8]) -> usize {
        // The upper bits: the maps use the lower ones.
        (self.hasher.hash_one(key) >> (64 - PARTS.ilog2())) as usize
    }

    pub fn get(&self, key: &[u8]) -> Option<Row> {
        let (table, values) = self.parts[self.part(key)].get(key)?;
        Some(Row {
            schema: Arc::clone(&self.schemas[*table]),
            values: Arc::clone(values),
        })
    }

    pub fn rows(&self) -> usize {
        self.rows.iter().sum()
    }

    /// The number of rows of each view.
    pub fn rows_by_table(&self) -> impl Iterator<Item = (&str, usize)> {
        let names = self.schemas.iter().map(|schema| &*schema.name);
        names.zip(self.rows.iter().copied())
    }

    /// The keys of a part.
    pub fn keys(&self, part: usize) -> impl Iterator<Item = &[u8]> {
        self.parts[part].keys().map(|key| &**key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_escaped_so_that_no_two_rows_have_the_same() {
        let key = |values: &[Option<&str>]| {
            let bytes = values.iter().map(|value| value.map(str::as_bytes));
            String::from_utf8(key_of("totals", bytes).to_vec()).unwrap()
        };
        assert_eq!(key(&[Some("10.0.0.1")]), "totals:10.0.0.1");
        assert_eq!(key(&[Some("a:b"), Some("c")]), "totals:a%3Ab:c");
        assert_eq!(key(&[Some("a"), Some("b:c")]), "totals:a:b%3Ac");
        assert_eq!(key(&[Some("100 %")]), "totals:100%20%25");
        assert_ne!(key(&[None]), key(&[Some("")]));
        assert_eq!(key(&[Some("Zürich")]), "totals:Zürich");
    }
}
