//! Group keys: from the key columns of a row to a group number, and back.
//!
//! Groups are numbered 0, 1, 2, … in the order in which their keys came. A single string or integer key
//! has a table of its own; every other combination of types goes through its `arrow-row` encoding.

use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, StringViewArray};
use arrow_buffer::ScalarBuffer;
use arrow_schema::DataType;
use hashbrown::HashTable;

use crate::error::Result;
use crate::hash::{INLINE_BYTES_MAX, ROWS_AHEAD, fetch_string};
use crate::key::{KeyColumns, KeyEncoder};

/// The keys of a set of groups.
pub struct Keys {
    table: HashTable<u32>,
    hashes: Vec<u64>,
    store: Store,
}

enum Store {
    /// No key columns: one group.
    None,
    Text(StringStore),
    Integer {
        values: Vec<i64>,
        null: Option<u32>,
        data_type: DataType,
    },
    Rows {
        encoder: KeyEncoder,
        bytes: ByteStore,
    },
}

/// Byte strings stored one after the other, found by number.
#[derive(Default)]
struct ByteStore {
    bytes: Vec<u8>,
    /// The end of each string in `bytes`.
    ends: Vec<usize>,
}

/// Strings as views: a short one is compared and kept without following a pointer.
#[derive(Default)]
struct StringStore {
    /// The key of each group. Up to [`INLINE_BYTES_MAX`] bytes exactly as in an Arrow view; otherwise
    /// length and first four bytes as in a view, and the position in `long` in the upper half.
    views: Vec<u128>,
    /// Longer strings, one after the other.
    long: Vec<u8>,
    /// The group whose key is NULL.
    null: Option<u32>,
}

impl StringStore {
    /// Whether group `group` has the string of row `row`, whose view is `view`.
    #[inline]
    fn is(&self, group: u32, view: u128, column: &StringViewArray, row: usize) -> bool {
        let kept = self.views[group as usize];
        if view as u32 <= INLINE_BYTES_MAX {
            return kept == view;
        }
        kept as u64 == view as u64 && self.long_text(kept) == column.value(row).as_bytes()
    }

    fn long_text(&self, kept: u128) -> &[u8] {
        let place = (kept >> 64) as usize;
        &self.long[place..place + kept as u32 as usize]
    }

    fn push(&mut self, view: u128, column: &StringViewArray, row: usize) {
        if view as u32 <= INLINE_BYTES_MAX {
            self.views.push(view);
            return;
        }
        let place = self.long.len() as u128;
        self.views.push(u128::from(view as u64) | place << 64);
        self.long.extend_from_slice(column.value(row).as_bytes());
    }

    /// The keys of groups, none of which is long: as they are kept, without looking at their bytes.
    fn short_keys(&self, groups: &[u32]) -> ArrayRef {
        let views = groups.iter().map(|&group| self.views[group as usize]);
        let views = ScalarBuffer::from(views.collect::<Vec<u128>>());
        let null = self.null.filter(|null| groups.contains(null));
        let nulls = null.map(|null| groups.iter().map(|&group| group != null).collect());
        // SAFETY: each view is that of a string in a `StringViewArray` that has no bytes outside of its
        // view, or zero: so it points nowhere, and its bytes are UTF-8.
        Arc::new(unsafe { StringViewArray::new_unchecked(views, Vec::new(), nulls) })
    }

    fn append_to(&self, builder: &mut StringViewBuilder, group: u32) -> Result<()> {
        let kept = self.views[group as usize];
        let length = kept as u32;
        let inline = kept.to_le_bytes();
        let bytes = if length <= INLINE_BYTES_MAX {
            &inline[4..4 + length as usize]
        } else {
            self.long_text(kept)
        };
        let text = std::str::from_utf8(bytes)
            .map_err(|error| crate::error::Error::new("group key", error.to_string()))?;
        builder.append_value(text);
        Ok(())
    }
}

impl ByteStore {
    #[inline]
    fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

impl Keys {
    /// An empty set of keys with the given column types.
    pub fn new(types: &[DataType]) -> Result<Keys> {
        let store = match types {
            [] => Store::None,
            [DataType::Utf8View] => Store::Text(StringStore::default()),
            [data_type @ (DataType::Int64 | DataType::Timestamp(_, None))] => Store::Integer {
                values: Vec::new(),
                null: None,
                data_type: data_type.clone(),
            },
            _ => Store::Rows {
                encoder: KeyEncoder::new(types.iter().cloned())?,
                bytes: ByteStore::default(),
            },
        };
        Ok(Keys {
            table: HashTable::new(),
            hashes: Vec::new(),
            store,
        })
    }

    /// The number of groups.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// The hash of group `group`'s key.
    pub fn hash(&self, group: usize) -> u64 {
        self.hashes[group]
    }

    /// Forgets all groups, and keeps the memory.
    pub fn clear(&mut self) {
        self.table.clear();
        self.hashes.clear();
        match &mut self.store {
            Store::None => {}
            Store::Text(store) => {
                store.views.clear();
                store.long.clear();
                store.null = None;
            }
            Store::Integer { values, null, .. } => {
                values.clear();
                *null = None;
            }
            Store::Rows { bytes, .. } => bytes.clear(),
        }
    }

    /// Finds the group of each row, making new ones as needed, into `groups` (cleared first).
    pub fn groups(&mut self, keys: &KeyColumns, groups: &mut Vec<u32>) -> Result<()> {
        let (hashes, are_cold) = (keys.hashes(), keys.are_cold());
        let columns = keys.columns().columns();
        groups.clear();
        groups.reserve(hashes.len());
        let Keys {
            table,
            hashes: known,
            store,
        } = self;
        match store {
            Store::None => {
                if known.is_empty() && !hashes.is_empty() {
                    known.push(hashes[0]);
                }
                groups.resize(hashes.len(), 0);
            }
            Store::Text(store) => {
                let column = columns[0].as_string_view();
                for (row, &hash) in hashes.iter().enumerate() {
                    if are_cold {
                        fetch_string(column, row + ROWS_AHEAD);
                    }
                    if column.is_null(row) {
                        let group = *store.null.get_or_insert_with(|| {
                            store.views.push(0);
                            known.push(hash);
                            known.len() as u32 - 1
                        });
                        groups.push(group);
                        continue;
                    }
                    // The table's own tag of the hash excludes nearly all other keys: comparing whole
                    // hashes first would fetch one more cache line per row.
                    let view = column.views()[row];
                    let found = table.find(hash, |&group| store.is(group, view, column, row));
                    let group = match found {
                        Some(&group) => group,
                        None => {
                            store.push(view, column, row);
                            insert(table, known, hash)
                        }
                    };
                    groups.push(group);
                }
            }
            Store::Integer { values, null, .. } => {
                let column = int64_values(&columns[0]);
                for (row, &hash) in hashes.iter().enumerate() {
                    if columns[0].is_null(row) {
                        let group = *null.get_or_insert_with(|| {
                            values.push(0);
                            known.push(hash);
                            known.len() as u32 - 1
                        });
                        groups.push(group);
                        continue;
                    }
                    let value = column[row];
                    let found = table.find(hash, |&group| values[group as usize] == value);
                    let group = match found {
                        Some(&group) => group,
                        None => {
                            values.push(value);
                            insert(table, known, hash)
                        }
                    };
                    groups.push(group);
                }
            }
            Store::Rows { encoder, bytes } => {
                let rows = encoder.rows(keys.columns())?;
                for (row, &hash) in hashes.iter().enumerate() {
                    let row = rows.row(row);
                    let found =
                        table.find(hash, |&group| bytes.get(group as usize) == row.as_ref());
                    let group = match found {
                        Some(&group) => group,
                        None => {
                            bytes.push(row.as_ref());
                            insert(table, known, hash)
                        }
                    };
                    groups.push(group);
                }
            }
        }
        Ok(())
    }

    /// The key columns of the given groups.
    pub fn columns(&self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        match &self.store {
            Store::None => Ok(vec![]),
            Store::Text(store) if store.long.is_empty() => Ok(vec![store.short_keys(groups)]),
            Store::Text(store) => {
                let mut builder = StringViewBuilder::with_capacity(groups.len());
                for &group in groups {
                    if store.null == Some(group) {
                        builder.append_null();
                    } else {
                        store.append_to(&mut builder, group)?;
                    }
                }
                Ok(vec![Arc::new(builder.finish())])
            }
            Store::Integer {
                values,
                null,
                data_type,
            } => {
                let column = groups
                    .iter()
                    .map(|&group| (*null != Some(group)).then(|| values[group as usize]))
                    .collect::<Int64Array>();
                // A timestamp is an integer with another name: the cast doesn't change the values.
                Ok(vec![arrow_cast::cast(&column, data_type)?])
            }
            Store::Rows { encoder, bytes } => {
                let groups = groups.iter();
                encoder.decode(groups.map(|&group| bytes.get(group as usize)))
            }
        }
    }

    /// About how many bytes it holds.
    pub fn bytes(&self) -> usize {
        let store = match &self.store {
            Store::None => 0,
            Store::Text(store) => store.views.capacity() * 16 + store.long.capacity(),
            Store::Integer { values, .. } => values.capacity() * 8,
            Store::Rows { bytes, .. } => bytes.bytes.capacity() + bytes.ends.capacity() * 8,
        };
        store + self.hashes.capacity() * 8 + self.table.allocation_size()
    }
}

fn insert(table: &mut HashTable<u32>, known: &mut Vec<u64>, hash: u64) -> u32 {
    let group = known.len() as u32;
    known.push(hash);
    table.insert_unique(hash, group, |&group| known[group as usize]);
    group
}

fn int64_values(column: &ArrayRef) -> &[i64] {
    match column.data_type() {
        DataType::Int64 => column.as_primitive::<Int64Type>().values(),
        _ => crate::operator::window::timestamp_ticks(column)
            .expect("the integer store is made for BIGINT and TIMESTAMP only"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Float64Array, StringViewArray};

    fn round_trip(columns: Vec<ArrayRef>, expected_groups: &[u32]) {
        let types = columns
            .iter()
            .map(|c| c.data_type().clone())
            .collect::<Vec<_>>();
        let mut keys = Keys::new(&types).unwrap();
        let mut groups = Vec::new();
        for _ in 0..2 {
            for _ in 0..2 {
                let of_rows = KeyColumns::new(columns.clone(), expected_groups.len()).unwrap();
                keys.groups(&of_rows, &mut groups).unwrap();
                assert_eq!(groups, expected_groups);
            }
            let all = keys.columns(&groups).unwrap();
            for (before, after) in columns.iter().zip(&all) {
                assert_eq!(before.as_ref(), after.as_ref());
            }
            keys.clear();
            assert_eq!(keys.len(), 0);
        }
    }

    #[test]
    fn text_keys_tell_null_from_empty() {
        let text = StringViewArray::from(vec![Some("a"), None, Some(""), Some("a"), None]);
        round_trip(vec![Arc::new(text)], &[0, 1, 2, 0, 1]);
        let text = StringViewArray::from(vec![Some(""), None, Some("longer than twelve bytes")]);
        round_trip(vec![Arc::new(text)], &[0, 1, 2]);
    }

    #[test]
    fn text_keys_differ_wherever_they_differ() {
        let strings = vec![
            "twelve bytes",
            "twelve byteS",
            "thirteen bytes",
            "thirteen byteS",
            "Thirteen bytes",
            "thirteen bytes and more",
            "twelve byte",
            "twelve bytes",
            "thirteen bytes",
        ];
        let text = StringViewArray::from(strings);
        round_trip(vec![Arc::new(text)], &[0, 1, 2, 3, 4, 5, 6, 0, 2]);
    }

    #[test]
    fn integer_keys_tell_null_from_zero() {
        let numbers = Int64Array::from(vec![None, Some(0), Some(-1), None, Some(0)]);
        round_trip(vec![Arc::new(numbers)], &[0, 1, 2, 0, 1]);
    }

    #[test]
    fn any_number_of_keys_of_any_type() {
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.5), None, Some(1.5)]));
        let strings: ArrayRef = Arc::new(StringViewArray::from(vec![Some("x"), Some("x"), None]));
        round_trip(vec![numbers, strings], &[0, 1, 2]);
    }
}
