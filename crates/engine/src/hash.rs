//! The hash of key columns: it routes rows to buckets and finds groups in tables.
//!
//! The hash is written here and not taken from a library because stored state depends on buckets: the
//! value must not change with a library's version or the platform.
//!
//! It is one 64 × 64 → 128 bit multiplication per 8 bytes, the high half folded onto the low one (the
//! construction of wyhash). Integers, dates and times of every width hash as their 64-bit value; booleans
//! as 0 and 1; decimals as the two halves of their 128 bits; floating-point numbers by their bits with -0
//! as 0 and one NaN; strings and binary values by their bytes in 8-byte little-endian words, with the
//! length mixed in; NULL as a constant. Nested types hash as their `arrow-row` encoding, which we don't
//! control. `docs/internals/balancing.md` has the hash in Python.
//!
//! A key with a column of the type [`DIRECT`] is in the bucket that the column says (direct grouping).

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, PrimitiveArray, StringViewArray};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{DataType, TimeUnit};

use crate::error::Result;

/// The number of buckets that keys are hashed into: many more than instances (at 64 instances each still
/// has 64 buckets to give away), few enough that a map of them is 16 KiB.
pub const BUCKETS: usize = 1 << BUCKET_BITS;

const BUCKET_BITS: u32 = 12;

/// The type of columns that name the bucket of a key, instead of its hash. Tables have no such columns
/// (`SMALLINT UNSIGNED` of files is read as INT): only SQL's function DIRECT makes them.
pub const DIRECT: DataType = DataType::UInt16;

/// Strings of up to this many bytes are stored in their view (Arrow's variable-size view layout).
pub(crate) const INLINE_BYTES_MAX: u32 = 12;

const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
const MULTIPLIER: u64 = 0xD6E8_FEB8_6659_FD93;
const NULL_WORD: u64 = 0xA5A5_5A5A_0F0F_F0F0;

/// The bucket of a hash: its upper bits, because tables use the lower ones.
#[inline]
pub fn bucket(hash: u64) -> usize {
    (hash >> (64 - BUCKET_BITS)) as usize
}

#[inline]
fn mix(state: u64, word: u64) -> u64 {
    let product = u128::from(state ^ word) * u128::from(MULTIPLIER);
    (product as u64) ^ ((product >> 64) as u64)
}

#[inline]
fn hash_bytes(state: u64, bytes: &[u8]) -> u64 {
    let mut hash = mix(state, bytes.len() as u64 ^ SEED);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        hash = mix(
            hash,
            u64::from_le_bytes(word.try_into().expect("chunks of 8 bytes")),
        );
    }
    if !words.remainder().is_empty() {
        hash = mix(hash, last_word(bytes));
    }
    hash
}

/// The hash of some bytes, which nothing that is stored depends on.
#[inline]
pub(crate) fn of_bytes(bytes: &[u8]) -> u64 {
    mix(hash_bytes(SEED, bytes), SEED)
}

/// The bytes after the last whole word, 1 to 7 of them, followed by zeros. Overlapping loads take half
/// the time of a copy whose length is only known at run time.
#[inline]
fn last_word(bytes: &[u8]) -> u64 {
    let bits = 8 * bytes.len();
    if let Some(word) = bytes.last_chunk::<8>() {
        return u64::from_le_bytes(*word) >> (64 - bits % 64);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let first = u64::from(u32::from_le_bytes(*first));
        return first | u64::from(u32::from_le_bytes(*last)) << (bits - 32);
    }
    let word = |word: u64, &byte: &u8| word << 8 | u64::from(byte);
    bytes.iter().rev().fold(0, word)
}

/// The [`hash_bytes`] of a string of a view array. A short string is stored in its view, followed by
/// zeros, so its words are there already.
#[inline]
fn hash_view(state: u64, view: u128, array: &StringViewArray, row: usize) -> u64 {
    let length = view as u32;
    if length > INLINE_BYTES_MAX {
        return hash_bytes(state, array.value(row).as_bytes());
    }
    let mut hash = mix(state, u64::from(length) ^ SEED);
    if length > 0 {
        hash = mix(hash, (view >> 32) as u64);
    }
    if length > 8 {
        hash = mix(hash, (view >> 96) as u64);
    }
    hash
}

/// Hashes each row of `columns` into `hashes` (cleared first). Keys that are also compared come from
/// [`crate::key::KeyColumns`].
pub fn hash_rows(columns: &[ArrayRef], rows: usize, hashes: &mut Vec<u64>) -> Result<()> {
    hashes.clear();
    hashes.resize(rows, SEED);
    for column in columns {
        hash_column(column, hashes)?;
    }
    // One last mix, so that the upper bits depend on every word even for a single short key.
    for hash in hashes.iter_mut() {
        *hash = mix(*hash, SEED);
    }
    if let Some(direct) = columns.iter().find(|column| *column.data_type() == DIRECT) {
        place(direct.as_primitive(), hashes);
    }
    Ok(())
}

/// Replaces the buckets of hashes by those that are given; NULL leaves them.
fn place(buckets: &PrimitiveArray<UInt16Type>, hashes: &mut [u64]) {
    for (hash, bucket) in hashes.iter_mut().zip(buckets) {
        if let Some(bucket) = bucket {
            let bucket = u64::from(bucket) % BUCKETS as u64;
            *hash = *hash & (u64::MAX >> BUCKET_BITS) | bucket << (64 - BUCKET_BITS);
        }
    }
}

/// How many rows ahead strings are prefetched: processing them takes as long as fetching a cache line
/// from another core.
pub(crate) const ROWS_AHEAD: usize = 16;

/// Prefetches the first cache line of a string that is not stored in its view. A row that was routed
/// comes from another core's caches, and strings of different lengths are hashed by branches that the
/// processor mispredicts, so that without this it would wait for one line after the other.
#[inline]
pub(crate) fn fetch_string(array: &StringViewArray, row: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(&view) = array.views().get(row)
        && view as u32 > INLINE_BYTES_MAX
        && let Some(buffer) = array.data_buffers().get((view >> 64) as u32 as usize)
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let text = buffer.as_ptr().wrapping_add((view >> 96) as usize);
        // SAFETY: a prefetch reads nothing that could be observed, and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(text.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (array, row);
}

fn hash_column(column: &ArrayRef, hashes: &mut [u64]) -> Result<()> {
    macro_rules! words {
        ($type:ty, $word:expr) => {{
            let array = column.as_primitive::<$type>();
            let word = $word;
            if array.null_count() == 0 {
                for (hash, value) in hashes.iter_mut().zip(array.values().iter()) {
                    *hash = mix(*hash, word(*value));
                }
            } else {
                for (row, hash) in hashes.iter_mut().enumerate() {
                    let next = if array.is_null(row) {
                        NULL_WORD
                    } else {
                        word(array.value(row))
                    };
                    *hash = mix(*hash, next);
                }
            }
        }};
    }
    macro_rules! bytes {
        ($array:expr) => {{
            let array = $array;
            for (row, hash) in hashes.iter_mut().enumerate() {
                *hash = if array.is_null(row) {
                    mix(*hash, NULL_WORD)
                } else {
                    let value: &[u8] = array.value(row).as_ref();
                    hash_bytes(*hash, value)
                };
            }
        }};
    }
    match column.data_type() {
        DataType::Int8 => words!(Int8Type, |v: i8| i64::from(v) as u64),
        DataType::Int16 => words!(Int16Type, |v: i16| i64::from(v) as u64),
        DataType::Int32 => words!(Int32Type, |v: i32| i64::from(v) as u64),
        DataType::Int64 => words!(Int64Type, |v: i64| v as u64),
        DataType::UInt8 => words!(UInt8Type, u64::from),
        DataType::UInt16 => words!(UInt16Type, u64::from),
        DataType::UInt32 => words!(UInt32Type, u64::from),
        DataType::UInt64 => words!(UInt64Type, |v: u64| v),
        DataType::Date32 => words!(Date32Type, |v: i32| i64::from(v) as u64),
        DataType::Timestamp(TimeUnit::Second, _) => words!(TimestampSecondType, |v: i64| v as u64),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            words!(TimestampMillisecondType, |v: i64| v as u64)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            words!(TimestampMicrosecondType, |v: i64| v as u64)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            words!(TimestampNanosecondType, |v: i64| v as u64)
        }
        DataType::Float32 => words!(Float32Type, |v: f32| float_word(f64::from(v))),
        DataType::Float64 => words!(Float64Type, float_word),
        DataType::Utf8View => {
            let array = column.as_string_view();
            for (row, (hash, &view)) in hashes.iter_mut().zip(array.views().iter()).enumerate() {
                fetch_string(array, row + ROWS_AHEAD);
                *hash = if array.is_null(row) {
                    mix(*hash, NULL_WORD)
                } else {
                    hash_view(*hash, view, array, row)
                };
            }
        }
        DataType::Boolean => {
            let array = column.as_boolean();
            for (row, hash) in hashes.iter_mut().enumerate() {
                let value = array.is_valid(row).then(|| u64::from(array.value(row)));
                *hash = mix(*hash, value.unwrap_or(NULL_WORD));
            }
        }
        DataType::Decimal128(_, _) => {
            let array = column.as_primitive::<Decimal128Type>();
            for (row, hash) in hashes.iter_mut().enumerate() {
                *hash = if array.is_null(row) {
                    mix(*hash, NULL_WORD)
                } else {
                    let value = array.value(row);
                    mix(mix(*hash, value as u64), (value >> 64) as u64)
                };
            }
        }
        DataType::Time32(TimeUnit::Second) => words!(Time32SecondType, |v: i32| v as u64),
        DataType::Time32(_) => words!(Time32MillisecondType, |v: i32| v as u64),
        DataType::Time64(TimeUnit::Microsecond) => words!(Time64MicrosecondType, |v: i64| v as u64),
        DataType::Time64(_) => words!(Time64NanosecondType, |v: i64| v as u64),
        DataType::Utf8 => bytes!(column.as_string::<i32>()),
        DataType::LargeUtf8 => bytes!(column.as_string::<i64>()),
        DataType::Binary => bytes!(column.as_binary::<i32>()),
        DataType::LargeBinary => bytes!(column.as_binary::<i64>()),
        DataType::BinaryView => bytes!(column.as_binary_view()),
        _ => {
            let converter = RowConverter::new(vec![SortField::new(column.data_type().clone())])?;
            let rows = converter.convert_columns(std::slice::from_ref(column))?;
            for (hash, row) in hashes.iter_mut().zip(rows.iter()) {
                *hash = hash_bytes(*hash, row.as_ref());
            }
        }
    }
    Ok(())
}

/// The bits of a number that equal numbers share: -0 is 0, and there is one NaN.
pub(crate) fn float_word(value: f64) -> u64 {
    if value == 0.0 {
        0
    } else if value.is_nan() {
        f64::NAN.to_bits()
    } else {
        value.to_bits()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use arrow_array::{Float64Array, Int32Array, Int64Array, StringArray, StringViewArray};

    fn hashes(columns: &[ArrayRef]) -> Vec<u64> {
        let mut hashes = Vec::new();
        hash_rows(columns, columns[0].len(), &mut hashes).unwrap();
        hashes
    }

    #[test]
    fn hashes_are_fixed_because_checkpoints_hold_buckets() {
        let column: ArrayRef = Arc::new(StringViewArray::from(vec![
            Some("10.0.0.1"),
            None,
            Some(""),
        ]));
        assert_eq!(
            hashes(&[column])
                .iter()
                .map(|&h| bucket(h))
                .collect::<Vec<_>>(),
            FIXED_TEXT
        );
        let column: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, -1]));
        assert_eq!(
            hashes(&[column])
                .iter()
                .map(|&h| bucket(h))
                .collect::<Vec<_>>(),
            FIXED_NUMBER
        );
        let weird = f64::from_bits(f64::NAN.to_bits() | 1 << 63 | 7);
        let column: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, 1.5, f64::NAN, weird]));
        let buckets = hashes(&[column]).into_iter().map(bucket);
        assert_eq!(buckets.collect::<Vec<_>>(), FIXED_FLOAT);
        let number: ArrayRef = Arc::new(Int64Array::from(vec![5]));
        let text: ArrayRef = Arc::new(StringViewArray::from(vec!["x"]));
        let buckets = hashes(&[number, text]).into_iter().map(bucket);
        assert_eq!(buckets.collect::<Vec<_>>(), FIXED_PAIR);
    }

    // Computed by an independent program from the construction in the module documentation.
    const FIXED_TEXT: [usize; 3] = [2228, 2411, 3229];
    const FIXED_NUMBER: [usize; 3] = [1267, 3672, 1364];
    const FIXED_FLOAT: [usize; 5] = [1267, 1267, 581, 2938, 2938];
    const FIXED_PAIR: [usize; 1] = [798];
    const FIXED_OTHERS: [[usize; 3]; 3] =
        [[3254, 1533, 1566], [1267, 3672, 2411], [2228, 3229, 1019]];

    #[test]
    fn a_direct_column_names_the_bucket() {
        use arrow_array::UInt16Array;
        let direct: ArrayRef = Arc::new(UInt16Array::from(vec![
            Some(0),
            Some(1),
            Some(4095),
            Some(4096),
            None,
        ]));
        let robot: ArrayRef = Arc::new(Int32Array::from(vec![0, 1, 7, 8, 9]));
        for columns in [[direct.clone(), robot.clone()], [robot, direct]] {
            let placed = hashes(&columns);
            let mut buckets = placed.iter().map(|&hash| bucket(hash));
            assert_eq!(
                buckets.by_ref().take(4).collect::<Vec<_>>(),
                [0, 1, 4095, 0]
            );
            // NULL is hashed, with the other columns.
            assert!(buckets.next().is_some_and(|bucket| bucket > 0));
            // The other bits, by which tables find keys, depend on all columns.
            assert_ne!(placed[0] << BUCKET_BITS, placed[3] << BUCKET_BITS);
        }
    }

    #[test]
    fn decimals_booleans_and_bytes_are_fixed_too() {
        let decimals = arrow_array::Decimal128Array::from(vec![1, -1, 1 << 70]);
        let booleans = arrow_array::BooleanArray::from(vec![Some(false), Some(true), None]);
        let bytes = arrow_array::BinaryArray::from(vec![&b"10.0.0.1"[..], b"", b"x"]);
        let columns: [ArrayRef; 3] = [Arc::new(decimals), Arc::new(booleans), Arc::new(bytes)];
        let buckets = columns.map(|column| {
            let buckets = hashes(&[column]).into_iter().map(bucket);
            buckets.collect::<Vec<_>>()
        });
        assert_eq!(buckets, FIXED_OTHERS);
    }

    #[test]
    fn the_width_of_a_type_does_not_matter() {
        let narrow: ArrayRef = Arc::new(Int32Array::from(vec![7, -7]));
        let wide: ArrayRef = Arc::new(Int64Array::from(vec![7, -7]));
        assert_eq!(hashes(&[narrow]), hashes(&[wide]));
        let view: ArrayRef = Arc::new(StringViewArray::from(vec!["a longer text than twelve"]));
        let plain: ArrayRef = Arc::new(StringArray::from(vec!["a longer text than twelve"]));
        assert_eq!(hashes(&[view]), hashes(&[plain]));
    }

    #[test]
    fn strings_of_every_length_hash_by_their_words_in_every_layout() {
        let text = "abcdefghijklmnopqrstuvwxyz";
        let prefixes = (0..=text.len()).map(|length| &text[..length]);
        let by_words = |text: &str| {
            let mut hash = mix(SEED, text.len() as u64 ^ SEED);
            for word in text.as_bytes().chunks(8) {
                let mut padded = [0; 8];
                padded[..word.len()].copy_from_slice(word);
                hash = mix(hash, u64::from_le_bytes(padded));
            }
            mix(hash, SEED)
        };
        let expected = prefixes.clone().map(by_words).collect::<Vec<_>>();
        let view: ArrayRef = Arc::new(StringViewArray::from_iter_values(prefixes.clone()));
        let plain: ArrayRef = Arc::new(StringArray::from_iter_values(prefixes));
        assert_eq!(hashes(&[view]), expected);
        assert_eq!(hashes(&[plain]), expected);
    }

    #[test]
    fn sequential_numbers_spread_over_the_buckets() {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..40_960));
        let mut filled = vec![0u32; BUCKETS];
        for hash in hashes(&[column]) {
            filled[bucket(hash)] += 1;
        }
        // 10 expected per bucket; 40 would be ten standard deviations away.
        assert!(*filled.iter().max().unwrap() < 40);
    }
}
