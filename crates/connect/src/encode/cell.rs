//! One value as text or as JSON, whatever its type. A row or an array is JSON also within text, so both
//! forms are in one module.

use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, BooleanArray, LargeStringArray, ListArray, PrimitiveArray, StringArray, StringViewArray,
    StructArray,
};
use arrow_buffer::NullBuffer;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, TimeUnit};
use slackwater_engine::error::{Error, Result};

use crate::time;

/// A column, with its type already looked up.
pub(crate) enum Cell<'a> {
    Boolean(&'a BooleanArray),
    Int8(&'a PrimitiveArray<Int8Type>),
    Int16(&'a PrimitiveArray<Int16Type>),
    Int32(&'a PrimitiveArray<Int32Type>),
    Int64(&'a PrimitiveArray<Int64Type>),
    UInt8(&'a PrimitiveArray<UInt8Type>),
    UInt16(&'a PrimitiveArray<UInt16Type>),
    UInt32(&'a PrimitiveArray<UInt32Type>),
    UInt64(&'a PrimitiveArray<UInt64Type>),
    Float32(&'a PrimitiveArray<Float32Type>),
    Float64(&'a PrimitiveArray<Float64Type>),
    Decimal(&'a PrimitiveArray<Decimal128Type>),
    Date(&'a PrimitiveArray<Date32Type>),
    Timestamp(&'a [i64], TimeUnit),
    TextView(&'a StringViewArray),
    Text(&'a StringArray),
    LargeText(&'a LargeStringArray),
    Row(&'a StructArray),
    List(&'a ListArray),
    /// Other types, through Arrow's display.
    Other(ArrayFormatter<'a>),
}

/// How a value is written in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Unquoted: numbers and booleans.
    Plain,
    /// A number that may be infinite or NaN.
    Float,
    /// In quotes.
    Text,
    Row,
    List,
}

fn downcast<T: 'static>(array: &dyn Array) -> Result<&T> {
    array.as_any().downcast_ref::<T>().ok_or_else(|| {
        Error::new(
            "",
            format!("a column claims to be {}, and is not", array.data_type()),
        )
    })
}

fn ticks<T: arrow_array::ArrowPrimitiveType<Native = i64>>(array: &dyn Array) -> Result<&[i64]> {
    Ok(downcast::<PrimitiveArray<T>>(array)?.values())
}

const DISPLAY: FormatOptions<'static> = FormatOptions::new();

impl<'a> Cell<'a> {
    pub(crate) fn new(array: &'a dyn Array) -> Result<Cell<'a>> {
        Ok(match array.data_type() {
            DataType::Boolean => Cell::Boolean(downcast(array)?),
            DataType::Int8 => Cell::Int8(downcast(array)?),
            DataType::Int16 => Cell::Int16(downcast(array)?),
            DataType::Int32 => Cell::Int32(downcast(array)?),
            DataType::Int64 => Cell::Int64(downcast(array)?),
            DataType::UInt8 => Cell::UInt8(downcast(array)?),
            DataType::UInt16 => Cell::UInt16(downcast(array)?),
            DataType::UInt32 => Cell::UInt32(downcast(array)?),
            DataType::UInt64 => Cell::UInt64(downcast(array)?),
            DataType::Float32 => Cell::Float32(downcast(array)?),
            DataType::Float64 => Cell::Float64(downcast(array)?),
            DataType::Decimal128(_, _) => Cell::Decimal(downcast(array)?),
            DataType::Date32 => Cell::Date(downcast(array)?),
            DataType::Timestamp(unit, _) => {
                let ticks = match unit {
                    TimeUnit::Second => ticks::<TimestampSecondType>(array)?,
                    TimeUnit::Millisecond => ticks::<TimestampMillisecondType>(array)?,
                    TimeUnit::Microsecond => ticks::<TimestampMicrosecondType>(array)?,
                    TimeUnit::Nanosecond => ticks::<TimestampNanosecondType>(array)?,
                };
                Cell::Timestamp(ticks, *unit)
            }
            DataType::Utf8View => Cell::TextView(downcast(array)?),
            DataType::Utf8 => Cell::Text(downcast(array)?),
            DataType::LargeUtf8 => Cell::LargeText(downcast(array)?),
            DataType::Struct(_) => Cell::Row(downcast(array)?),
            DataType::List(_) => Cell::List(downcast(array)?),
            _ => Cell::Other(ArrayFormatter::try_new(array, &DISPLAY)?),
        })
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Cell::Boolean(_)
            | Cell::Int8(_)
            | Cell::Int16(_)
            | Cell::Int32(_)
            | Cell::Int64(_)
            | Cell::UInt8(_)
            | Cell::UInt16(_)
            | Cell::UInt32(_)
            | Cell::UInt64(_)
            | Cell::Decimal(_) => Kind::Plain,
            Cell::Float32(_) | Cell::Float64(_) => Kind::Float,
            Cell::Row(_) => Kind::Row,
            Cell::List(_) => Kind::List,
            _ => Kind::Text,
        }
    }

    /// The string itself, for columns of strings.
    pub(crate) fn text(&self, row: usize) -> Option<&'a str> {
        match self {
            Cell::TextView(array) => Some(array.value(row)),
            Cell::Text(array) => Some(array.value(row)),
            Cell::LargeText(array) => Some(array.value(row)),
            _ => None,
        }
    }

    /// Whether the number has no JSON form.
    pub(crate) fn is_finite(&self, row: usize) -> bool {
        match self {
            Cell::Float32(array) => array.value(row).is_finite(),
            Cell::Float64(array) => array.value(row).is_finite(),
            _ => true,
        }
    }

    /// Appends the value, which is not NULL.
    pub(crate) fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        macro_rules! integer {
            ($array:expr) => {
                out.extend_from_slice(itoa::Buffer::new().format($array.value(row)).as_bytes())
            };
        }
        macro_rules! float {
            ($array:expr) => {
                out.extend_from_slice(zmij::Buffer::new().format($array.value(row)).as_bytes())
            };
        }
        match self {
            Cell::Boolean(array) => {
                out.extend_from_slice(if array.value(row) { b"true" } else { b"false" });
            }
            Cell::Int8(array) => integer!(array),
            Cell::Int16(array) => integer!(array),
            Cell::Int32(array) => integer!(array),
            Cell::Int64(array) => integer!(array),
            Cell::UInt8(array) => integer!(array),
            Cell::UInt16(array) => integer!(array),
            Cell::UInt32(array) => integer!(array),
            Cell::UInt64(array) => integer!(array),
            Cell::Float32(array) => float!(array),
            Cell::Float64(array) => float!(array),
            Cell::Decimal(array) => out.extend_from_slice(array.value_as_string(row).as_bytes()),
            Cell::Date(array) => time::write_date(out, i64::from(array.value(row))),
            Cell::Timestamp(ticks, unit) => time::write_timestamp(out, ticks[row], *unit),
            Cell::TextView(array) => out.extend_from_slice(array.value(row).as_bytes()),
            Cell::Text(array) => out.extend_from_slice(array.value(row).as_bytes()),
            Cell::LargeText(array) => out.extend_from_slice(array.value(row).as_bytes()),
            // A row or an array within text is its JSON.
            Cell::Row(array) => write_row(array, row, out)?,
            Cell::List(array) => write_list(array, row, out)?,
            Cell::Other(formatter) => {
                use std::io::Write;
                write!(out, "{}", formatter.value(row)).map_err(|error| {
                    Error::new("", format!("a value can't be written: {error}"))
                })?;
            }
        }
        Ok(())
    }
}

/// A column and its NULLs, written as JSON.
pub(super) struct Column<'a> {
    cell: Cell<'a>,
    nulls: Option<NullBuffer>,
}

impl<'a> Column<'a> {
    pub(super) fn new(array: &'a dyn Array) -> Result<Column<'a>> {
        Ok(Column {
            cell: Cell::new(array)?,
            nulls: array.logical_nulls(),
        })
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        if let Some(text) = self.cell.text(row) {
            write_string(text, out);
            return Ok(());
        }
        match self.cell.kind() {
            // JSON can't express infinity.
            Kind::Float if !self.cell.is_finite(row) => out.extend_from_slice(b"null"),
            Kind::Text => {
                let mut text = vec![];
                self.cell.write(row, &mut text)?;
                write_string(&String::from_utf8_lossy(&text), out);
            }
            _ => self.cell.write(row, out)?,
        }
        Ok(())
    }
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a string can be written into memory");
}

/// `"name":`, before a value.
pub(super) fn key(name: &str) -> Vec<u8> {
    let mut key = vec![];
    write_string(name, &mut key);
    key.push(b':');
    key
}

/// Appends a row as an object.
pub(super) fn write_object(
    keys: &[Vec<u8>],
    columns: &[Column<'_>],
    row: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.push(b'{');
    for (nth, (key, column)) in keys.iter().zip(columns).enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        out.extend_from_slice(key);
        column.write(row, out)?;
    }
    out.push(b'}');
    Ok(())
}

/// Appends one value of a ROW column.
fn write_row(array: &StructArray, row: usize, out: &mut Vec<u8>) -> Result<()> {
    let keys = array
        .fields()
        .iter()
        .map(|field| key(field.name()))
        .collect::<Vec<_>>();
    let columns = array.columns().iter().map(|column| Column::new(column));
    write_object(&keys, &columns.collect::<Result<Vec<_>>>()?, row, out)
}

/// Appends one value of an ARRAY column.
fn write_list(array: &ListArray, row: usize, out: &mut Vec<u8>) -> Result<()> {
    let items = array.value(row);
    let column = Column::new(&items)?;
    out.push(b'[');
    for item in 0..items.len() {
        if item > 0 {
            out.push(b',');
        }
        column.write(item, out)?;
    }
    out.push(b']');
    Ok(())
}
