//! Keys of rows, by which state is found.
//!
//! Equal keys must have equal hashes and equal encodings, although SQL says that -0 equals 0 and every
//! NaN equals every other. This module is the only way from columns to keys, and brings them into one
//! form first ([`Comparable`]). So no operator and no accumulator can forget that: a [`Key`] can't be made
//! from a column that is not in that form, and a [`KeyEncoder`] takes no other.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{DataType, Schema};

use crate::chunk::Chunk;
use crate::error::Result;
use crate::hash::{float_word, hash_rows};

/// Columns in the form in which SQL compares them: floating-point numbers with -0 as 0 and one NaN, the
/// greatest of all, just as they are hashed. Equal values then have equal `arrow-row` encodings, which
/// sort in the order of SQL.
pub struct Comparable<'c> {
    columns: Cow<'c, [ArrayRef]>,
}

impl<'c> Comparable<'c> {
    /// Brings columns into that form. Columns that are in it already are not copied.
    pub fn new(columns: &'c [ArrayRef]) -> Comparable<'c> {
        Comparable {
            columns: canonical(columns),
        }
    }

    fn owned(columns: Vec<ArrayRef>) -> Comparable<'static> {
        let changed = match canonical(&columns) {
            Cow::Borrowed(_) => None,
            Cow::Owned(changed) => Some(changed),
        };
        Comparable {
            columns: Cow::Owned(changed.unwrap_or(columns)),
        }
    }

    /// The columns.
    pub fn columns(&self) -> &[ArrayRef] {
        &self.columns
    }

    /// Whether any column of row `row` is NULL.
    pub fn has_null(&self, row: usize) -> bool {
        self.columns.iter().any(|column| column.is_null(row))
    }
}

/// The key columns of some rows, with the rows' hashes.
pub struct KeyColumns {
    columns: Comparable<'static>,
    hashes: Hashes,
}

enum Hashes {
    Computed(Vec<u64>),
    /// The hashes that the rows were routed by.
    Routed(Arc<[u64]>),
}

impl Hashes {
    fn get(&self) -> &[u64] {
        match self {
            Hashes::Computed(hashes) => hashes,
            Hashes::Routed(hashes) => hashes,
        }
    }
}

impl KeyColumns {
    /// The keys of `rows` rows, from `columns`. Without columns all rows have the same key.
    pub fn new(columns: Vec<ArrayRef>, rows: usize) -> Result<KeyColumns> {
        let mut hashes = Vec::new();
        hash_rows(&columns, rows, &mut hashes)?;
        Ok(KeyColumns {
            columns: Comparable::owned(columns),
            hashes: Hashes::Computed(hashes),
        })
    }

    /// The keys of a batch's rows, from its columns `keys`.
    pub fn of_batch(batch: &RecordBatch, keys: &[usize]) -> Result<KeyColumns> {
        let columns = keys.iter().map(|&key| batch.column(key).clone());
        KeyColumns::new(columns.collect(), batch.num_rows())
    }

    /// The keys of a chunk's rows, from its columns `keys`. If the rows were routed by the same columns,
    /// they are not hashed again.
    pub fn of_chunk(chunk: &Chunk, keys: &[usize]) -> Result<KeyColumns> {
        match &chunk.key_hashes {
            Some(routed) if *routed.columns == *keys => {
                let columns = keys.iter().map(|&key| chunk.batch.column(key).clone());
                Ok(KeyColumns {
                    columns: Comparable::owned(columns.collect()),
                    hashes: Hashes::Routed(Arc::clone(&routed.hashes)),
                })
            }
            _ => KeyColumns::of_batch(&chunk.batch, keys),
        }
    }

    /// The columns.
    pub fn columns(&self) -> &Comparable<'static> {
        &self.columns
    }

    /// The hash of each row.
    pub fn hashes(&self) -> &[u64] {
        self.hashes.get()
    }

    /// Whether this worker has not read the columns yet, so that they are in another core's caches.
    pub fn are_cold(&self) -> bool {
        matches!(self.hashes, Hashes::Routed(_))
    }
}

/// See [`Comparable`].
fn canonical(columns: &[ArrayRef]) -> Cow<'_, [ArrayRef]> {
    if columns.iter().all(is_canonical) {
        return Cow::Borrowed(columns);
    }
    let columns = columns.iter().map(|column| -> ArrayRef {
        match column.data_type() {
            DataType::Float64 => {
                let column = column.as_primitive::<Float64Type>();
                Arc::new(column.unary::<_, Float64Type>(one_zero))
            }
            DataType::Float32 => {
                let column = column.as_primitive::<Float32Type>();
                let one = |value: f32| one_zero(f64::from(value)) as f32;
                Arc::new(column.unary::<_, Float32Type>(one))
            }
            _ => column.clone(),
        }
    });
    Cow::Owned(columns.collect())
}

/// Whether no value is -0 or NaN: checking costs less than writing a column.
fn is_canonical(column: &ArrayRef) -> bool {
    const NEGATIVE_ZERO: u64 = (-0.0f64).to_bits();
    const NEGATIVE_ZERO_32: u32 = (-0.0f32).to_bits();
    // Not `any`: without an early exit, the loop handles several values at a time.
    match column.data_type() {
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>().values();
            let is_other = |v: &f64| (v.to_bits() == NEGATIVE_ZERO) | v.is_nan();
            !values.iter().fold(false, |found, v| found | is_other(v))
        }
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>().values();
            let is_other = |v: &f32| (v.to_bits() == NEGATIVE_ZERO_32) | v.is_nan();
            !values.iter().fold(false, |found, v| found | is_other(v))
        }
        _ => true,
    }
}

fn one_zero(value: f64) -> f64 {
    f64::from_bits(float_word(value))
}

/// Encodes keys of certain types, and decodes them.
pub struct KeyEncoder {
    converter: RowConverter,
    /// Whether there are no columns: then all keys are equal, and their encoding is empty.
    is_empty: bool,
}

impl KeyEncoder {
    /// An encoder for keys of these types.
    pub fn new(types: impl IntoIterator<Item = DataType>) -> Result<KeyEncoder> {
        let fields = types.into_iter().map(SortField::new).collect::<Vec<_>>();
        Ok(KeyEncoder {
            is_empty: fields.is_empty(),
            converter: RowConverter::new(fields)?,
        })
    }

    /// An encoder for the columns `keys` of `schema`.
    pub fn of_schema(schema: &Schema, keys: &[usize]) -> Result<KeyEncoder> {
        let types = keys.iter().map(|&key| schema.field(key).data_type());
        KeyEncoder::new(types.cloned())
    }

    /// Encodes keys.
    pub fn encode(&self, keys: KeyColumns) -> Result<EncodedKeys> {
        let mut is_null = vec![false; keys.hashes().len()];
        for column in keys
            .columns
            .columns()
            .iter()
            .filter(|key| key.null_count() > 0)
        {
            for (row, is_null) in is_null.iter_mut().enumerate() {
                *is_null |= column.is_null(row);
            }
        }
        let rows = match self.is_empty {
            true => None,
            false => Some(self.rows(&keys.columns)?),
        };
        Ok(EncodedKeys {
            hashes: keys.hashes,
            rows,
            is_null,
        })
    }

    /// Encodes columns that are compared as keys are, but not found by their hash. There must be at least
    /// one.
    pub fn rows(&self, columns: &Comparable<'_>) -> Result<Rows> {
        Ok(self.converter.convert_columns(columns.columns())?)
    }

    /// The columns of encoded keys.
    pub fn decode<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Result<Vec<ArrayRef>> {
        if self.is_empty {
            return Ok(Vec::new());
        }
        let parser = self.converter.parser();
        Ok(self
            .converter
            .convert_rows(keys.map(|key| parser.parse(key)))?)
    }
}

/// Encoded keys of some rows.
pub struct EncodedKeys {
    hashes: Hashes,
    /// The encoded rows; `None` without key columns.
    rows: Option<Rows>,
    is_null: Vec<bool>,
}

impl EncodedKeys {
    /// The number of rows.
    pub fn count(&self) -> usize {
        self.is_null.len()
    }

    /// The hash of each row's key.
    pub fn hashes(&self) -> &[u64] {
        self.hashes.get()
    }

    /// The key of row `row`.
    pub fn key(&self, row: usize) -> Key<'_> {
        Key {
            hash: self.hashes()[row],
            bytes: self.bytes_of(row),
        }
    }

    fn bytes_of(&self, row: usize) -> &[u8] {
        self.rows.as_ref().map_or(&[], |rows| rows.row(row).data())
    }

    /// Whether a column of row `row`'s key is NULL: in a join such a key equals no other.
    pub fn is_null(&self, row: usize) -> bool {
        self.is_null[row]
    }

    /// About how many bytes the keys take.
    pub fn bytes(&self) -> usize {
        self.rows.as_ref().map_or(0, Rows::size)
    }
}

/// The key of a row: its hash, and its encoded columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key<'k> {
    hash: u64,
    bytes: &'k [u8],
}

impl<'k> Key<'k> {
    /// A key that was stored, from its hash and bytes.
    pub(crate) fn stored(hash: u64, bytes: &'k [u8]) -> Key<'k> {
        Key { hash, bytes }
    }

    /// The key's hash.
    #[inline]
    pub fn hash(self) -> u64 {
        self.hash
    }

    /// The key's encoded columns.
    #[inline]
    pub fn bytes(self) -> &'k [u8] {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Float64Array, Int64Array};

    use super::*;

    #[test]
    fn keys_that_are_equal_are_hashed_and_encoded_alike() {
        let numbers = [
            Some(-0.0),
            Some(0.0),
            None,
            Some(f64::NAN),
            Some(-f64::NAN),
            Some(-1.5),
        ];
        let double: ArrayRef = Arc::new(Float64Array::from(numbers.to_vec()));
        let float = arrow_cast::cast(&double, &DataType::Float32).unwrap();
        for column in [double, float] {
            let ones: ArrayRef = Arc::new(Int64Array::from(vec![1; 6]));
            let types = [column.data_type().clone(), DataType::Int64];
            let encoder = KeyEncoder::new(types).unwrap();
            let columns = KeyColumns::new(vec![column.clone(), ones], 6).unwrap();
            let keys = encoder.encode(columns).unwrap();
            assert_eq!(keys.key(0), keys.key(1));
            assert_eq!(keys.key(3), keys.key(4));
            assert!(keys.key(2) != keys.key(0) && keys.key(3) != keys.key(0));
            assert!(keys.is_null(2) && !keys.is_null(0));
            let columns = [column.clone(), Arc::new(Int64Array::from(vec![1; 6]))];
            let rows = encoder.rows(&Comparable::new(&columns)).unwrap();
            assert!(rows.row(0) == rows.row(1) && rows.row(3) == rows.row(4));
            assert!(rows.row(3) > rows.row(0) && rows.row(0) > rows.row(5));
            let back = encoder.decode((0..6).map(|row| keys.key(row).bytes()));
            let back = arrow_cast::cast(&back.unwrap()[0], &DataType::Float64).unwrap();
            let back = back.as_primitive::<Float64Type>();
            assert_eq!((back.value(0).to_bits(), back.value(5)), (0, -1.5));
        }
    }

    #[test]
    fn without_columns_all_keys_are_equal() {
        let encoder = KeyEncoder::new([]).unwrap();
        let keys = encoder.encode(KeyColumns::new(vec![], 2).unwrap()).unwrap();
        assert_eq!((keys.count(), keys.key(0)), (2, keys.key(1)));
        assert!(encoder.decode([&[][..]].into_iter()).unwrap().is_empty());
    }
}
