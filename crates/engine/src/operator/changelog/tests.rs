//! Helpers of the tests of operators over changelogs: random changelogs, and the table that a changelog
//! stands for; and tests of what these operators share.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int8Array, Int64Array, StringViewArray, UInt32Array};
use arrow_schema::{DataType, SchemaRef};
use proptest::prelude::*;

use super::*;
use crate::expression::row_text;
use crate::hash::hash_rows;
use crate::state::BucketSet;
use crate::testing::{batch, schema};

/// A row: a key and values of three types.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    pub key: Option<u8>,
    pub number: Option<i64>,
    pub text: Option<u8>,
}

/// An added or retracted row.
#[derive(Debug, Clone)]
pub struct Change {
    pub row: Row,
    pub retracts: bool,
}

pub fn random_row() -> impl Strategy<Value = Row> {
    (
        prop::option::weighted(0.9, 0u8..4),
        prop::option::weighted(0.8, -3i64..4),
        prop::option::weighted(0.8, 0u8..3),
    )
        .prop_map(|(key, number, text)| Row { key, number, text })
}

/// Random changes; each retraction is of an existing row.
pub fn random_changes(most: usize) -> impl Strategy<Value = Vec<Change>> {
    let step = (
        random_row(),
        prop::option::weighted(0.4, any::<prop::sample::Index>()),
    );
    prop::collection::vec(step, 0..most).prop_map(|steps| {
        let mut there = Vec::<Row>::new();
        let mut changes = Vec::new();
        for (row, retracted) in steps {
            match retracted {
                Some(index) if !there.is_empty() => {
                    let row = there.swap_remove(index.index(there.len()));
                    changes.push(Change {
                        row,
                        retracts: true,
                    });
                }
                _ => {
                    there.push(row.clone());
                    changes.push(Change {
                        row,
                        retracts: false,
                    });
                }
            }
        }
        changes
    })
}

/// The changes without retractions.
pub fn only_additions(changes: &[Change]) -> Vec<Change> {
    changes
        .iter()
        .filter(|change| !change.retracts)
        .cloned()
        .collect()
}

/// The rows that remain after all changes.
pub fn remaining(changes: &[Change]) -> Vec<Row> {
    let mut counts = BTreeMap::<&Row, i64>::new();
    for change in changes {
        *counts.entry(&change.row).or_default() += if change.retracts { -1 } else { 1 };
    }
    let rows = counts.into_iter();
    rows.flat_map(|(row, count)| std::iter::repeat_n(row.clone(), count as usize))
        .collect()
}

pub const KEY: usize = 0;
pub const NUMBER: usize = 1;
pub const TEXT: usize = 2;

pub fn row_schema() -> SchemaRef {
    schema(&[
        ("key", DataType::Int64),
        ("number", DataType::Int64),
        ("text", DataType::Utf8View),
        ("float", DataType::Float64),
    ])
}

/// The changes as a chunk; the last column is the number as a double.
pub fn chunk(changes: &[Change]) -> Chunk {
    let rows = || changes.iter().map(|change| &change.row);
    let key: ArrayRef = Arc::new(
        rows()
            .map(|row| row.key.map(i64::from))
            .collect::<Int64Array>(),
    );
    let number: ArrayRef = Arc::new(rows().map(|row| row.number).collect::<Int64Array>());
    let strings = rows().map(|row| row.text.map(|text| format!("a text of some length {text}")));
    let text: ArrayRef = Arc::new(strings.collect::<StringViewArray>());
    let floats = rows().map(|row| row.number.map(|number| number as f64 / 2.0));
    let float: ArrayRef = Arc::new(floats.collect::<Float64Array>());
    let kind = |change: &Change| match change.retracts {
        true => RowKind::Delete as i8,
        false => RowKind::Insert as i8,
    };
    let kinds = changes.iter().map(kind).collect::<Int8Array>();
    let columns = vec![
        ("key", key),
        ("number", number),
        ("text", text),
        ("float", float),
    ];
    Chunk {
        kinds: Some(kinds),
        ..Chunk::new(batch(columns), 0)
    }
}

/// The rows of a chunk whose keys belong to `buckets`.
pub fn part(chunk: &Chunk, keys: &[usize], buckets: &BucketSet) -> Chunk {
    let keys = keys.iter().map(|&key| chunk.batch.column(key).clone());
    let mut hashes = Vec::new();
    hash_rows(&keys.collect::<Vec<_>>(), chunk.rows(), &mut hashes).unwrap();
    let rows = (0..chunk.rows() as u32).filter(|&row| buckets.contains_hash(hashes[row as usize]));
    chunk.take(&rows.collect::<Vec<u32>>().into()).unwrap()
}

/// Two halves of the buckets, chosen by `seed`.
pub fn halves(seed: u64) -> [BucketSet; 2] {
    let first =
        move |bucket: usize| (bucket as u64 ^ seed).wrapping_mul(0x9E37_79B9) >> 13 & 1 == 1;
    [
        BucketSet::of(first),
        BucketSet::of(move |bucket| !first(bucket)),
    ]
}

/// The table that a changelog stands for: rows as strings, with their counts.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Table(pub BTreeMap<String, i64>);

impl Table {
    /// Applies a changelog with befores; checks that it retracts only existing rows, and that each `-U`
    /// is followed by its `+U`.
    pub fn apply(&mut self, chunks: &[Chunk]) {
        for chunk in chunks {
            let kind = |row: usize| chunk.kinds.as_ref().map_or(0, |kinds| kinds.value(row));
            for row in 0..chunk.rows() {
                if kind(row) == RowKind::UpdateBefore as i8 {
                    let next = row + 1 < chunk.rows() && kind(row + 1) == RowKind::Update as i8;
                    assert!(next, "-U without its +U: {:?}", chunk.kinds);
                }
                let text = row_text(&chunk.batch, row);
                let count = self.0.entry(text.clone()).or_default();
                *count += if RowKind::is_retraction(kind(row)) {
                    -1
                } else {
                    1
                };
                assert!(*count >= 0, "taken back, and not there: {text}");
                if *count == 0 {
                    self.0.remove(&text);
                }
            }
        }
    }

    /// Applies a changelog by key: the first `key` columns identify rows.
    pub fn apply_by_key(&mut self, key: usize, chunks: &[Chunk]) {
        for chunk in chunks {
            for row in 0..chunk.rows() {
                let text = row_text(&chunk.batch, row);
                let parts = text.splitn(key + 1, ", ").collect::<Vec<_>>();
                let of_key = parts[..key].join(", ");
                let known = |text: &String| text.starts_with(&format!("{of_key}, "));
                let before = self.0.keys().find(|text| known(text)).cloned();
                match chunk.kinds.as_ref().map_or(0, |kinds| kinds.value(row)) {
                    0 => assert!(before.is_none(), "{text} is not new: {before:?}"),
                    1 => assert!(before.is_some(), "{text} replaces nothing"),
                    2 => assert_eq!(before.as_ref(), Some(&text)),
                    _ => panic!("-U in a changelog by key"),
                }
                before.iter().for_each(|before| {
                    self.0.remove(before);
                });
                if chunk
                    .kinds
                    .as_ref()
                    .is_none_or(|kinds| kinds.value(row) != 2)
                {
                    self.0.insert(text, 1);
                }
            }
        }
    }

    pub fn of(rows: impl IntoIterator<Item = String>) -> Table {
        let mut table = Table::default();
        for row in rows {
            *table.0.entry(row).or_default() += 1;
        }
        table
    }
}

/// A value as [`row_text`] shows it.
pub fn shown<T: std::fmt::Display>(value: Option<T>) -> String {
    value.map_or("NULL".to_string(), |value| value.to_string())
}

fn with_kinds(kinds: &[i8]) -> Chunk {
    let number: ArrayRef = Arc::new(Int64Array::from_iter_values(0..kinds.len() as i64));
    Chunk {
        kinds: Some(Int8Array::from(kinds.to_vec())),
        ..Chunk::new(batch(vec![("n", number)]), 0)
    }
}

#[test]
fn an_update_that_loses_its_other_half_is_an_insert_or_a_delete() {
    const I: i8 = RowKind::Insert as i8;
    const U: i8 = RowKind::Update as i8;
    const D: i8 = RowKind::Delete as i8;
    const B: i8 = RowKind::UpdateBefore as i8;
    let all = with_kinds(&[I, B, U, B, U, U, D]);
    for (rows, kinds) in [
        (vec![0, 1, 2, 3, 4, 5, 6], vec![I, B, U, B, U, U, D]),
        (vec![1, 3, 4], vec![D, B, U]),
        (vec![2, 3], vec![I, D]),
        (vec![4, 5], vec![I, U]),
        // A row with several copies is followed by its own update only once.
        (vec![1, 1, 2, 2], vec![D, B, U, I]),
    ] {
        let taken = all.take(&UInt32Array::from(rows.clone())).unwrap();
        assert_eq!(taken.kinds.unwrap().values(), &kinds[..], "{rows:?}");
    }
    let keep = [true, true, false, false, true, true, true].map(Some);
    let kept = all.filter(&keep.into_iter().collect()).unwrap();
    assert_eq!(kept.kinds.unwrap().values(), &[I, D, I, U, D]);
}

#[test]
fn retention_counts_from_the_last_touch_or_the_first_watermark() {
    let mut retention = Retention::new(Some(100));
    assert!(!retention.is_over(retention.now()));
    // What came before the first watermark is stamped with it.
    assert!(retention.begins(1_000) && !retention.begins(MAX_WATERMARK));
    assert!(retention.advance(1_000));
    assert!(!retention.begins(1_050));
    let early = retention.now();
    retention.advance(1_099);
    assert!(!retention.is_over(early));
    let late = retention.now();
    retention.advance(1_100);
    assert!(retention.is_over(early) && !retention.is_over(late));
    // The end makes nothing old.
    assert!(!retention.advance(MAX_WATERMARK));
    assert!(!retention.is_over(late));
    let mut never = Retention::new(None);
    assert!(!never.begins(1_000_000) && !never.advance(1_000_000));
    assert!(!never.is_over(MIN_WATERMARK));
}
