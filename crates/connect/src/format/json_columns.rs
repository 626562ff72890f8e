//! Columns under construction, filled one JSON value at a time.
//!
//! Unlike Arrow's builders they can be truncated to a number of rows, so that a line that turns out to be bad
//! in its last field leaves nothing in the columns before it.

use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, BooleanArray, ListArray, PrimitiveArray, StringViewArray, StructArray,
    builder::make_view,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef, Fields, TimeUnit};

/// One column, or one field of a nested one.
#[derive(Debug)]
pub(super) struct JsonColumn {
    /// The name within its row.
    pub(super) name: String,
    /// The path from the top (`e.price`), for messages.
    pub(super) path: String,
    pub(super) data_type: DataType,
    pub(super) values: Values,
    valid: Vec<bool>,
}

/// The values; a NULL has an arbitrary value, so that all vectors have the same length.
#[derive(Debug)]
pub(super) enum Values {
    Boolean(Vec<bool>),
    Signed(Vec<i64>),
    Unsigned(Vec<u64>),
    Float(Vec<f64>),
    Decimal(Vec<i128>),
    Text {
        text: Vec<u8>,
        ends: Vec<usize>,
    },
    Row(JsonRow),
    Array {
        items: Box<JsonColumn>,
        /// The offsets of the items: one more than rows.
        offsets: Vec<i32>,
    },
}

/// The fields of an object.
#[derive(Debug, Default)]
pub(super) struct JsonRow {
    pub(super) fields: Vec<JsonColumn>,
    pub(super) rows: usize,
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
        JsonRow { fields, rows: 0 }
    }

    /// Ends a row: fields that were missing are NULL.
    pub(super) fn end_row(&mut self) {
        self.rows += 1;
        for field in &mut self.fields {
            if field.rows() < self.rows {
                field.append_null();
            }
        }
    }

    pub(super) fn truncate(&mut self, rows: usize) {
        self.rows = rows;
        for field in &mut self.fields {
            field.truncate(rows);
        }
    }

    pub(super) fn finish(&mut self) -> Vec<ArrayRef> {
        self.rows = 0;
        self.fields.iter_mut().map(JsonColumn::finish).collect()
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
            DataType::Utf8View => Values::Text {
                text: vec![],
                ends: vec![],
            },
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
            valid: vec![],
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.valid.len()
    }

    /// Marks the value that was just appended as present.
    pub(super) fn end_value(&mut self) {
        self.valid.push(true);
    }

    pub(super) fn append_null(&mut self) {
        self.valid.push(false);
        match &mut self.values {
            Values::Boolean(values) => values.push(false),
            Values::Signed(values) => values.push(0),
            Values::Unsigned(values) => values.push(0),
            Values::Float(values) => values.push(0.0),
            Values::Decimal(values) => values.push(0),
            Values::Text { text, ends } => ends.push(text.len()),
            Values::Row(row) => row.end_row(),
            Values::Array { items, offsets } => offsets.push(items.rows() as i32),
        }
    }

    fn truncate(&mut self, rows: usize) {
        self.valid.truncate(rows);
        match &mut self.values {
            Values::Boolean(values) => values.truncate(rows),
            Values::Signed(values) => values.truncate(rows),
            Values::Unsigned(values) => values.truncate(rows),
            Values::Float(values) => values.truncate(rows),
            Values::Decimal(values) => values.truncate(rows),
            Values::Text { text, ends } => {
                ends.truncate(rows);
                text.truncate(ends.last().copied().unwrap_or(0));
            }
            Values::Row(row) => row.truncate(rows),
            Values::Array { items, offsets } => {
                offsets.truncate(rows + 1);
                items.truncate(offsets[rows] as usize);
            }
        }
    }

    fn finish(&mut self) -> ArrayRef {
        let valid = std::mem::take(&mut self.valid);
        let nulls = valid.contains(&false).then(|| NullBuffer::from(valid));
        match &mut self.values {
            Values::Boolean(values) => {
                Arc::new(BooleanArray::new(std::mem::take(values).into(), nulls))
            }
            Values::Signed(values) => signed(&self.data_type, std::mem::take(values), nulls),
            Values::Unsigned(values) => unsigned(&self.data_type, std::mem::take(values), nulls),
            Values::Float(values) => {
                let values = std::mem::take(values);
                if self.data_type == DataType::Float32 {
                    primitive::<Float32Type, _>(values, nulls, |value| value as f32)
                } else {
                    primitive::<Float64Type, _>(values, nulls, |value| value)
                }
            }
            Values::Decimal(values) => {
                let values = ScalarBuffer::from(std::mem::take(values));
                let array = PrimitiveArray::<Decimal128Type>::new(values, nulls);
                Arc::new(array.with_data_type(self.data_type.clone()))
            }
            Values::Text { text, ends } => {
                strings(std::mem::take(text), &std::mem::take(ends), nulls)
            }
            Values::Row(row) => {
                let DataType::Struct(fields) = &self.data_type else {
                    unreachable!("only a row has the values of one");
                };
                row_array(fields.clone(), row, nulls)
            }
            Values::Array { items, offsets } => {
                let DataType::List(item) = &self.data_type else {
                    unreachable!("only an array has the values of one");
                };
                let offsets = std::mem::replace(offsets, vec![0]);
                list_array(item, items, offsets, nulls)
            }
        }
    }
}

fn row_array(fields: Fields, row: &mut JsonRow, nulls: Option<NullBuffer>) -> ArrayRef {
    let rows = row.rows;
    let columns = row.finish();
    let array = StructArray::try_new_with_length(fields, columns, nulls, rows)
        .expect("fields are nullable and equally long");
    Arc::new(array)
}

fn list_array(
    item: &FieldRef,
    items: &mut JsonColumn,
    offsets: Vec<i32>,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let offsets = OffsetBuffer::new(offsets.into());
    let array = ListArray::try_new(Arc::clone(item), offsets, items.finish(), nulls)
        .expect("the offsets were counted while the items were appended");
    Arc::new(array)
}

fn strings(text: Vec<u8>, ends: &[usize], nulls: Option<NullBuffer>) -> ArrayRef {
    let mut start = 0;
    let views = ends
        .iter()
        .map(|&end| {
            let view = make_view(&text[start..end], 0, start as u32);
            start = end;
            view
        })
        .collect::<Vec<u128>>();
    let array = StringViewArray::try_new(views.into(), vec![Buffer::from(text)], nulls)
        .expect("the text was appended as UTF-8, string by string");
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
