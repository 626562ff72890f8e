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
pub fn sql_columns(schema: &SchemaRef) -> String {
    let columns = schema.fields().iter().map(|field| {
        let name = field.name().replace('"', "\"\"");
        format!("\"{name}\" {}", stored_name(field.data_type()))
    });
    columns.collect::<Vec<_>>().join(", ")
}

/// The name of the type of SQL that has all values of a type.
fn stored_name(data_type: &DataType) -> String {
    match data_type {
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
        DataType::Dictionary(_, values) => stored_name(values),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            format!("ARRAY<{}>", stored_name(item.data_type()))
        }
        DataType::Struct(fields) => {
            let fields = fields.iter();
            let fields =
                fields.map(|field| format!("{} {}", field.name(), stored_name(field.data_type())));
            format!("ROW<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        other => sql_name(other),
    }
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
        assert_eq!(sql_columns(&schema), columns);
    }
}
