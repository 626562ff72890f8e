//! Constants as stored identities spell them.

use std::fmt::Display;

use arrow_array::{Array, ArrayRef};
use datafusion_common::ScalarValue;

use super::Type;

/// A constant. Two constants have one text where they are the same value of the same type.
pub fn literal(value: &ScalarValue) -> String {
    match value {
        ScalarValue::Null => "NULL".to_string(),
        ScalarValue::Boolean(Some(true)) => "TRUE".to_string(),
        ScalarValue::Boolean(Some(false)) => "FALSE".to_string(),
        ScalarValue::Float16(Some(of)) => typed(value, of),
        ScalarValue::Float32(Some(of)) => typed(value, of),
        ScalarValue::Float64(Some(of)) => typed(value, of),
        ScalarValue::Decimal32(Some(of), ..) => typed(value, of),
        ScalarValue::Decimal64(Some(of), ..) => typed(value, of),
        ScalarValue::Decimal128(Some(of), ..) => typed(value, of),
        ScalarValue::Decimal256(Some(of), ..) => typed(value, of),
        ScalarValue::Int8(Some(of)) => typed(value, of),
        ScalarValue::Int16(Some(of)) => typed(value, of),
        ScalarValue::Int32(Some(of)) => typed(value, of),
        ScalarValue::Int64(Some(of)) => of.to_string(),
        ScalarValue::UInt8(Some(of)) => typed(value, of),
        ScalarValue::UInt16(Some(of)) => typed(value, of),
        ScalarValue::UInt32(Some(of)) => typed(value, of),
        ScalarValue::UInt64(Some(of)) => typed(value, of),
        // How Arrow lays a constant out is nothing that a state sees.
        ScalarValue::Utf8(Some(of))
        | ScalarValue::Utf8View(Some(of))
        | ScalarValue::LargeUtf8(Some(of)) => format!("'{}'", of.replace('\'', "''")),
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::FixedSizeBinary(_, Some(bytes)) => {
            let digits = bytes.iter().map(|byte| format!("{byte:02X}"));
            format!("X'{}'", digits.collect::<String>())
        }
        ScalarValue::FixedSizeList(of) => list(&of.value(0)),
        ScalarValue::List(of) => list(&of.value(0)),
        ScalarValue::LargeList(of) => list(&of.value(0)),
        ScalarValue::ListView(of) => list(&of.value(0)),
        ScalarValue::LargeListView(of) => list(&of.value(0)),
        ScalarValue::Struct(of) => {
            let values = of.columns().iter().map(|column| item(column, 0));
            format!("ROW({})", values.collect::<Vec<_>>().join(", "))
        }
        ScalarValue::Map(of) => {
            let (keys, values) = (list(of.keys()), list(of.values()));
            format!("MAP({keys}, {values})")
        }
        ScalarValue::Date32(Some(of)) => typed(value, of),
        ScalarValue::Date64(Some(of)) => typed(value, of),
        ScalarValue::Time32Second(Some(of)) => typed(value, of),
        ScalarValue::Time32Millisecond(Some(of)) => typed(value, of),
        ScalarValue::Time64Microsecond(Some(of)) => typed(value, of),
        ScalarValue::Time64Nanosecond(Some(of)) => typed(value, of),
        ScalarValue::TimestampSecond(Some(of), _) => typed(value, of),
        ScalarValue::TimestampMillisecond(Some(of), _) => typed(value, of),
        ScalarValue::TimestampMicrosecond(Some(of), _) => typed(value, of),
        ScalarValue::TimestampNanosecond(Some(of), _) => typed(value, of),
        ScalarValue::IntervalYearMonth(Some(of)) => typed(value, of),
        ScalarValue::IntervalDayTime(Some(of)) => {
            typed(value, format!("{} {}", of.days, of.milliseconds))
        }
        ScalarValue::IntervalMonthDayNano(Some(of)) => typed(
            value,
            format!("{} {} {}", of.months, of.days, of.nanoseconds),
        ),
        ScalarValue::DurationSecond(Some(of)) => typed(value, of),
        ScalarValue::DurationMillisecond(Some(of)) => typed(value, of),
        ScalarValue::DurationMicrosecond(Some(of)) => typed(value, of),
        ScalarValue::DurationNanosecond(Some(of)) => typed(value, of),
        ScalarValue::Union(Some((id, of)), ..) => typed(value, format!("{id} {}", literal(of))),
        ScalarValue::Dictionary(_, of) => literal(of),
        ScalarValue::RunEndEncoded(_, _, of) => literal(of),
        ScalarValue::Boolean(None)
        | ScalarValue::Float16(None)
        | ScalarValue::Float32(None)
        | ScalarValue::Float64(None)
        | ScalarValue::Decimal32(None, ..)
        | ScalarValue::Decimal64(None, ..)
        | ScalarValue::Decimal128(None, ..)
        | ScalarValue::Decimal256(None, ..)
        | ScalarValue::Int8(None)
        | ScalarValue::Int16(None)
        | ScalarValue::Int32(None)
        | ScalarValue::Int64(None)
        | ScalarValue::UInt8(None)
        | ScalarValue::UInt16(None)
        | ScalarValue::UInt32(None)
        | ScalarValue::UInt64(None)
        | ScalarValue::Utf8(None)
        | ScalarValue::Utf8View(None)
        | ScalarValue::LargeUtf8(None)
        | ScalarValue::Binary(None)
        | ScalarValue::BinaryView(None)
        | ScalarValue::LargeBinary(None)
        | ScalarValue::FixedSizeBinary(_, None)
        | ScalarValue::Date32(None)
        | ScalarValue::Date64(None)
        | ScalarValue::Time32Second(None)
        | ScalarValue::Time32Millisecond(None)
        | ScalarValue::Time64Microsecond(None)
        | ScalarValue::Time64Nanosecond(None)
        | ScalarValue::TimestampSecond(None, _)
        | ScalarValue::TimestampMillisecond(None, _)
        | ScalarValue::TimestampMicrosecond(None, _)
        | ScalarValue::TimestampNanosecond(None, _)
        | ScalarValue::IntervalYearMonth(None)
        | ScalarValue::IntervalDayTime(None)
        | ScalarValue::IntervalMonthDayNano(None)
        | ScalarValue::DurationSecond(None)
        | ScalarValue::DurationMillisecond(None)
        | ScalarValue::DurationMicrosecond(None)
        | ScalarValue::DurationNanosecond(None)
        | ScalarValue::Union(None, ..) => typed(value, "NULL"),
    }
}

/// A value in its type's smallest unit, and the type.
fn typed(value: &ScalarValue, of: impl Display) -> String {
    format!("{} '{of}'", Type::of(&value.data_type()).0)
}

fn list(values: &ArrayRef) -> String {
    let items = (0..values.len()).map(|index| item(values, index));
    format!("ARRAY[{}]", items.collect::<Vec<_>>().join(", "))
}

fn item(values: &ArrayRef, index: usize) -> String {
    match ScalarValue::try_from_array(values, index) {
        Ok(value) => literal(&value),
        Err(_) => format!("{} '?'", Type::of(values.data_type()).0),
    }
}
