//! One value in the formats of the protocol: text, and binary.

use std::fmt::Write as _;
use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};

use super::civil::{self, Interval};
use super::numeric;
use super::types::{PgType, oid};

/// A value on its way out, in the unit of the wire.
enum Value<'a> {
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Float4(f32),
    Float8(f64),
    /// Its digits.
    Numeric(String),
    Text(&'a str),
    Bytes(&'a [u8]),
    /// Days since 1970.
    Date(i64),
    /// Microseconds of the day.
    Time(i64),
    /// Microseconds since 1970, and whether it is shown with a time zone.
    Timestamp(i64, bool),
    Interval(Interval),
    List(ArrayRef),
    Json,
    /// A type that the engine does not have, as Arrow shows it.
    Shown(String),
}

/// The value of a row that is not NULL.
fn value(array: &dyn Array, row: usize) -> Value<'_> {
    macro_rules! at {
        ($kind:ty) => {
            array.as_primitive::<$kind>().value(row)
        };
    }
    match array.data_type() {
        DataType::Boolean => Value::Bool(array.as_boolean().value(row)),
        DataType::Int8 => Value::Int(at!(Int8Type).into()),
        DataType::Int16 => Value::Int(at!(Int16Type).into()),
        DataType::Int32 => Value::Int(at!(Int32Type).into()),
        DataType::Int64 => Value::Int(at!(Int64Type)),
        DataType::UInt8 => Value::Int(at!(UInt8Type).into()),
        DataType::UInt16 => Value::Int(at!(UInt16Type).into()),
        DataType::UInt32 => Value::Int(at!(UInt32Type).into()),
        DataType::UInt64 => Value::Unsigned(at!(UInt64Type)),
        DataType::Float16 => Value::Float4(at!(Float16Type).to_f32()),
        DataType::Float32 => Value::Float4(at!(Float32Type)),
        DataType::Float64 => Value::Float8(at!(Float64Type)),
        DataType::Decimal32(_, _) => Value::Numeric(decimal::<Decimal32Type>(array, row)),
        DataType::Decimal64(_, _) => Value::Numeric(decimal::<Decimal64Type>(array, row)),
        DataType::Decimal128(_, _) => Value::Numeric(decimal::<Decimal128Type>(array, row)),
        DataType::Decimal256(_, _) => Value::Numeric(decimal::<Decimal256Type>(array, row)),
        DataType::Utf8 => Value::Text(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => Value::Text(array.as_string::<i64>().value(row)),
        DataType::Utf8View => Value::Text(array.as_string_view().value(row)),
        DataType::Binary => Value::Bytes(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => Value::Bytes(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => Value::Bytes(array.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => Value::Bytes(array.as_fixed_size_binary().value(row)),
        DataType::Date32 => Value::Date(at!(Date32Type).into()),
        DataType::Date64 => Value::Date(at!(Date64Type).div_euclid(86_400_000)),
        DataType::Time32(TimeUnit::Second) => {
            Value::Time(i64::from(at!(Time32SecondType)) * 1_000_000)
        }
        DataType::Time32(_) => Value::Time(i64::from(at!(Time32MillisecondType)) * 1_000),
        DataType::Time64(TimeUnit::Nanosecond) => Value::Time(at!(Time64NanosecondType) / 1_000),
        DataType::Time64(_) => Value::Time(at!(Time64MicrosecondType)),
        DataType::Timestamp(unit, zone) => {
            let micros = match unit {
                TimeUnit::Second => at!(TimestampSecondType).saturating_mul(1_000_000),
                TimeUnit::Millisecond => at!(TimestampMillisecondType).saturating_mul(1_000),
                TimeUnit::Microsecond => at!(TimestampMicrosecondType),
                TimeUnit::Nanosecond => at!(TimestampNanosecondType).div_euclid(1_000),
            };
            Value::Timestamp(micros, zone.is_some())
        }
        DataType::Interval(IntervalUnit::YearMonth) => {
            Value::Interval(Interval::new(at!(IntervalYearMonthType), 0, 0))
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            let value = at!(IntervalDayTimeType);
            let micros = i64::from(value.milliseconds) * 1_000;
            Value::Interval(Interval::new(0, value.days, micros))
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let value = at!(IntervalMonthDayNanoType);
            let micros = value.nanoseconds / 1_000;
            Value::Interval(Interval::new(value.months, value.days, micros))
        }
        DataType::Duration(unit) => {
            let micros = match unit {
                TimeUnit::Second => at!(DurationSecondType).saturating_mul(1_000_000),
                TimeUnit::Millisecond => at!(DurationMillisecondType).saturating_mul(1_000),
                TimeUnit::Microsecond => at!(DurationMicrosecondType),
                TimeUnit::Nanosecond => at!(DurationNanosecondType) / 1_000,
            };
            Value::Interval(Interval::new(0, 0, micros))
        }
        DataType::List(_) => Value::List(array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => Value::List(array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(_, _) => Value::List(array.as_fixed_size_list().value(row)),
        DataType::Struct(_) | DataType::Map(_, _) => Value::Json,
        DataType::Null
        | DataType::Dictionary(_, _)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::RunEndEncoded(_, _)
        | DataType::Union(_, _) => Value::Shown(shown(array, row)),
    }
}

fn decimal<T: arrow_array::types::DecimalType>(array: &dyn Array, row: usize) -> String {
    array.as_primitive::<T>().value_as_string(row)
}

fn shown(array: &dyn Array, row: usize) -> String {
    let formatter = ArrayFormatter::try_new(array, &FormatOptions::new());
    formatter.map_or_else(|_| String::new(), |all| all.value(row).to_string())
}

/// Appends a value as text; false for NULL.
pub fn write_text(array: &dyn Array, row: usize, out: &mut String) -> bool {
    if array.is_null(row) || matches!(array.data_type(), DataType::Null) {
        return false;
    }
    let written = match value(array, row) {
        Value::Bool(value) => {
            out.push(if value { 't' } else { 'f' });
            Ok(())
        }
        Value::Int(value) => write!(out, "{value}"),
        Value::Unsigned(value) => write!(out, "{value}"),
        Value::Float4(value) => {
            write_float(&format!("{value:?}"), value.is_finite(), out);
            Ok(())
        }
        Value::Float8(value) => {
            write_float(&format!("{value:?}"), value.is_finite(), out);
            Ok(())
        }
        Value::Numeric(digits) | Value::Shown(digits) => out.write_str(&digits),
        Value::Text(text) => out.write_str(text),
        Value::Bytes(bytes) => {
            out.push_str("\\x");
            bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
        }
        Value::Date(days) => {
            civil::write_date(days, out);
            Ok(())
        }
        Value::Time(micros) => {
            civil::write_time(micros, out);
            Ok(())
        }
        Value::Timestamp(micros, zone) => {
            civil::write_timestamp(micros, zone, out);
            Ok(())
        }
        Value::Interval(interval) => {
            interval.write(out);
            Ok(())
        }
        Value::List(values) if PgType::of(array.data_type()).oid != oid::JSON => {
            write_array(&values, out);
            Ok(())
        }
        Value::List(_) | Value::Json => {
            write_json(array, row, out);
            Ok(())
        }
    };
    debug_assert!(written.is_ok(), "a string takes everything");
    true
}

/// Rust's shortest form that reads back, with PostgreSQL's words.
fn write_float(text: &str, finite: bool, out: &mut String) {
    match text {
        "inf" => out.push_str("Infinity"),
        "-inf" => out.push_str("-Infinity"),
        _ if finite => out.push_str(text.strip_suffix(".0").unwrap_or(text)),
        _ => out.push_str("NaN"),
    }
}

/// `{1,2,NULL,"a b"}`.
fn write_array(values: &ArrayRef, out: &mut String) {
    out.push('{');
    let mut text = String::new();
    for row in 0..values.len() {
        if row > 0 {
            out.push(',');
        }
        text.clear();
        if !write_text(values, row, &mut text) {
            out.push_str("NULL");
        } else if needs_quotes(&text) {
            out.push('"');
            for character in text.chars() {
                if matches!(character, '"' | '\\') {
                    out.push('\\');
                }
                out.push(character);
            }
            out.push('"');
        } else {
            out.push_str(&text);
        }
    }
    out.push('}');
}

fn needs_quotes(text: &str) -> bool {
    let special = |character: char| {
        matches!(character, '{' | '}' | ',' | '"' | '\\') || character.is_ascii_whitespace()
    };
    text.is_empty() || text.eq_ignore_ascii_case("null") || text.contains(special)
}

/// A row, a map or an array of them as JSON.
fn write_json(array: &dyn Array, row: usize, out: &mut String) {
    if array.is_null(row) || matches!(array.data_type(), DataType::Null) {
        out.push_str("null");
        return;
    }
    match array.data_type() {
        DataType::Struct(fields) => {
            out.push('{');
            let columns = array.as_struct().columns();
            for (at, (field, column)) in fields.iter().zip(columns).enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                write_json_text(field.name(), out);
                out.push(':');
                write_json(column, row, out);
            }
            out.push('}');
        }
        DataType::Map(_, _) => {
            out.push('{');
            let entries = array.as_map().value(row);
            let (keys, values) = (entries.column(0), entries.column(1));
            for at in 0..entries.len() {
                out.push_str(if at > 0 { "," } else { "" });
                let mut key = String::new();
                write_text(keys, at, &mut key);
                write_json_text(&key, out);
                out.push(':');
                write_json(values, at, out);
            }
            out.push('}');
        }
        DataType::Boolean => {
            let value = array.as_boolean().value(row);
            out.push_str(if value { "true" } else { "false" });
        }
        _ => match value(array, row) {
            Value::List(values) => {
                out.push('[');
                for at in 0..values.len() {
                    out.push_str(if at > 0 { "," } else { "" });
                    write_json(&values, at, out);
                }
                out.push(']');
            }
            Value::Float4(value) if !value.is_finite() => out.push_str("null"),
            Value::Float8(value) if !value.is_finite() => out.push_str("null"),
            Value::Int(_)
            | Value::Unsigned(_)
            | Value::Numeric(_)
            | Value::Float4(_)
            | Value::Float8(_) => {
                write_text(array, row, out);
            }
            _ => {
                let mut text = String::new();
                write_text(array, row, &mut text);
                write_json_text(&text, out);
            }
        },
    }
}

fn write_json_text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            other if other < ' ' => {
                let written = write!(out, "\\u{:04x}", u32::from(other));
                debug_assert!(written.is_ok(), "a string takes everything");
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// Why a value has no binary form: it is outside of what PostgreSQL's type can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfRange(pub String);

/// The days, and the microseconds, from 1970 to 2000, where PostgreSQL counts from.
const DAYS_TO_2000: i64 = 10_957;
const MICROS_TO_2000: i64 = DAYS_TO_2000 * 86_400_000_000;

/// Appends a value in the binary format of its type, without its length; false for NULL.
///
/// # Errors
///
/// If PostgreSQL's type can't hold it.
pub fn write_binary(
    array: &dyn Array,
    row: usize,
    kind: PgType,
    out: &mut Vec<u8>,
) -> Result<bool, OutOfRange> {
    if array.is_null(row) || matches!(array.data_type(), DataType::Null) {
        return Ok(false);
    }
    let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
    let range = || {
        let mut text = String::new();
        write_text(array, row, &mut text);
        OutOfRange(text)
    };
    match value(array, row) {
        Value::Bool(value) => put(&[u8::from(value)]),
        Value::Int(value) => match kind.size {
            2 => put(&i16::try_from(value).map_err(|_| range())?.to_be_bytes()),
            4 if kind.oid == oid::OID => {
                put(&u32::try_from(value).map_err(|_| range())?.to_be_bytes());
            }
            4 => put(&i32::try_from(value).map_err(|_| range())?.to_be_bytes()),
            _ => put(&value.to_be_bytes()),
        },
        Value::Unsigned(value) => put(&numeric::to_binary(&value.to_string()).ok_or_else(range)?),
        Value::Numeric(digits) => put(&numeric::to_binary(&digits).ok_or_else(range)?),
        Value::Float4(value) => put(&value.to_be_bytes()),
        Value::Float8(value) => put(&value.to_be_bytes()),
        Value::Text(text) => put(text.as_bytes()),
        Value::Shown(text) => put(text.as_bytes()),
        Value::Bytes(bytes) => put(bytes),
        Value::Date(days) => {
            let days = i32::try_from(days - DAYS_TO_2000).map_err(|_| range())?;
            put(&days.to_be_bytes());
        }
        Value::Time(micros) => put(&micros.to_be_bytes()),
        Value::Timestamp(micros, _) => {
            let micros = micros.checked_sub(MICROS_TO_2000).ok_or_else(range)?;
            put(&micros.to_be_bytes());
        }
        Value::Interval(Interval {
            months,
            days,
            micros,
        }) => {
            put(&micros.to_be_bytes());
            put(&days.to_be_bytes());
            put(&months.to_be_bytes());
        }
        Value::List(values) if kind.oid != oid::JSON => binary_array(&values, out)?,
        Value::List(_) | Value::Json => {
            let mut text = String::new();
            write_json(array, row, &mut text);
            put(text.as_bytes());
        }
    }
    Ok(true)
}

/// One dimension: whether there are NULLs, the element's type, then each value with its length.
fn binary_array(values: &ArrayRef, out: &mut Vec<u8>) -> Result<(), OutOfRange> {
    let kind = PgType::of(values.data_type());
    let count = i32::try_from(values.len()).map_err(|_| OutOfRange("an array".to_owned()))?;
    let dimensions = i32::from(count > 0);
    out.extend_from_slice(&dimensions.to_be_bytes());
    out.extend_from_slice(&i32::from(values.null_count() > 0).to_be_bytes());
    out.extend_from_slice(&kind.oid.to_be_bytes());
    if count > 0 {
        out.extend_from_slice(&count.to_be_bytes());
        out.extend_from_slice(&1_i32.to_be_bytes());
    }
    for row in 0..values.len() {
        with_length(out, |out| write_binary(values, row, kind, out))?;
    }
    Ok(())
}

/// Appends the length of what a closure writes, and then that; -1 for NULL.
pub fn with_length(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<bool, OutOfRange>,
) -> Result<(), OutOfRange> {
    let at: Range<usize> = out.len()..out.len() + 4;
    out.extend_from_slice(&(-1_i32).to_be_bytes());
    if write(out)? {
        let length = i32::try_from(out.len() - at.end);
        let length = length.map_err(|_| OutOfRange("a value of more than 2 GB".to_owned()))?;
        out[at].copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}
