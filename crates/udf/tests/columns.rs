//! Random columns of all types that functions can have, also slices of longer ones.

use std::sync::Arc;

use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time64MicrosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, ListArray, PrimitiveArray, StringViewArray,
    StructArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, TimeUnit};
use fastrand::Rng;

/// A random type; `depth` is how deep it may be.
pub fn data_type(rng: &mut Rng, depth: usize) -> DataType {
    let units = [
        TimeUnit::Second,
        TimeUnit::Millisecond,
        TimeUnit::Microsecond,
        TimeUnit::Nanosecond,
    ];
    match rng.usize(..if depth > 0 { 16 } else { 13 }) {
        0 => DataType::Boolean,
        1 => DataType::Int8,
        2 => DataType::Int16,
        3 => DataType::Int32,
        4 => DataType::Int64,
        5 => DataType::Float32,
        6 => DataType::Float64,
        7 => DataType::Utf8View,
        8 => DataType::Binary,
        9 => DataType::Date32,
        10 => DataType::Time64(TimeUnit::Microsecond),
        11 => DataType::Timestamp(units[rng.usize(..4)], None),
        12 => DataType::Decimal128(rng.u8(20..=38), rng.i8(0..=20)),
        13 | 14 => {
            let item = data_type(rng, depth - 1);
            DataType::List(Arc::new(Field::new_list_field(item, true)))
        }
        _ => {
            let fields = (0..rng.usize(1..4)).map(|number| {
                let field = data_type(rng, depth - 1);
                Field::new(format!("f{number}"), field, true)
            });
            DataType::Struct(fields.collect())
        }
    }
}

/// A column of a type, often a slice of a longer one.
pub fn column(rng: &mut Rng, data_type: &DataType, rows: usize) -> ArrayRef {
    if rng.bool() {
        return whole(rng, data_type, rows);
    }
    let (before, after) = (rng.usize(..20), rng.usize(..20));
    whole(rng, data_type, before + rows + after).slice(before, rows)
}

fn nulls(rng: &mut Rng, rows: usize) -> Option<NullBuffer> {
    let share = [0, 0, 3, 10][rng.usize(..4)];
    let valid = (0..rows).map(|_| rng.u32(..10) >= share);
    (share > 0).then(|| NullBuffer::from_iter(valid))
}

fn whole(rng: &mut Rng, data_type: &DataType, rows: usize) -> ArrayRef {
    let nulls = nulls(rng, rows);
    macro_rules! numbers {
        ($kind:ty, $value:expr) => {{
            let values = (0..rows).map(|_| $value).collect::<Vec<_>>();
            let column = PrimitiveArray::<$kind>::new(values.into(), nulls);
            Arc::new(column.with_data_type(data_type.clone()))
        }};
    }
    // Years 1 to 9999, in microseconds: what Python has.
    let mut us = || rng.i64(-62_135_596_800_000_000..253_402_300_799_000_000);
    match data_type {
        DataType::Boolean => {
            let values = (0..rows).map(|_| rng.bool()).collect::<Vec<bool>>();
            Arc::new(BooleanArray::new(values.into(), nulls))
        }
        DataType::Int8 => numbers!(Int8Type, rng.i8(..)),
        DataType::Int16 => numbers!(Int16Type, rng.i16(..)),
        DataType::Int32 => numbers!(Int32Type, rng.i32(..)),
        DataType::Int64 => numbers!(Int64Type, rng.i64(..)),
        DataType::Float32 => numbers!(Float32Type, rng.f32() * 1e6),
        DataType::Float64 => numbers!(Float64Type, rng.f64() * 1e-6),
        DataType::Date32 => numbers!(Date32Type, rng.i32(-719_162..2_932_896)),
        DataType::Time64(_) => numbers!(Time64MicrosecondType, rng.i64(0..86_400_000_000)),
        DataType::Timestamp(TimeUnit::Second, _) => numbers!(TimestampSecondType, us() / 1_000_000),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            numbers!(TimestampMillisecondType, us() / 1_000)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => numbers!(TimestampMicrosecondType, us()),
        // Python has no nanoseconds, and these end in 2262.
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            numbers!(TimestampNanosecondType, us() / 100 * 1_000)
        }
        DataType::Decimal128(precision, _) => {
            let largest = 10_i128.pow(u32::from(*precision)) - 1;
            numbers!(Decimal128Type, rng.i128(-largest..=largest))
        }
        DataType::Utf8View => {
            let letters = ['a', 'ß', '\n', '\0', '日', '😀'];
            let text = |rng: &mut Rng| {
                let letters = (0..rng.usize(..20)).map(|_| letters[rng.usize(..letters.len())]);
                letters.collect::<String>()
            };
            let values = (0..rows).map(|row| {
                let is_valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                is_valid.then(|| text(rng))
            });
            Arc::new(StringViewArray::from_iter(values.collect::<Vec<_>>()))
        }
        DataType::Binary => {
            let values = (0..rows).map(|_| {
                let bytes = (0..rng.usize(..9)).map(|_| rng.u8(..));
                bytes.collect::<Vec<u8>>()
            });
            let values = values.collect::<Vec<_>>();
            let lengths = values.iter().map(Vec::len);
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(BinaryArray::new(offsets, values.concat().into(), nulls))
        }
        DataType::List(item) => {
            let lengths = (0..rows).map(|_| rng.usize(..5)).collect::<Vec<usize>>();
            let items = column(rng, item.data_type(), lengths.iter().sum());
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(ListArray::new(Arc::clone(item), offsets, items, nulls))
        }
        DataType::Struct(fields) => {
            let columns = fields
                .iter()
                .map(|field| column(rng, field.data_type(), rows));
            let columns = columns.collect::<Vec<ArrayRef>>();
            Arc::new(StructArray::new(fields.clone(), columns, nulls))
        }
        other => unreachable!("{other}"),
    }
}
