//! A table's rows by their keys.

use arrow_array::RecordBatch;
use hashbrown::HashTable;

use crate::error::{Error, Result};
use crate::key::{EncodedKeys, KeyColumns, KeyEncoder};

/// Marks that there is no further row.
const NONE: u32 = u32::MAX;

/// The rows of a table, indexed by key.
pub struct Index {
    rows: RecordBatch,
    encoder: KeyEncoder,
    /// The rows' keys.
    keys: EncodedKeys,
    /// The first row of each key.
    first: HashTable<u32>,
    /// For each row, the next row of the same key.
    next: Vec<u32>,
}

/// The progress of a search.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cursor {
    /// The next row of the stream.
    pub row: usize,
    /// The row's next partner, if it had others before.
    partner: Option<u32>,
    /// Whether one of those was kept, or failed.
    is_matched: bool,
}

/// Rows of the stream with their partners in the table.
#[derive(Debug, Default, PartialEq)]
pub struct Pairs {
    /// The stream's rows, increasing.
    pub stream: Vec<u32>,
    /// The table's rows; `None` for no partner.
    pub table: Vec<Option<u32>>,
}

impl Index {
    /// An index of the rows by the columns `keys`; without any, all rows have the same key.
    pub fn new(rows: RecordBatch, keys: &[usize]) -> Result<Index> {
        if rows.num_rows() >= NONE as usize {
            let reason = format!("a table of {} rows is too large", rows.num_rows());
            return Err(Error::new("table join", reason)
                .hint("join with a table of fewer than 4,294,967,295 rows"));
        }
        let encoder = KeyEncoder::of_schema(&rows.schema(), keys)?;
        let mut index = Index {
            keys: encoder.encode(KeyColumns::of_batch(&rows, keys)?)?,
            encoder,
            first: HashTable::with_capacity(rows.num_rows()),
            next: vec![NONE; rows.num_rows()],
            rows,
        };
        // Backwards, so that each key's rows are in the order of the table.
        for row in (0..index.next.len() as u32).rev() {
            if index.keys.is_null(row as usize) {
                continue;
            }
            let keys = &index.keys;
            let key = keys.key(row as usize);
            let same = |other: &u32| keys.key(*other as usize).bytes() == key.bytes();
            match index.first.find_mut(key.hash(), same) {
                Some(first) => index.next[row as usize] = std::mem::replace(first, row),
                None => {
                    let hash_of = |row: &u32| keys.hashes()[*row as usize];
                    index.first.insert_unique(key.hash(), row, hash_of);
                }
            }
        }
        Ok(index)
    }

    /// The rows.
    pub fn rows(&self) -> &RecordBatch {
        &self.rows
    }

    /// About how many bytes it holds.
    pub fn bytes(&self) -> usize {
        let lists = self.next.capacity() * 4 + self.first.allocation_size();
        self.rows.get_array_memory_size() + self.keys.bytes() + lists
    }

    /// Encodes search keys: columns of the index's types.
    pub fn encode(&self, keys: KeyColumns) -> Result<EncodedKeys> {
        self.encoder.encode(keys)
    }

    /// The next pairs, at most `limit`.
    pub fn pairs(&self, search: &EncodedKeys, cursor: &mut Cursor, limit: usize) -> Pairs {
        let mut pairs = Pairs::default();
        while cursor.row < search.count() && pairs.len() < limit {
            let mut partner = match cursor.partner {
                Some(partner) => partner,
                None => self.first_partner(search, cursor.row),
            };
            while partner != NONE && pairs.len() < limit {
                pairs.stream.push(cursor.row as u32);
                pairs.table.push(Some(partner));
                partner = self.next[partner as usize];
            }
            if partner != NONE {
                cursor.partner = Some(partner);
                break;
            }
            cursor.partner = None;
            cursor.row += 1;
        }
        pairs
    }

    /// Whether a row has any partner.
    pub fn has_partner(&self, search: &EncodedKeys, row: usize) -> bool {
        self.first_partner(search, row) != NONE
    }

    fn first_partner(&self, search: &EncodedKeys, row: usize) -> u32 {
        if search.is_null(row) {
            return NONE;
        }
        let key = search.key(row);
        let same = |first: &u32| self.keys.key(*first as usize).bytes() == key.bytes();
        let first = self.first.find(key.hash(), same);
        first.copied().unwrap_or(NONE)
    }
}

impl Pairs {
    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.stream.len()
    }

    /// The pairs with the numbers `kept`.
    pub fn only(&self, kept: impl Iterator<Item = usize>) -> Pairs {
        let kept = kept.map(|pair| (self.stream[pair], self.table[pair]));
        let (stream, table) = kept.unzip();
        Pairs { stream, table }
    }

    /// The pairs with rows in between that have no partner: those from `before`, where these pairs begin,
    /// to `cursor`, where they end. Rows in `failed` (increasing) are left out.
    pub fn padded(&self, before: Cursor, cursor: &mut Cursor, failed: &[u32]) -> Pairs {
        let mut padded = Pairs::default();
        let mut pair = 0;
        let is_cut = cursor.partner.is_some();
        for row in before.row..cursor.row + usize::from(is_cut) {
            let first = pair;
            while pair < self.len() && self.stream[pair] == row as u32 {
                padded.stream.push(row as u32);
                padded.table.push(self.table[pair]);
                pair += 1;
            }
            let is_matched = pair > first
                || (row == before.row && before.is_matched)
                || failed.binary_search(&(row as u32)).is_ok();
            if row == cursor.row {
                cursor.is_matched = is_matched;
            } else if !is_matched {
                padded.stream.push(row as u32);
                padded.table.push(None);
            }
        }
        if !is_cut {
            cursor.is_matched = false;
        }
        padded
    }
}
