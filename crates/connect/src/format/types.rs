//! Which column types a format can hold, and their names in SQL.

use arrow_schema::{DataType, Schema, TimeUnit};

use crate::options::OptionError;

/// The type as the DDL writes it.
pub(crate) fn sql_type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INT".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::UInt8 => "TINYINT UNSIGNED".into(),
        DataType::UInt16 => "SMALLINT UNSIGNED".into(),
        DataType::UInt32 => "INT UNSIGNED".into(),
        DataType::UInt64 => "BIGINT UNSIGNED".into(),
        DataType::Float32 => "FLOAT".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision}, {scale})"),
        DataType::Date32 => "DATE".into(),
        DataType::Timestamp(unit, _) => {
            let digits = match unit {
                TimeUnit::Second => 0,
                TimeUnit::Millisecond => 3,
                TimeUnit::Microsecond => 6,
                TimeUnit::Nanosecond => 9,
            };
            format!("TIMESTAMP({digits})")
        }
        DataType::Utf8View | DataType::Utf8 | DataType::LargeUtf8 => "STRING".into(),
        DataType::Binary => "BYTES".into(),
        DataType::Time64(_) => "TIME".into(),
        DataType::Struct(_) => "ROW".into(),
        DataType::List(item) => format!("ARRAY<{}>", sql_type_name(item.data_type())),
        other => other.to_string(),
    }
}

/// Whether one field of text can represent the type.
pub(crate) fn is_scalar(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::UInt64
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal128(_, _)
            | DataType::Date32
            | DataType::Timestamp(_, None)
            | DataType::Utf8View
    )
}

/// Whether JSON can represent the type: scalars, and rows and arrays of types that it can represent.
pub(crate) fn is_nested(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().all(|field| is_nested(field.data_type())),
        DataType::List(item) => is_nested(item.data_type()),
        other => is_scalar(other),
    }
}

/// Rejects a table without a column.
pub(crate) fn check_columns(schema: &Schema) -> Result<(), OptionError> {
    match schema.fields().is_empty() {
        true => Err(OptionError::table(
            "the table has no column",
            "declare at least one",
        )),
        false => Ok(()),
    }
}

/// Rejects columns that a format of plain text can't represent.
pub(crate) fn check_scalar(schema: &Schema, format: &str) -> Result<(), OptionError> {
    for field in schema.fields() {
        if !is_scalar(field.data_type()) {
            let hint = if is_nested(field.data_type()) {
                "use 'format' = 'json', or declare its parts as columns"
            } else {
                "declare the column as STRING and cast it in the query"
            };
            return Err(refused(field, format, hint));
        }
    }
    Ok(())
}

/// Rejects columns that a sink of plain text can't write: rows and arrays.
pub(crate) fn check_flat(schema: &Schema, format: &str) -> Result<(), OptionError> {
    for field in schema.fields() {
        if field.data_type().is_nested() {
            let hint = "use 'format' = 'json', or write its parts as columns";
            return Err(refused(field, format, hint));
        }
    }
    Ok(())
}

/// Rejects columns that JSON can't represent.
pub(crate) fn check_nested(schema: &Schema, format: &str) -> Result<(), OptionError> {
    for field in schema.fields() {
        if !is_nested(field.data_type()) {
            let hint = "declare the column as STRING and cast it in the query";
            return Err(refused(field, format, hint));
        }
    }
    Ok(())
}

fn refused(field: &arrow_schema::Field, format: &str, hint: &str) -> OptionError {
    let name = field.name();
    let data_type = sql_type_name(field.data_type());
    OptionError::table(
        format!("column '{name}' is {data_type}, which format {format} can't hold"),
        hint,
    )
}
