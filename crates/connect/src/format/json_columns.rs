//! Columns under construction, filled one JSON value at a time.
//!
//! A column may have fewer values than there are rows: the rows that are missing at its end are NULL. They
//! are filled in before the column's next value and when the columns are finished, so a field that is `null`
//! or missing costs nothing in its own row.
//!
//! Unlike Arrow's builders, columns can be truncated to a number of rows, so that a line that turns out to be
//! bad in its last field leaves nothing in the columns before it.

use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, BooleanArray, ListArray, PrimitiveArray, StructArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef, Fields, TimeUnit};

use super::json_nulls::{Nulls, take};
use super::json_shape::Shape;
use super::json_strings::Strings;

/// One column, or one field of a nested one.
#[derive(Debug)]
pub(super) struct JsonColumn {
    /// The name within its row.
    pub(super) name: String,
    /// The path from the top (`e.price`), for messages.
    pub(super) path: String,
    pub(super) data_type: DataType,
    pub(super) values: Values,
    pub(super) nulls: Nulls,
    /// Number of the object in which the field was found last.
    found_in: u64,
}

/// The values; a NULL has an arbitrary value.
#[derive(Debug)]
pub(super) enum Values {
    Boolean(Vec<bool>),
    Signed(Vec<i64>),
    Unsigned(Vec<u64>),
    Float(Vec<f64>),
    Decimal(Vec<i128>),
    Strings(Strings),
    Row(JsonRow),
    Array {
        items: Box<JsonColumn>,
        /// The offsets of the items: one more than rows.
        offsets: Vec<i32>,
    },
}

/// The fields of an object.
#[derive(Debug)]
pub(super) struct JsonRow {
    pub(super) fields: Vec<JsonColumn>,
    pub(super) rows: usize,
    /// The order in which fields are expected.
    pub(super) shape: Shape,
    /// Objects that were begun, also those of lines that turned out to be bad.
    objects: u64,
}

/// Leaves out the rows of an ARRAY column before row `row`, which are NULL.
#[inline]
pub(super) fn skip_to(offsets: &mut Vec<i32>, nulls: &mut Nulls, row: usize) {
    let rows = offsets.len() - 1;
    if rows < row {
        nulls.add(rows, row);
        offsets.resize(row + 1, offsets[rows]);
    }
}

impl JsonRow {
    pub(super) fn new<'f>(fields: impl Iterator<Item = &'f Field>, path: &str) -> JsonRow {
        let fields = fields
            .map(|field| {
                let path = match path {
                    "" => field.name().clone(),
                    path => format!("{path}.{}", field.name()),
                };
                JsonColumn::new(field.name(), path, field.data_type())
            })
            .collect();
        JsonRow {
            fields,
            rows: 0,
            shape: Shape::default(),
            objects: 0,
        }
    }

    /// Begins the object that becomes row [`JsonRow::rows`], and returns its number.
    #[inline]
    pub(super) fn begin(&mut self) -> u64 {
        self.objects += 1;
        self.objects
    }

    /// Leaves out rows up to `row`, which are NULL.
    #[inline]
    pub(super) fn skip_to(&mut self, row: usize, nulls: &mut Nulls) {
        if self.rows < row {
            nulls.add(self.rows, row);
            self.rows = row;
        }
    }

    pub(super) fn truncate(&mut self, rows: usize) {
        self.rows = self.rows.min(rows);
        for field in &mut self.fields {
            field.truncate(rows);
        }
    }

    /// The finished columns; strings point into `block`.
    pub(super) fn finish(&mut self, block: &Buffer) -> Vec<ArrayRef> {
        let rows = std::mem::take(&mut self.rows);
        let fields = self.fields.iter_mut();
        fields.map(|field| field.finish(rows, block)).collect()
    }
}

impl JsonColumn {
    fn new(name: &str, path: String, data_type: &DataType) -> JsonColumn {
        let values = match data_type {
            DataType::Boolean => Values::Boolean(vec![]),
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
                Values::Unsigned(vec![])
            }
            DataType::Float32 | DataType::Float64 => Values::Float(vec![]),
            DataType::Decimal128(_, _) => Values::Decimal(vec![]),
            DataType::Utf8View => Values::Strings(Strings::default()),
            DataType::Struct(fields) => {
                Values::Row(JsonRow::new(fields.iter().map(AsRef::as_ref), &path))
            }
            DataType::List(item) => {
                let items = JsonColumn::new(item.name(), format!("{path}[]"), item.data_type());
                Values::Array {
                    items: Box::new(items),
                    offsets: vec![0],
                }
            }
            _ => Values::Signed(vec![]),
        };
        JsonColumn {
            name: name.to_string(),
            path,
            data_type: data_type.clone(),
            values,
            nulls: Nulls::default(),
            found_in: 0,
        }
    }

    /// Notes that object number `object` has the field; `false` if it was noted before.
    #[inline]
    pub(super) fn found_in(&mut self, object: u64) -> bool {
        std::mem::replace(&mut self.found_in, object) != object
    }

    /// Rows up to the last value.
    pub(super) fn rows(&self) -> usize {
        match &self.values {
            Values::Boolean(values) => values.len(),
            Values::Signed(values) => values.len(),
            Values::Unsigned(values) => values.len(),
            Values::Float(values) => values.len(),
            Values::Decimal(values) => values.len(),
            Values::Strings(strings) => strings.views.len(),
            Values::Row(row) => row.rows,
            Values::Array { offsets, .. } => offsets.len() - 1,
        }
    }

    /// Makes the rows after the last value NULL, up to `rows`.
    pub(super) fn fill(&mut self, rows: usize) {
        let filled = self.rows();
        if filled >= rows {
            return;
        }
        self.nulls.add(filled, rows);
        match &mut self.values {
            Values::Boolean(values) => values.resize(rows, false),
            Values::Signed(values) => values.resize(rows, 0),
            Values::Unsigned(values) => values.resize(rows, 0),
            Values::Float(values) => values.resize(rows, 0.0),
            Values::Decimal(values) => values.resize(rows, 0),
            Values::Strings(strings) => strings.views.resize(rows, 0),
            Values::Row(row) => row.rows = rows,
            Values::Array { items, offsets } => offsets.resize(rows + 1, items.rows() as i32),
        }
    }

    fn truncate(&mut self, rows: usize) {
        self.nulls.truncate(rows);
        match &mut self.values {
            Values::Boolean(values) => values.truncate(rows),
            Values::Signed(values) => values.truncate(rows),
            Values::Unsigned(values) => values.truncate(rows),
            Values::Float(values) => values.truncate(rows),
            Values::Decimal(values) => values.truncate(rows),
            Values::Strings(strings) => strings.views.truncate(rows),
            Values::Row(row) => row.truncate(rows),
            Values::Array { items, offsets } => {
                offsets.truncate(rows + 1);
                items.truncate(offsets[offsets.len() - 1] as usize);
            }
        }
    }

    fn finish(&mut self, rows: usize, block: &Buffer) -> ArrayRef {
        self.fill(rows);
        let nulls = self.nulls.take(rows);
        match &mut self.values {
            Values::Boolean(values) => Arc::new(BooleanArray::new(take(values).into(), nulls)),
            Values::Signed(values) => signed(&self.data_type, take(values), nulls),
            Values::Unsigned(values) => unsigned(&self.data_type, take(values), nulls),
            Values::Float(values) => {
                let values = take(values);
                if self.data_type == DataType::Float32 {
                    primitive::<Float32Type, _>(values, nulls, |value| value as f32)
                } else {
                    primitive::<Float64Type, _>(values, nulls, |value| value)
                }
            }
            Values::Decimal(values) => {
                let values = ScalarBuffer::from(take(values));
                let array = PrimitiveArray::<Decimal128Type>::new(values, nulls);
                Arc::new(array.with_data_type(self.data_type.clone()))
            }
            Values::Strings(strings) => Arc::new(strings.finish(block, nulls)),
            Values::Row(row) => {
                let DataType::Struct(fields) = &self.data_type else {
                    unreachable!("only a row has the values of one");
                };
                row_array(fields.clone(), row.finish(block), rows, nulls)
            }
            Values::Array { items, offsets } => {
                let DataType::List(item) = &self.data_type else {
                    unreachable!("only an array has the values of one");
                };
                let offsets = std::mem::replace(offsets, vec![0]);
                let values = items.finish(items.rows(), block);
                list_array(item, values, offsets, nulls)
            }
        }
    }
}

fn row_array(
    fields: Fields,
    columns: Vec<ArrayRef>,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let array = StructArray::try_new_with_length(fields, columns, nulls, rows)
        .expect("fields are nullable and equally long");
    Arc::new(array)
}

fn list_array(
    item: &FieldRef,
    values: ArrayRef,
    offsets: Vec<i32>,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let offsets = OffsetBuffer::new(offsets.into());
    let array = ListArray::try_new(Arc::clone(item), offsets, values, nulls)
        .expect("the offsets were counted while the items were appended");
    Arc::new(array)
}

fn primitive<T: ArrowPrimitiveType, V: Copy>(
    values: Vec<V>,
    nulls: Option<NullBuffer>,
    convert: impl Fn(V) -> T::Native,
) -> ArrayRef {
    let values = values.into_iter().map(convert).collect::<Vec<_>>();
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls))
}

/// Whether the type holds the number; checked before it is appended.
pub(super) fn holds(data_type: &DataType, value: i128) -> bool {
    let (least, most) = match data_type {
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        DataType::UInt8 => (0, u8::MAX.into()),
        DataType::UInt16 => (0, u16::MAX.into()),
        DataType::UInt32 => (0, u32::MAX.into()),
        DataType::UInt64 => (0, u64::MAX.into()),
        _ => (i64::MIN.into(), i64::MAX.into()),
    };
    (least..=most).contains(&value)
}

fn signed(data_type: &DataType, values: Vec<i64>, nulls: Option<NullBuffer>) -> ArrayRef {
    // Narrowing is exact: `holds` was asked.
    match data_type {
        DataType::Int8 => primitive::<Int8Type, _>(values, nulls, |value| value as i8),
        DataType::Int16 => primitive::<Int16Type, _>(values, nulls, |value| value as i16),
        DataType::Int32 => primitive::<Int32Type, _>(values, nulls, |value| value as i32),
        DataType::Date32 => primitive::<Date32Type, _>(values, nulls, |value| value as i32),
        DataType::Timestamp(TimeUnit::Second, _) => {
            primitive::<TimestampSecondType, _>(values, nulls, |value| value)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            primitive::<TimestampMillisecondType, _>(values, nulls, |value| value)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            primitive::<TimestampMicrosecondType, _>(values, nulls, |value| value)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            primitive::<TimestampNanosecondType, _>(values, nulls, |value| value)
        }
        _ => primitive::<Int64Type, _>(values, nulls, |value| value),
    }
}

fn unsigned(data_type: &DataType, values: Vec<u64>, nulls: Option<NullBuffer>) -> ArrayRef {
    match data_type {
        DataType::UInt8 => primitive::<UInt8Type, _>(values, nulls, |value| value as u8),
        DataType::UInt16 => primitive::<UInt16Type, _>(values, nulls, |value| value as u16),
        DataType::UInt32 => primitive::<UInt32Type, _>(values, nulls, |value| value as u32),
        _ => primitive::<UInt64Type, _>(values, nulls, |value| value),
    }
}
