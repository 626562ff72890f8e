//! Rows in few bytes, for state that only has to find equal rows.
//!
//! `arrow-row` makes encodings whose order is that of the rows: 9 bytes for an integer, and 33 for each 32 of
//! a string. Where any order will do (the two sides of a join), rows are packed: a bit for each NULL, numbers
//! of variable length, and strings in [few bits](super::text). Equal rows, and no others, have equal bytes.
//!
//! Encodings are not stored: snapshots hold columns.

use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, StringViewArray, make_array};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_data::ArrayDataBuilder;
use arrow_schema::{DataType, Schema};

use super::number::{push_number, take_number};
use super::text;
use crate::error::Result;

/// A buffer of strings gets no more of them once it has so many bytes: a view can point to the first 4 GiB.
const BUFFER_BYTES_MAX: usize = 1 << 30;

/// A view has all bytes of a string that is not longer.
const INLINE_BYTES_MAX: u32 = 12;

/// About how many bytes a number takes.
const NUMBER_BYTES: usize = 4;

/// Packs rows of certain columns.
pub struct Packer {
    columns: Vec<(DataType, Kind)>,
}

/// How the values of a column are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An integer of this many bytes, with a sign or without: small ones take less.
    Integer(usize, bool),
    /// A number of this many bytes, as it is.
    Fixed(usize),
    Boolean,
    String,
}

/// Packed rows, one after the other.
#[derive(Debug, Default)]
pub struct Packed {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Packed {
    /// The bytes of row `row`.
    pub fn row(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start..self.ends[row]]
    }
}

impl Kind {
    fn of(data_type: &DataType) -> Option<Kind> {
        Some(match data_type {
            DataType::Boolean => Kind::Boolean,
            DataType::Utf8View => Kind::String,
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
                Kind::Integer(data_type.primitive_width()?, false)
            }
            DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Date32
            | DataType::Timestamp(_, _) => Kind::Integer(data_type.primitive_width()?, true),
            // Also two numbers in one, such as an interval.
            other => Kind::Fixed(other.primitive_width()?),
        })
    }
}

/// The values of a column, to be packed.
struct Source<'c> {
    nulls: Option<&'c NullBuffer>,
    values: Values<'c>,
}

enum Values<'c> {
    Integers(Vec<u64>),
    Fixed(usize, &'c [u8]),
    Booleans(&'c BooleanArray),
    Strings(&'c StringViewArray),
}

/// A signed number as an unsigned one: small numbers stay small (0, -1, 1, -2, …).
fn folded(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unfolded(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// The integers of a primitive column.
fn integers(column: &dyn Array, width: usize, is_signed: bool) -> Vec<u64> {
    let data = column.to_data();
    macro_rules! words {
        ($signed:ty, $unsigned:ty) => {{
            match is_signed {
                true => data.buffer::<$signed>(0)[..data.len()]
                    .iter()
                    .map(|&value| folded(i64::from(value)))
                    .collect(),
                false => data.buffer::<$unsigned>(0)[..data.len()]
                    .iter()
                    .map(|&value| u64::from(value))
                    .collect(),
            }
        }};
    }
    match width {
        1 => words!(i8, u8),
        2 => words!(i16, u16),
        4 => words!(i32, u32),
        _ => words!(i64, u64),
    }
}

/// The column of integers.
fn column_of(words: &[u64], width: usize, is_signed: bool) -> Buffer {
    macro_rules! buffer {
        ($native:ty) => {
            match is_signed {
                true => words.iter().map(|&it| unfolded(it) as $native).collect(),
                false => words.iter().map(|&it| it as $native).collect(),
            }
        };
    }
    match width {
        1 => buffer!(u8),
        2 => buffer!(u16),
        4 => buffer!(u32),
        _ => buffer!(u64),
    }
}

impl Packer {
    /// A packer for these columns; `None` if one of them is of a type that can't be packed.
    pub fn new(schema: &Schema) -> Option<Packer> {
        let kinds = schema.fields().iter().map(|field| {
            let data_type = field.data_type();
            Some((data_type.clone(), Kind::of(data_type)?))
        });
        Some(Packer {
            columns: kinds.collect::<Option<Vec<_>>>()?,
        })
    }

    /// The bytes before a row's values: a bit for each column.
    fn null_bytes(&self) -> usize {
        self.columns.len().div_ceil(8)
    }

    /// Packs rows.
    pub fn pack(&self, columns: &[ArrayRef], rows: usize) -> Packed {
        let data = columns.iter().map(|it| it.to_data()).collect::<Vec<_>>();
        let sources = self.columns.iter().zip(columns).zip(&data);
        let sources = sources.map(|(((_, kind), column), data)| Source {
            nulls: column.nulls(),
            values: match *kind {
                Kind::Integer(width, is_signed) => {
                    Values::Integers(integers(column.as_ref(), width, is_signed))
                }
                Kind::Fixed(width) => {
                    let start = data.offset() * width;
                    Values::Fixed(width, &data.buffers()[0][start..])
                }
                Kind::Boolean => Values::Booleans(column.as_boolean()),
                Kind::String => Values::Strings(column.as_string_view()),
            },
        });
        let sources = sources.collect::<Vec<Source>>();
        let null_bytes = self.null_bytes();
        let mut packed = Packed::default();
        packed.ends.reserve_exact(rows);
        let strings = sources.iter().map(|source| match &source.values {
            Values::Strings(strings) => strings.lengths().map(|it| it as usize).sum(),
            _ => rows * NUMBER_BYTES,
        });
        let bytes = strings.sum::<usize>();
        packed.bytes.reserve(bytes + rows * null_bytes);
        for row in 0..rows {
            let bytes = &mut packed.bytes;
            let head = bytes.len();
            bytes.resize(head + null_bytes, 0);
            for (nth, source) in sources.iter().enumerate() {
                if source.nulls.is_some_and(|nulls| nulls.is_null(row)) {
                    bytes[head + nth / 8] |= 1 << (nth % 8);
                    continue;
                }
                match &source.values {
                    Values::Integers(words) => push_number(bytes, words[row]),
                    Values::Fixed(width, values) => {
                        bytes.extend_from_slice(&values[row * width..(row + 1) * width]);
                    }
                    Values::Booleans(values) => bytes.push(u8::from(values.value(row))),
                    Values::Strings(strings) => text::push(bytes, strings.value(row)),
                }
            }
            packed.ends.push(packed.bytes.len());
        }
        packed
    }

    /// The columns of rows that [`Packer::pack`] made.
    pub fn unpack<'r>(&self, rows: impl Iterator<Item = &'r [u8]>) -> Result<Vec<ArrayRef>> {
        let rows = rows.collect::<Vec<&[u8]>>();
        let columns = self.columns.iter();
        let columns = columns.map(|(_, kind)| Column::new(*kind, rows.len()));
        let mut columns = columns.collect::<Vec<Column>>();
        let mut unpacked = Unpacked::default();
        let null_bytes = self.null_bytes();
        for row in &rows {
            let (nulls, mut rest) = row.split_at(null_bytes);
            for (nth, column) in columns.iter_mut().enumerate() {
                let is_null = nulls[nth / 8] & 1 << (nth % 8) != 0;
                column.push(is_null, &mut rest, &mut unpacked);
            }
            debug_assert!(rest.is_empty(), "a row has the values of its columns");
        }
        let buffers = unpacked.buffers.into_iter().map(Buffer::from_vec);
        let buffers = buffers.collect::<Vec<Buffer>>();
        let columns = columns.into_iter().zip(&self.columns);
        columns
            .map(|(column, (data_type, _))| column.finish(data_type, &buffers))
            .collect()
    }
}

/// The unpacked strings of all columns.
#[derive(Default)]
struct Unpacked {
    buffers: Vec<Vec<u8>>,
}

impl Unpacked {
    /// Takes a string from the beginning of the rest of a row; returns its view.
    #[inline]
    fn take(&mut self, rest: &mut &[u8]) -> u128 {
        if (self.buffers.last()).is_none_or(|last| last.len() >= BUFFER_BYTES_MAX) {
            self.buffers.push(Vec::new());
        }
        let number = self.buffers.len() as u32 - 1;
        let last = self.buffers.last_mut().expect("added just above");
        let start = last.len();
        text::take(rest, last);
        let view = make_view(&last[start..], number, start as u32);
        if view as u32 <= INLINE_BYTES_MAX {
            last.truncate(start);
        }
        view
    }
}

/// A column under construction.
struct Column {
    kind: Kind,
    valid: Vec<bool>,
    words: Vec<u64>,
    views: Vec<u128>,
    bytes: Vec<u8>,
}

impl Column {
    fn new(kind: Kind, rows: usize) -> Column {
        let room = |is_used: bool| if is_used { rows } else { 0 };
        Column {
            kind,
            valid: Vec::with_capacity(rows),
            words: Vec::with_capacity(room(matches!(kind, Kind::Integer(_, _)))),
            views: Vec::with_capacity(room(kind == Kind::String)),
            bytes: Vec::new(),
        }
    }

    /// Takes the value at the beginning of the rest of a row.
    #[inline]
    fn push(&mut self, is_null: bool, rest: &mut &[u8], unpacked: &mut Unpacked) {
        self.valid.push(!is_null);
        match self.kind {
            Kind::Integer(_, _) if is_null => self.words.push(0),
            Kind::Integer(_, _) => self.words.push(take_number(rest)),
            Kind::Fixed(width) if is_null => {
                self.bytes.resize(self.bytes.len() + width, 0);
            }
            Kind::Fixed(width) => {
                self.bytes.extend_from_slice(&rest[..width]);
                *rest = &rest[width..];
            }
            Kind::Boolean if is_null => self.bytes.push(0),
            Kind::Boolean => {
                self.bytes.push(rest[0]);
                *rest = &rest[1..];
            }
            Kind::String if is_null => self.views.push(0),
            Kind::String => self.views.push(unpacked.take(rest)),
        }
    }

    fn finish(self, data_type: &DataType, buffers: &[Buffer]) -> Result<ArrayRef> {
        let rows = self.valid.len();
        let has_nulls = self.valid.contains(&false);
        let nulls = has_nulls.then(|| NullBuffer::from(self.valid));
        let values = match self.kind {
            Kind::Integer(width, is_signed) => column_of(&self.words, width, is_signed),
            Kind::Fixed(_) => Buffer::from_vec(self.bytes),
            Kind::Boolean => {
                let values = self.bytes.iter().map(|&byte| byte != 0);
                let values = values.collect::<Vec<bool>>();
                return Ok(Arc::new(BooleanArray::new(values.into(), nulls)));
            }
            Kind::String => {
                let (views, buffers) = (self.views.into(), buffers.to_vec());
                // SAFETY: the bytes of each string were a `str` when its row was packed, and each view was
                // made of them, for their place in its buffer.
                let array = unsafe { StringViewArray::new_unchecked(views, buffers, nulls) };
                debug_assert!(array.to_data().validate_full().is_ok());
                return Ok(Arc::new(array));
            }
        };
        let data = ArrayDataBuilder::new(data_type.clone()).len(rows);
        let data = data.nulls(nulls).add_buffer(values).align_buffers(true);
        Ok(make_array(data.build()?))
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::builder::{BooleanBuilder, Decimal128Builder};
    use arrow_array::{
        Date32Array, Float64Array, Int8Array, Int64Array, TimestampMillisecondArray, UInt32Array,
    };
    use arrow_row::{RowConverter, SortField};
    use arrow_schema::Field;
    use proptest::prelude::*;

    use super::*;

    type Row = (
        Option<i64>,
        Option<f64>,
        Option<String>,
        Option<bool>,
        Option<i128>,
    );

    fn row() -> impl Strategy<Value = Row> {
        let few = prop_oneof![Just(0), Just(-1), Just(1), Just(i64::MIN), Just(i64::MAX)];
        let float = prop_oneof![Just(0.0), Just(-0.0), Just(f64::NAN), any::<f64>()];
        (
            prop::option::of(prop_oneof![few, -300..300i64, any::<i64>()]),
            prop::option::of(float),
            prop::option::of("(|a|ab|[a-zü]{0,40})"),
            prop::option::of(any::<bool>()),
            prop::option::of(-9999..9999i128),
        )
    }

    fn columns(rows: &[Row]) -> Vec<ArrayRef> {
        let numbers = || rows.iter().map(|row| row.0);
        let mut booleans = BooleanBuilder::new();
        rows.iter().for_each(|row| booleans.append_option(row.3));
        let mut decimals = Decimal128Builder::new();
        rows.iter().for_each(|row| decimals.append_option(row.4));
        let small = |value: Option<i64>| value.map(|value| value as i8);
        vec![
            Arc::new(numbers().collect::<Int64Array>()),
            Arc::new(numbers().map(small).collect::<Int8Array>()),
            Arc::new(
                numbers()
                    .map(|it| it.map(|it| it as u32))
                    .collect::<UInt32Array>(),
            ),
            Arc::new(
                numbers()
                    .map(|it| it.map(|it| it as i32))
                    .collect::<Date32Array>(),
            ),
            Arc::new(numbers().collect::<TimestampMillisecondArray>()),
            Arc::new(rows.iter().map(|row| row.1).collect::<Float64Array>()),
            Arc::new(
                rows.iter()
                    .map(|row| row.2.clone())
                    .collect::<StringViewArray>(),
            ),
            Arc::new(booleans.finish()),
            Arc::new(decimals.finish()),
            Arc::new(
                rows.iter()
                    .map(|row| row.2.clone())
                    .collect::<StringViewArray>(),
            ),
        ]
    }

    fn schema(columns: &[ArrayRef]) -> Schema {
        let fields = columns.iter();
        let fields = fields.map(|column| Field::new("c", column.data_type().clone(), true));
        Schema::new(fields.collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn rows_come_back_and_equal_ones_have_equal_bytes(
            rows in prop::collection::vec(row(), 1..30),
            from in any::<prop::sample::Index>(),
        ) {
            // Sliced, as the columns of a chunk may be.
            let (from, all) = (from.index(rows.len()), columns(&rows));
            let count = rows.len() - from;
            let columns = all.iter().map(|column| column.slice(from, count));
            let columns = columns.collect::<Vec<ArrayRef>>();
            let packer = Packer::new(&schema(&columns)).unwrap();
            let packed = packer.pack(&columns, count);
            let unpacked = packer.unpack((0..count).map(|row| packed.row(row))).unwrap();
            let fields = columns.iter().map(|column| SortField::new(column.data_type().clone()));
            let converter = RowConverter::new(fields.collect()).unwrap();
            let sorted = converter.convert_columns(&columns).unwrap();
            // Also NaN and -0 are the same as before.
            let again = converter.convert_columns(&unpacked).unwrap();
            for one in 0..count {
                prop_assert_eq!(sorted.row(one), again.row(one));
                for other in 0..count {
                    let is_equal = sorted.row(one) == sorted.row(other);
                    prop_assert_eq!(packed.row(one) == packed.row(other), is_equal);
                }
            }
            for (column, unpacked) in columns.iter().zip(&unpacked) {
                prop_assert_eq!(column.data_type(), unpacked.data_type());
            }
        }
    }

    #[test]
    fn nested_columns_are_not_packed() {
        let item = Arc::new(Field::new("item", DataType::Int64, true));
        let fields = vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::List(item), true),
        ];
        assert!(Packer::new(&Schema::new(fields.clone())).is_none());
        assert!(Packer::new(&Schema::new(fields[..1].to_vec())).is_some());
    }
}
