//! Constants in stored identities.

use std::fmt::Display;

use arrow_array::{Array, ArrayRef};
use datafusion_common::ScalarValue;

use super::Type;

/// The text of a constant: two constants have the same text if they are the same value of the same type.
pub fn literal(value: &ScalarValue) -> String {
    match value {
        ScalarValue::Null => "NULL".to_string(),
        ScalarValue::Boolean(Some(true)) => "TRUE".to_string(),
        ScalarValue::Boolean(Some(false)) => "FALSE".to_string(),
        ScalarValue::Float16(Some(inner)) => typed(value, inner),
        ScalarValue::Float32(Some(inner)) => typed(value, inner),
        ScalarValue::Float64(Some(inner)) => typed(value, inner),
        ScalarValue::Decimal32(Some(inner), ..) => typed(value, inner),
        ScalarValue::Decimal64(Some(inner), ..) => typed(value, inner),
        ScalarValue::Decimal128(Some(inner), ..) => typed(value, inner),
        ScalarValue::Decimal256(Some(inner), ..) => typed(value, inner),
        ScalarValue::Int8(Some(inner)) => typed(value, inner),
        ScalarValue::Int16(Some(inner)) => typed(value, inner),
        ScalarValue::Int32(Some(inner)) => typed(value, inner),
        ScalarValue::Int64(Some(inner)) => inner.to_string(),
        ScalarValue::UInt8(Some(inner)) => typed(value, inner),
        ScalarValue::UInt16(Some(inner)) => typed(value, inner),
        ScalarValue::UInt32(Some(inner)) => typed(value, inner),
        ScalarValue::UInt64(Some(inner)) => typed(value, inner),
        // All layouts of strings have the same text: state does not depend on the layout of a constant.
        ScalarValue::Utf8(Some(inner))
        | ScalarValue::Utf8View(Some(inner))
        | ScalarValue::LargeUtf8(Some(inner)) => format!("'{}'", inner.replace('\'', "''")),
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::FixedSizeBinary(_, Some(bytes)) => {
            let digits = bytes.iter().map(|byte| format!("{byte:02X}"));
            format!("X'{}'", digits.collect::<String>())
        }
        ScalarValue::FixedSizeList(inner) => list(&inner.value(0)),
        ScalarValue::List(inner) => list(&inner.value(0)),
        ScalarValue::LargeList(inner) => list(&inner.value(0)),
        ScalarValue::ListView(inner) => list(&inner.value(0)),
        ScalarValue::LargeListView(inner) => list(&inner.value(0)),
        ScalarValue::Struct(inner) => {
            let values = inner.columns().iter().map(|column| item(column, 0));
            format!("ROW({})", values.collect::<Vec<_>>().join(", "))
        }
        ScalarValue::Map(inner) => {
            let (keys, values) = (list(inner.keys()), list(inner.values()));
            format!("MAP({keys}, {values})")
        }
        ScalarValue::Date32(Some(inner)) => typed(value, inner),
        ScalarValue::Date64(Some(inner)) => typed(value, inner),
        ScalarValue::Time32Second(Some(inner)) => typed(value, inner),
        ScalarValue::Time32Millisecond(Some(inner)) => typed(value, inner),
        ScalarValue::Time64Microsecond(Some(inner)) => typed(value, inner),
        ScalarValue::Time64Nanosecond(Some(inner)) => typed(value, inner),
        ScalarValue::TimestampSecond(Some(inner), _) => typed(value, inner),
        ScalarValue::TimestampMillisecond(Some(inner), _) => typed(value, inner),
        ScalarValue::TimestampMicrosecond(Some(inner), _) => typed(value, inner),
        ScalarValue::TimestampNanosecond(Some(inner), _) => typed(value, inner),
        ScalarValue::IntervalYearMonth(Some(inner)) => typed(value, inner),
        ScalarValue::IntervalDayTime(Some(inner)) => {
            typed(value, format!("{} {}", inner.days, inner.milliseconds))
        }
        ScalarValue::IntervalMonthDayNano(Some(inner)) => typed(
            value,
            format!("{} {} {}", inner.months, inner.days, inner.nanoseconds),
        ),
        ScalarValue::DurationSecond(Some(inner)) => typed(value, inner),
        ScalarValue::DurationMillisecond(Some(inner)) => typed(value, inner),
        ScalarValue::DurationMicrosecond(Some(inner)) => typed(value, inner),
        ScalarValue::DurationNanosecond(Some(inner)) => typed(value, inner),
        ScalarValue::Union(Some((id, inner)), ..) => {
            typed(value, format!("{id} {}", literal(inner)))
        }
        ScalarValue::Dictionary(_, inner) => literal(inner),
        ScalarValue::RunEndEncoded(_, _, inner) => literal(inner),
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

/// A value in the smallest unit of its type, with the type.
fn typed(value: &ScalarValue, text: impl Display) -> String {
    format!("{} '{text}'", Type::of(&value.data_type()).0)
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
