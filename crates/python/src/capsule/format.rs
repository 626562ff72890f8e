//! Types as the strings of the C data interface.

use std::sync::Arc;

use arrow_schema::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field, FieldRef, IntervalUnit,
    TimeUnit,
};

fn unit(unit: TimeUnit) -> char {
    match unit {
        TimeUnit::Second => 's',
        TimeUnit::Millisecond => 'm',
        TimeUnit::Microsecond => 'u',
        TimeUnit::Nanosecond => 'n',
    }
}

fn unit_of(letter: &str) -> Option<TimeUnit> {
    Some(match letter {
        "s" => TimeUnit::Second,
        "m" => TimeUnit::Millisecond,
        "u" => TimeUnit::Microsecond,
        "n" => TimeUnit::Nanosecond,
        _ => return None,
    })
}

/// The string of a type; `None` for a type that results don't have.
pub fn of(data_type: &DataType) -> Option<String> {
    Some(match data_type {
        DataType::Null => "n".to_string(),
        DataType::Boolean => "b".to_string(),
        DataType::Int8 => "c".to_string(),
        DataType::UInt8 => "C".to_string(),
        DataType::Int16 => "s".to_string(),
        DataType::UInt16 => "S".to_string(),
        DataType::Int32 => "i".to_string(),
        DataType::UInt32 => "I".to_string(),
        DataType::Int64 => "l".to_string(),
        DataType::UInt64 => "L".to_string(),
        DataType::Float16 => "e".to_string(),
        DataType::Float32 => "f".to_string(),
        DataType::Float64 => "g".to_string(),
        DataType::Utf8 => "u".to_string(),
        DataType::LargeUtf8 => "U".to_string(),
        DataType::Utf8View => "vu".to_string(),
        DataType::Binary => "z".to_string(),
        DataType::LargeBinary => "Z".to_string(),
        DataType::BinaryView => "vz".to_string(),
        DataType::FixedSizeBinary(bytes) => format!("w:{bytes}"),
        DataType::Decimal128(precision, scale) => format!("d:{precision},{scale}"),
        DataType::Decimal256(precision, scale) => format!("d:{precision},{scale},256"),
        DataType::Date32 => "tdD".to_string(),
        DataType::Date64 => "tdm".to_string(),
        DataType::Time32(of) | DataType::Time64(of) => format!("tt{}", unit(*of)),
        DataType::Timestamp(of, zone) => {
            format!("ts{}:{}", unit(*of), zone.as_deref().unwrap_or(""))
        }
        DataType::Duration(of) => format!("tD{}", unit(*of)),
        DataType::Interval(IntervalUnit::YearMonth) => "tiM".to_string(),
        DataType::Interval(IntervalUnit::DayTime) => "tiD".to_string(),
        DataType::Interval(IntervalUnit::MonthDayNano) => "tin".to_string(),
        DataType::List(_) => "+l".to_string(),
        DataType::LargeList(_) => "+L".to_string(),
        DataType::FixedSizeList(_, length) => format!("+w:{length}"),
        DataType::Struct(_) => "+s".to_string(),
        DataType::Map(_, _) => "+m".to_string(),
        _ => return None,
    })
}

/// A size in the string of a type, which is not negative.
fn size(text: &str) -> Option<i32> {
    text.parse().ok().filter(|size| *size >= 0)
}

/// The type of a string and the fields of the children; `None` for a type that tables don't have.
pub fn parsed(format: &str, children: Vec<FieldRef>, is_sorted: bool) -> Option<DataType> {
    if let Some(parameters) = format.strip_prefix("d:") {
        let mut parameters = parameters.split(',');
        let precision = parameters.next()?.parse::<u8>().ok()?;
        let scale = parameters.next()?.parse::<i8>().ok()?;
        let (made, precision_max) = match parameters.next().unwrap_or("128") {
            "128" => (
                DataType::Decimal128(precision, scale),
                DECIMAL128_MAX_PRECISION,
            ),
            "256" => (
                DataType::Decimal256(precision, scale),
                DECIMAL256_MAX_PRECISION,
            ),
            _ => return None,
        };
        let fits =
            (1..=precision_max).contains(&precision) && i16::from(scale) <= i16::from(precision);
        return fits.then_some(made);
    }
    if let Some(of) = format.strip_prefix("ts") {
        let (letter, zone) = of.split_once(':')?;
        let zone = (!zone.is_empty()).then(|| zone.into());
        return Some(DataType::Timestamp(unit_of(letter)?, zone));
    }
    if let Some(bytes) = format.strip_prefix("w:") {
        return Some(DataType::FixedSizeBinary(size(bytes)?));
    }
    if let Some(length) = format.strip_prefix("+w:") {
        let item = children.into_iter().next()?;
        return Some(DataType::FixedSizeList(item, size(length)?));
    }
    let item = |children: Vec<FieldRef>| -> Option<Arc<Field>> { children.into_iter().next() };
    Some(match format {
        "n" => DataType::Null,
        "b" => DataType::Boolean,
        "c" => DataType::Int8,
        "C" => DataType::UInt8,
        "s" => DataType::Int16,
        "S" => DataType::UInt16,
        "i" => DataType::Int32,
        "I" => DataType::UInt32,
        "l" => DataType::Int64,
        "L" => DataType::UInt64,
        "e" => DataType::Float16,
        "f" => DataType::Float32,
        "g" => DataType::Float64,
        "u" => DataType::Utf8,
        "U" => DataType::LargeUtf8,
        "vu" => DataType::Utf8View,
        "z" => DataType::Binary,
        "Z" => DataType::LargeBinary,
        "vz" => DataType::BinaryView,
        "tdD" => DataType::Date32,
        "tdm" => DataType::Date64,
        "tts" => DataType::Time32(TimeUnit::Second),
        "ttm" => DataType::Time32(TimeUnit::Millisecond),
        "ttu" => DataType::Time64(TimeUnit::Microsecond),
        "ttn" => DataType::Time64(TimeUnit::Nanosecond),
        "tDs" | "tDm" | "tDu" | "tDn" => DataType::Duration(unit_of(&format[2..])?),
        "tiM" => DataType::Interval(IntervalUnit::YearMonth),
        "tiD" => DataType::Interval(IntervalUnit::DayTime),
        "tin" => DataType::Interval(IntervalUnit::MonthDayNano),
        "+l" => DataType::List(item(children)?),
        "+L" => DataType::LargeList(item(children)?),
        "+s" => DataType::Struct(children.into()),
        "+m" => DataType::Map(item(children)?, is_sorted),
        _ => return None,
    })
}
