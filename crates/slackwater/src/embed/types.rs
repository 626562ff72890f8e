//! Types and kinds of changes by their names in SQL.

use arrow_schema::{DataType, SchemaRef};
use slackwater_engine::chunk::RowKind;
use slackwater_sql::program::declared;
use slackwater_sql::types::sql_name;

use super::error::Error;
use crate::catalog::BuiltIn;
use crate::script::Script;

/// What a row does to a result, in Flink's short form: `+I`, `+U`, `-D`, `-U`.
pub fn symbol(kind: i8) -> &'static str {
    RowKind::symbol(kind)
}

/// The columns of a table as CREATE TABLE writes them. Types that SQL does not have are those that the values
/// are cast to.
///
/// # Errors
///
/// If no type of SQL has all values of a column.
pub fn sql_columns(schema: &SchemaRef) -> Result<String, Error> {
    let columns = schema.fields().iter().map(|field| {
        let name = field.name();
        let kind = stored_name(field.data_type()).ok_or_else(|| {
            let kind = field.data_type();
            let reason =
                format!("column '{name}' has the Arrow type {kind}, which SQL does not have");
            Error::sql(reason, without(kind))
        })?;
        Ok(format!("\"{}\" {kind}", name.replace('"', "\"\"")))
    });
    Ok(columns.collect::<Result<Vec<_>, Error>>()?.join(", "))
}

/// What to do about a type that SQL does not have.
fn without(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Duration(_) | DataType::Interval(_) => {
            "cast it, for example to a BIGINT of milliseconds"
        }
        DataType::Map(..) => "cast it to a list of structs: ARRAY<ROW<key …, value …>>",
        DataType::Decimal256(..) => "cast it to a decimal of at most 38 digits, or to a string",
        _ => "cast it, or leave the column out",
    }
}

/// The name of the type of SQL that has all values of a type; `None` if there is none.
fn stored_name(data_type: &DataType) -> Option<String> {
    Some(match data_type {
        DataType::Duration(_)
        | DataType::Interval(_)
        | DataType::Map(..)
        | DataType::Decimal256(..)
        | DataType::Union(..)
        | DataType::RunEndEncoded(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_) => return None,
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            sql_name(&DataType::Decimal128(*precision, *scale))
        }
        DataType::UInt8 => "SMALLINT".to_string(),
        DataType::UInt16 => "INT".to_string(),
        DataType::UInt32 => "BIGINT".to_string(),
        DataType::UInt64 => "DECIMAL(20, 0)".to_string(),
        DataType::Float16 => "FLOAT".to_string(),
        DataType::FixedSizeBinary(_) => "BYTES".to_string(),
        DataType::Null => "STRING".to_string(),
        DataType::Timestamp(unit, Some(_)) => {
            sql_name(&DataType::Timestamp(*unit, None)).replace("TIMESTAMP", "TIMESTAMP_LTZ")
        }
        DataType::Dictionary(_, values) => return stored_name(values),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            format!("ARRAY<{}>", stored_name(item.data_type())?)
        }
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| {
                let kind = stored_name(field.data_type())?;
                Some(format!("{} {kind}", field.name()))
            });
            format!("ROW<{}>", fields.collect::<Option<Vec<_>>>()?.join(", "))
        }
        other => sql_name(other),
    })
}

/// The types with these names.
///
/// # Errors
///
/// If one of them is not a type.
pub fn data_types(names: &[String]) -> Result<Vec<DataType>, Error> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let list = names.iter().enumerate();
    let list = list.map(|(number, name)| format!("c{number} {name}"));
    let list = list.collect::<Vec<_>>().join(", ");
    let schema = columns(&list)?;
    if schema.fields().len() != names.len() {
        let reason = format!("{} are not types", names.join(", "));
        return Err(Error::sql(reason, "use types such as BIGINT and STRING"));
    }
    let fields = schema.fields().iter();
    Ok(fields.map(|field| field.data_type().clone()).collect())
}

/// The columns that a table has with this text in the parentheses of CREATE TABLE.
///
/// # Errors
///
/// If the text is wrong.
pub fn columns(text: &str) -> Result<SchemaRef, Error> {
    let text = format!("CREATE TABLE t ({text}) WITH ('connector' = 'blackhole')");
    let script = Script::new("columns", &text);
    let session = declared(&text, &[], &BuiltIn).map_err(|error| Error::of(&script, &error))?;
    let table = session.table("t").map(|table| table.physical.clone());
    table.ok_or_else(|| Error::sql("these are not columns", "name STRING, n BIGINT"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{Field, Schema, TimeUnit};

    use super::*;

    #[test]
    fn types_have_names_and_names_have_types() {
        let names = ["BIGINT", "STRING", "TIMESTAMP(3)", "DECIMAL(10, 2)"];
        let types = data_types(&names.map(str::to_string)).unwrap();
        let millisecond = DataType::Timestamp(TimeUnit::Millisecond, None);
        let expected = [
            DataType::Int64,
            DataType::Utf8View,
            millisecond,
            DataType::Decimal128(10, 2),
        ];
        assert_eq!(types, expected);
        let error = data_types(&["BIGIN".to_string()]).unwrap_err();
        assert!(error.message.contains("BIGIN"), "{error}");
        let fields = types.into_iter().chain([DataType::UInt32]).enumerate();
        let fields = fields.map(|(number, of)| Field::new(format!("c{number}"), of, true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let columns =
            r#""c0" BIGINT, "c1" STRING, "c2" TIMESTAMP(3), "c3" DECIMAL(10, 2), "c4" BIGINT"#;
        assert_eq!(sql_columns(&schema).unwrap(), columns);
        let list = DataType::new_list(DataType::Duration(TimeUnit::Second), true);
        let schema = Arc::new(Schema::new(vec![Field::new("waits", list, true)]));
        let error = sql_columns(&schema).unwrap_err();
        assert!(error.message.contains("column 'waits'"), "{error}");
    }
}
