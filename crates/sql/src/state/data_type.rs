//! The names of types in stored identities: those of SQL, if SQL has one.
//!
//! Two types with different layouts in Arrow have different names, because stored rows are Arrow's. The
//! function is exhaustive: the compiler reports types that Arrow adds.

use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit, UnionMode};
use serde::{Deserialize, Serialize};

/// The name of a type.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Type(pub String);

impl Type {
    /// The name of an Arrow type.
    pub fn of(data_type: &DataType) -> Type {
        Type(name(data_type))
    }
}

fn name(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "NULL".to_string(),
        DataType::Boolean => "BOOLEAN".to_string(),
        DataType::Int8 => "TINYINT".to_string(),
        DataType::Int16 => "SMALLINT".to_string(),
        DataType::Int32 => "INT".to_string(),
        DataType::Int64 => "BIGINT".to_string(),
        DataType::UInt8 => "TINYINT UNSIGNED".to_string(),
        DataType::UInt16 => "SMALLINT UNSIGNED".to_string(),
        DataType::UInt32 => "INT UNSIGNED".to_string(),
        DataType::UInt64 => "BIGINT UNSIGNED".to_string(),
        DataType::Float16 => "FLOAT16".to_string(),
        DataType::Float32 => "FLOAT".to_string(),
        DataType::Float64 => "DOUBLE".to_string(),
        DataType::Timestamp(unit, None) => format!("TIMESTAMP({})", decimals(*unit)),
        DataType::Timestamp(unit, Some(zone)) => {
            format!("TIMESTAMP({}, {})", decimals(*unit), quoted(zone))
        }
        DataType::Date32 => "DATE".to_string(),
        DataType::Date64 => "DATE64".to_string(),
        DataType::Time32(unit) => format!("TIME32({})", decimals(*unit)),
        DataType::Time64(unit) => format!("TIME({})", decimals(*unit)),
        DataType::Duration(unit) => format!("DURATION({})", decimals(*unit)),
        DataType::Interval(IntervalUnit::YearMonth) => "INTERVAL YEAR TO MONTH".to_string(),
        DataType::Interval(IntervalUnit::DayTime) => "INTERVAL DAY TO SECOND".to_string(),
        DataType::Interval(IntervalUnit::MonthDayNano) => "INTERVAL".to_string(),
        DataType::Binary => "BYTES".to_string(),
        DataType::FixedSizeBinary(bytes) => format!("BINARY({bytes})"),
        DataType::LargeBinary => "BYTES64".to_string(),
        DataType::BinaryView => "BYTESVIEW".to_string(),
        DataType::Utf8View => "STRING".to_string(),
        DataType::Utf8 => "STRING32".to_string(),
        DataType::LargeUtf8 => "STRING64".to_string(),
        DataType::List(item) => format!("ARRAY<{}>", item_of(item)),
        DataType::ListView(item) => format!("ARRAYVIEW<{}>", item_of(item)),
        DataType::FixedSizeList(item, length) => format!("ARRAY({length})<{}>", item_of(item)),
        DataType::LargeList(item) => format!("ARRAY64<{}>", item_of(item)),
        DataType::LargeListView(item) => format!("ARRAYVIEW64<{}>", item_of(item)),
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| named(field));
            format!("ROW<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        DataType::Union(fields, mode) => {
            let name = match mode {
                UnionMode::Sparse => "UNION",
                UnionMode::Dense => "UNIONDENSE",
            };
            let fields = fields
                .iter()
                .map(|(id, field)| format!("{id} {}", named(field)));
            format!("{name}<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        DataType::Dictionary(key, value) => format!("DICTIONARY<{}, {}>", name(key), name(value)),
        DataType::Decimal32(precision, scale) => format!("DECIMAL32({precision}, {scale})"),
        DataType::Decimal64(precision, scale) => format!("DECIMAL64({precision}, {scale})"),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision}, {scale})"),
        DataType::Decimal256(precision, scale) => format!("DECIMAL256({precision}, {scale})"),
        DataType::Map(entries, is_sorted) => {
            let name = if *is_sorted { "MAPSORTED" } else { "MAP" };
            format!("{name}<{}>", item_of(entries))
        }
        DataType::RunEndEncoded(ends, values) => {
            format!("RUNS<{}, {}>", item_of(ends), item_of(values))
        }
    }
}

/// The name of a nested type, without the name of its field.
fn item_of(field: &Field) -> String {
    let null = if field.is_nullable() { "" } else { " NOT NULL" };
    format!("{}{null}", name(field.data_type()))
}

fn named(field: &Field) -> String {
    format!("{} {}", quoted(field.name()), item_of(field))
}

/// A name in backquotes, as in SQL.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// The number of decimals of a second.
fn decimals(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}
