use std::sync::Arc;

use arrow_array::builder::{
    Int64Builder, ListBuilder, MapBuilder, StringBuilder, StringViewBuilder,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, DictionaryArray,
    FixedSizeBinaryArray, Float64Array, Int32Array, Int64Array, NullArray, StringArray,
    StructArray, TimestampMillisecondArray, types::Int32Type,
};
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;

use super::*;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields = columns.iter().map(|(name, column)| {
        let data_type = column.data_type().clone();
        Field::new(*name, data_type, true)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(schema, columns).unwrap()
}

/// Columns of the types that state has.
pub fn state(rows: usize) -> RecordBatch {
    let number = |row: usize| (!row.is_multiple_of(5)).then_some(row as i64 * 7);
    let text = |row: usize| (row % 4 != 1).then(|| format!("a text of some length, {row}"));
    let mut views = StringViewBuilder::new();
    let mut lists = ListBuilder::new(Int64Builder::new());
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    for row in 0..rows {
        views.append_option(text(row));
        lists.values().append_option(number(row));
        lists.append(row % 3 != 0);
        maps.keys().append_value("k");
        maps.values().append_option(number(row));
        maps.append(row % 3 != 1).unwrap();
    }
    let numbers = (0..rows).map(number).collect::<Int64Array>();
    let fields = vec![Arc::new(Field::new("n", DataType::Int64, true))];
    let validity = (0..rows).map(|row| row % 6 != 2).collect::<Vec<bool>>();
    let structs = StructArray::new(
        fields.into(),
        vec![Arc::new(numbers.clone())],
        Some(validity.into()),
    );
    let fixed = (0..rows).map(|row| Some([row as u8; 3]));
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 3).unwrap();
    let times = (0..rows as i64).collect::<Vec<i64>>();
    let decimals = Decimal128Array::from((0..rows).map(|row| row as i128).collect::<Vec<i128>>());
    batch(vec![
        ("number", Arc::new(numbers)),
        ("view", Arc::new(views.finish())),
        (
            "text",
            Arc::new((0..rows).map(text).collect::<StringArray>()),
        ),
        (
            "bytes",
            Arc::new(BinaryArray::from_iter((0..rows).map(text))),
        ),
        ("fixed", Arc::new(fixed)),
        (
            "flag",
            Arc::new(
                (0..rows)
                    .map(|row| Some(row % 2 == 0))
                    .collect::<BooleanArray>(),
            ),
        ),
        ("float", Arc::new(Float64Array::from(vec![f64::NAN; rows]))),
        ("time", Arc::new(TimestampMillisecondArray::from(times))),
        ("decimal", Arc::new(decimals)),
        ("list", Arc::new(lists.finish())),
        ("map", Arc::new(maps.finish())),
        ("struct", Arc::new(structs)),
        ("null", Arc::new(NullArray::new(rows))),
    ])
}

fn checked(bytes: &[u8]) -> std::result::Result<Vec<RecordBatch>, String> {
    decode_checked(&Buffer::from(bytes.to_vec()))
}

#[test]
fn state_comes_back_as_it_was() {
    let all = state(50);
    let batches = [all.clone(), all.slice(7, 20), all.slice(0, 0), state(1)];
    let bytes = encode(&batches).unwrap();
    assert_eq!(checked(&bytes).unwrap(), batches);
}

#[test]
fn types_that_could_not_be_read_are_not_written() {
    let keys = Int32Array::from(vec![0, 0]);
    let values = Arc::new(StringArray::from(vec!["a"]));
    let dictionary = DictionaryArray::<Int32Type>::new(keys, values);
    let error = encode(&[batch(vec![("word", Arc::new(dictionary))])]).unwrap_err();
    assert!(error.to_string().contains("column 'word'"), "{error}");
    assert_eq!(error.kind, Kind::Invalid);
    let one = batch(vec![("a", Arc::new(Int32Array::from(vec![1])) as ArrayRef)]);
    let other = batch(vec![("b", Arc::new(Int32Array::from(vec![1])) as ArrayRef)]);
    assert!(encode(&[one, other]).is_err());
    assert!(encode(&[]).is_err());
}

#[test]
fn a_truncated_part_is_refused_at_every_byte() {
    let bytes = encode(&[state(3)]).unwrap();
    for length in 0..bytes.len() {
        assert!(checked(&bytes[..length]).is_err(), "{length} bytes");
    }
    let longer = [bytes.as_slice(), b"x"].concat();
    assert!(checked(&longer).is_err());
}

/// Without the checksum, which would refuse all of them: nothing panics, and accepted arrays are valid (they
/// are validated in full).
#[test]
fn no_changed_bit_makes_the_reader_panic() {
    let bytes = encode(&[state(3)]).unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            crate::fuzz::fuzz_part(&changed);
        }
        for value in [0, 0x7f, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            crate::fuzz::fuzz_part(&changed);
        }
    }
}

#[test]
fn names_of_parts_say_who_wrote_them() {
    let name = PartName {
        epoch: 12,
        barrier: u64::MAX,
    };
    for node in ["per_user", "", "ä/../../b", "a-b-c", &"long".repeat(99)] {
        let object = name.object(node, 3, 9);
        assert_eq!(PartName::parse(&object), Some(name), "{object}");
        assert!(object.len() < 160);
        let path = object_store::path::Path::parse(&object).unwrap();
        assert_eq!(path.as_ref(), object);
    }
    assert_ne!(name.object("a/b", 0, 0), name.object("a_b", 0, 0));
    for other in ["", "parts/", "parts/x.arrow", "parts/1-2-a.arrow"] {
        assert_eq!(PartName::parse(other), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_slices_come_back(rows in 0usize..200, cuts in proptest::collection::vec(0.0f64..1.0, 2)) {
        let all = state(rows);
        let from = (cuts[0] * rows as f64) as usize;
        let length = (cuts[1] * (rows - from) as f64) as usize;
        let batches = [all.slice(from, length), all];
        prop_assert_eq!(checked(&encode(&batches).unwrap()).unwrap(), batches);
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        crate::fuzz::fuzz_part(&bytes);
    }
}
