//! SQL types as Arrow types.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};
use datafusion_expr::planner::TypePlanner;
use sqlparser::ast::{DataType as AstType, ExactNumberInfo, TimezoneInfo};
use sqlparser::tokenizer::Span;

use crate::error::{Result, SqlError, nearest};

/// The type of an INTERVAL.
pub const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// A type as it stands in a DDL statement.
#[derive(Debug, Clone)]
pub enum SqlType {
    /// Any type without fields, and where it stands.
    Simple(AstType, Span),
    /// `ROW<name type, …>`.
    Row(Vec<(String, SqlType)>),
    /// What a query gives (`CREATE TABLE … AS`).
    Given(DataType),
}

impl SqlType {
    /// The Arrow type.
    pub fn to_arrow(&self) -> Result<DataType> {
        match self {
            SqlType::Simple(sql_type, span) => {
                arrow_type(sql_type).map_err(|error| error.at(*span))
            }
            SqlType::Row(fields) => {
                let fields = fields
                    .iter()
                    .map(|(name, field)| Ok(Arc::new(Field::new(name, field.to_arrow()?, true))));
                Ok(DataType::Struct(
                    fields.collect::<Result<Vec<FieldRef>>>()?.into(),
                ))
            }
            SqlType::Given(data_type) => Ok(data_type.clone()),
        }
    }
}

/// The Arrow type of a SQL type.
pub fn arrow_type(sql_type: &AstType) -> Result<DataType> {
    Ok(match sql_type {
        AstType::Boolean | AstType::Bool => DataType::Boolean,
        AstType::TinyInt(_) => DataType::Int8,
        AstType::SmallInt(_) | AstType::Int2(_) => DataType::Int16,
        AstType::Int(_) | AstType::Integer(_) | AstType::Int4(_) => DataType::Int32,
        AstType::BigInt(_) | AstType::Int8(_) | AstType::Int64 => DataType::Int64,
        AstType::Float(_) | AstType::Real | AstType::Float4 => DataType::Float32,
        AstType::Double(_) | AstType::DoublePrecision | AstType::Float8 | AstType::Float64 => {
            DataType::Float64
        }
        AstType::Decimal(info) | AstType::Numeric(info) | AstType::Dec(info) => decimal(info)?,
        AstType::String(_)
        | AstType::Text
        | AstType::Varchar(_)
        | AstType::Char(_)
        | AstType::Character(_)
        | AstType::CharacterVarying(_)
        | AstType::Nvarchar(_) => DataType::Utf8View,
        AstType::Bytea | AstType::Bytes(_) | AstType::Binary(_) | AstType::Varbinary(_) => {
            DataType::Binary
        }
        AstType::Date => DataType::Date32,
        AstType::Time(_, TimezoneInfo::None) => DataType::Time64(TimeUnit::Microsecond),
        AstType::Timestamp(precision, _) => timestamp(*precision)?,
        AstType::Datetime(precision) => timestamp(*precision)?,
        AstType::Array(sqlparser::ast::ArrayElemTypeDef::AngleBracket(inner))
        | AstType::Array(sqlparser::ast::ArrayElemTypeDef::SquareBracket(inner, None))
        | AstType::Array(sqlparser::ast::ArrayElemTypeDef::Parenthesis(inner)) => {
            DataType::List(Arc::new(Field::new_list_field(arrow_type(inner)?, true)))
        }
        AstType::Struct(fields, _) => {
            let fields = fields.iter().map(|field| {
                let name = field
                    .field_name
                    .as_ref()
                    .map_or_else(String::new, |name| name.value.clone());
                Ok(Arc::new(Field::new(
                    name,
                    arrow_type(&field.field_type)?,
                    true,
                )))
            });
            DataType::Struct(Fields::from(fields.collect::<Result<Vec<FieldRef>>>()?))
        }
        AstType::Custom(name, modifiers) => {
            let upper = name.to_string().to_uppercase();
            match (upper.as_str(), modifiers.as_slice()) {
                ("STRING", []) => DataType::Utf8View,
                ("TIMESTAMP_LTZ", []) => timestamp(None)?,
                ("TIMESTAMP_LTZ", [precision]) => timestamp(precision.parse().ok().or(Some(99)))?,
                _ => return Err(unknown(sql_type)),
            }
        }
        _ => return Err(unknown(sql_type)),
    })
}

fn unknown(sql_type: &AstType) -> SqlError {
    const NAMES: [&str; 15] = [
        "STRING",
        "VARCHAR",
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INT",
        "INTEGER",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "DECIMAL",
        "DATE",
        "TIME",
        "TIMESTAMP",
        "BYTES",
    ];
    let error = SqlError::new(format!("there is no type '{sql_type}'"));
    match nearest(&sql_type.to_string(), &NAMES.map(String::from)) {
        Some(near) => error.mend(format!("did you mean {near}?")),
        None => error.mend(
            "the types are STRING, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, \
             DECIMAL(p, s), DATE, TIME, TIMESTAMP(0…9), BYTES, ARRAY<…>, ROW<…>",
        ),
    }
}

/// The unit that holds so many decimals of a second; 6 without a number, as in Flink.
fn timestamp(precision: Option<u64>) -> Result<DataType> {
    let unit = match precision {
        Some(0) => TimeUnit::Second,
        Some(1..=3) => TimeUnit::Millisecond,
        None | Some(4..=6) => TimeUnit::Microsecond,
        Some(7..=9) => TimeUnit::Nanosecond,
        Some(more) => {
            return Err(SqlError::new(format!("a TIMESTAMP has no {more} decimals"))
                .near("TIMESTAMP")
                .mend("TIMESTAMP(0) to TIMESTAMP(9)"));
        }
    };
    Ok(DataType::Timestamp(unit, None))
}

fn decimal(info: &ExactNumberInfo) -> Result<DataType> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => (10, 0),
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    if !(1..=38).contains(&precision) || scale < 0 || scale as u64 > precision {
        return Err(
            SqlError::new(format!("there is no DECIMAL({precision}, {scale})"))
                .near("DECIMAL")
                .mend("DECIMAL(p, s) with 1 <= p <= 38 and 0 <= s <= p"),
        );
    }
    Ok(DataType::Decimal128(precision as u8, scale as i8))
}

/// A type as the DDL writes it.
pub fn sql_name(of: &DataType) -> String {
    match of {
        DataType::Struct(fields) => {
            let fields = fields
                .iter()
                .map(|field| format!("{} {}", field.name(), sql_name(field.data_type())));
            format!("ROW<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        DataType::List(item) => format!("ARRAY<{}>", sql_name(item.data_type())),
        DataType::Interval(_) | DataType::Duration(_) => "INTERVAL".to_string(),
        DataType::Null => "NULL".to_string(),
        other => with_sql_types(&other.to_string()),
    }
}

/// A message of DataFusion or Arrow with their names of types replaced by those of SQL.
pub fn with_sql_types(message: &str) -> String {
    // Longer names first: some begin with others.
    const NAMES: &[(&str, &str)] = &[
        ("Timestamp(Second, None)", "TIMESTAMP(0)"),
        ("Timestamp(Millisecond, None)", "TIMESTAMP(3)"),
        ("Timestamp(Microsecond, None)", "TIMESTAMP(6)"),
        ("Timestamp(Nanosecond, None)", "TIMESTAMP(9)"),
        ("Timestamp(s)", "TIMESTAMP(0)"),
        ("Timestamp(ms)", "TIMESTAMP(3)"),
        ("Timestamp(µs)", "TIMESTAMP(6)"),
        ("Timestamp(ns)", "TIMESTAMP(9)"),
        ("Decimal128", "DECIMAL"),
        ("LargeUtf8", "STRING"),
        ("Utf8View", "STRING"),
        ("Utf8", "STRING"),
        ("Boolean", "BOOLEAN"),
        ("Float32", "FLOAT"),
        ("Float64", "DOUBLE"),
        ("Date32", "DATE"),
        ("UInt8", "unsigned TINYINT"),
        ("UInt16", "unsigned SMALLINT"),
        ("UInt32", "unsigned INT"),
        ("UInt64", "unsigned BIGINT"),
        ("Int8Array", "TINYINT"),
        ("Int16Array", "SMALLINT"),
        ("Int32Array", "INT"),
        ("Int64Array", "BIGINT"),
        ("Int8", "TINYINT"),
        ("Int16", "SMALLINT"),
        ("Int32", "INT"),
        ("Int64", "BIGINT"),
        ("Time64(µs)", "TIME"),
        ("Time64(Microsecond)", "TIME"),
        ("Time64(ns)", "TIME"),
        ("Time32(ms)", "TIME"),
        ("Time32(s)", "TIME"),
        ("Interval(MonthDayNano)", "INTERVAL"),
        ("Interval(DayTime)", "INTERVAL"),
        ("Interval(YearMonth)", "INTERVAL"),
        ("Duration(s)", "INTERVAL"),
        ("Duration(ms)", "INTERVAL"),
        ("Duration(µs)", "INTERVAL"),
        ("Duration(ns)", "INTERVAL"),
        ("Date64", "DATE"),
        ("LargeBinary", "BYTES"),
        ("BinaryView", "BYTES"),
        ("Binary", "BYTES"),
    ];
    let mut shown = message.to_string();
    for &(arrow, sql) in NAMES {
        if shown.contains(arrow) {
            shown = shown.replace(arrow, sql);
        }
    }
    with_rows(with_arrays(shown))
}

/// `Struct("a": STRING, "b": INT)` as `ROW<a STRING, b INT>`.
fn with_rows(mut shown: String) -> String {
    while let Some(at) = shown.find("Struct(") {
        let mut depth = 0;
        let end = shown[at..].find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ')' && depth == 0
        });
        let Some(end) = end else { break };
        let inner = shown[at + "Struct(".len()..at + end].replace("\": ", " ");
        let inner = inner.replace('"', "");
        shown = format!("{}ROW<{inner}>{}", &shown[..at], &shown[at + end + 1..]);
    }
    shown
}

/// `List(STRING)` as `ARRAY<STRING>`.
fn with_arrays(mut shown: String) -> String {
    while let Some(at) = shown.find("List(") {
        let mut depth = 0;
        let end = shown[at..].find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ')' && depth == 0
        });
        let Some(end) = end else { break };
        let inner = &shown[at + "List(".len()..at + end];
        shown = format!("{}ARRAY<{inner}>{}", &shown[..at], &shown[at + end + 1..]);
    }
    shown
}

/// Our types also in CAST.
#[derive(Debug)]
pub struct Types;

impl TypePlanner for Types {
    fn plan_type_field(&self, sql_type: &AstType) -> datafusion_common::Result<Option<FieldRef>> {
        let data_type = arrow_type(sql_type)
            .map_err(|error| datafusion_common::DataFusionError::External(Box::new(error)))?;
        Ok(Some(Arc::new(Field::new("", data_type, true))))
    }
}

/// Casts that lose nothing silently: a value that does not fit fails its row.
pub fn arrow_cast_ok(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Int64, LargeUtf8, List, Null, Struct, Timestamp, Utf8, Utf8View};
    let number = |of: &DataType| of.is_numeric();
    let text = |of: &DataType| matches!(of, Utf8 | Utf8View | LargeUtf8);
    from == &Null
        || (number(from) && number(to))
        || text(to)
        || (text(from) && !matches!(to, Struct(_) | List(_)))
        || matches!((from, to), (Timestamp(_, _), Timestamp(_, _)))
        || matches!(
            (from, to),
            (Date32, Timestamp(_, _)) | (Timestamp(_, _), Date32)
        )
        || matches!((from, to), (Timestamp(_, _), Int64))
}

/// A type as tables have it: what else a query may give is cast to the nearest of these.
pub fn of_tables(of: &DataType) -> DataType {
    match of {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 | DataType::UInt64 => DataType::Int64,
        DataType::Float16 => DataType::Float32,
        DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::Date64 => DataType::Timestamp(TimeUnit::Millisecond, None),
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, None),
        DataType::List(item) => {
            let item = of_tables(item.data_type());
            DataType::List(Arc::new(Field::new_list_field(item, true)))
        }
        DataType::Struct(fields) => {
            let fields = fields
                .iter()
                .map(|field| Field::new(field.name(), of_tables(field.data_type()), true));
            DataType::Struct(fields.collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_the_planner_are_shown_as_sql_writes_them() {
        for (planner, sql) in [
            ("no Interval(MonthDayNano)", "no INTERVAL"),
            ("Duration(µs) + Int64", "INTERVAL + BIGINT"),
            (
                "Struct(\"a\": Utf8View, \"b\": Struct(\"c\": Int32)) and Binary",
                "ROW<a STRING, b ROW<c INT>> and BYTES",
            ),
            ("List(Timestamp(ms))", "ARRAY<TIMESTAMP(3)>"),
        ] {
            assert_eq!(with_sql_types(planner), sql);
        }
    }
}
