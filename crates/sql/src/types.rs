//! SQL types as Arrow types.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};
use datafusion_expr::planner::TypePlanner;
use sqlparser::ast::{DataType as AstType, ExactNumberInfo, TimezoneInfo};
use sqlparser::tokenizer::Span;

use crate::error::{Result, SqlError, nearest};

/// The type of an INTERVAL.
pub const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// A type in a declaration.
#[derive(Debug, Clone)]
pub enum SqlType {
    /// Any type without fields, and its place.
    Simple(AstType, Span),
    /// `ROW<name type, …>`.
    Row(Vec<(String, SqlType)>),
    /// The type of a query's column (`CREATE TABLE … AS`).
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
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint(
            "the types are STRING, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, \
             DECIMAL(p, s), DATE, TIME, TIMESTAMP(0…9), BYTES, ARRAY<…>, ROW<…>",
        ),
    }
}

/// The TIMESTAMP with so many decimals of a second; 6 if none are given, as in Flink.
fn timestamp(precision: Option<u64>) -> Result<DataType> {
    let unit = match precision {
        Some(0) => TimeUnit::Second,
        Some(1..=3) => TimeUnit::Millisecond,
        None | Some(4..=6) => TimeUnit::Microsecond,
        Some(7..=9) => TimeUnit::Nanosecond,
        Some(more) => {
            return Err(
                SqlError::new(format!("TIMESTAMP does not support {more} decimals"))
                    .near("TIMESTAMP")
                    .hint("use TIMESTAMP(0) to TIMESTAMP(9)"),
            );
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
            SqlError::new(format!("DECIMAL({precision}, {scale}) is not supported"))
                .near("DECIMAL")
                .hint("use DECIMAL(p, s) with 1 <= p <= 38 and 0 <= s <= p"),
        );
    }
    Ok(DataType::Decimal128(precision as u8, scale as i8))
}

/// The name of a type in SQL.
pub fn sql_name(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Null => "NULL",
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INT",
        DataType::Int64 => "BIGINT",
        DataType::UInt8 => "unsigned TINYINT",
        DataType::UInt16 => "unsigned SMALLINT",
        DataType::UInt32 => "unsigned INT",
        DataType::UInt64 => "unsigned BIGINT",
        DataType::Float32 => "FLOAT",
        DataType::Float64 => "DOUBLE",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "STRING",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BYTES",
        DataType::Date32 | DataType::Date64 => "DATE",
        DataType::Time32(_) | DataType::Time64(_) => "TIME",
        DataType::Timestamp(TimeUnit::Second, None) => "TIMESTAMP(0)",
        DataType::Timestamp(TimeUnit::Millisecond, None) => "TIMESTAMP(3)",
        DataType::Timestamp(TimeUnit::Microsecond, None) => "TIMESTAMP(6)",
        DataType::Timestamp(TimeUnit::Nanosecond, None) => "TIMESTAMP(9)",
        DataType::Interval(_) | DataType::Duration(_) => "INTERVAL",
        DataType::Decimal128(precision, scale) => return format!("DECIMAL({precision}, {scale})"),
        DataType::List(item) | DataType::LargeList(item) => {
            return format!("ARRAY<{}>", sql_name(item.data_type()));
        }
        DataType::Struct(fields) => {
            let fields = fields.iter();
            let fields =
                fields.map(|field| format!("{} {}", field.name(), sql_name(field.data_type())));
            return format!("ROW<{}>", fields.collect::<Vec<_>>().join(", "));
        }
        other => return other.to_string(),
    };
    name.to_string()
}

/// A message of DataFusion or Arrow with SQL's names of types. Names that users have chosen stay: words in
/// quotes, qualified names and parts of longer words are not types.
pub fn with_sql_types(message: &str) -> String {
    let mut shown = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(first) = rest.chars().next() {
        let is_inside = shown.ends_with(|c| is_word(c) || c == '.');
        let (taken, written) = match first {
            _ if is_inside => (first.len_utf8(), None),
            '\'' | '"' | '`' => (quoted(rest, first), None),
            'A'..='Z' => match leading_type(rest) {
                Some((length, sql_type)) => (length, Some(sql_type)),
                None => (first.len_utf8(), None),
            },
            _ => (first.len_utf8(), None),
        };
        let (read, after) = rest.split_at(taken);
        shown.push_str(written.as_deref().unwrap_or(read));
        rest = after;
    }
    shown
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of the quoted text at the start; 1 if the quote is not closed.
fn quoted(text: &str, quote: char) -> usize {
    text[1..].find(quote).map_or(1, |length| length + 2)
}

/// The name of the type at the start of a text, in SQL, and the length of the original name.
fn leading_type(text: &str) -> Option<(usize, String)> {
    let name = text.find(|c| !is_word(c)).unwrap_or(text.len());
    let is_qualifier = text[name..].starts_with('.') && text[name + 1..].starts_with(is_word);
    if is_qualifier {
        return None;
    }
    let mut depth = 0;
    let parameters = text[name..].find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    let whole = match text[name..].starts_with('(') {
        true => parameters.map(|length| name + length + 1),
        false => None,
    };
    // Names of arrays contain the type of their values.
    let of_array = text[..name].strip_suffix("Array");
    let names = [whole.map(|length| &text[..length]), Some(&text[..name])];
    let mut types = names.into_iter().flatten();
    let found = types
        .find_map(|named| Some((named.len(), named.parse::<DataType>().ok()?)))
        .or_else(|| Some((name, of_array?.parse::<DataType>().ok()?)));
    match (found, &text[..name]) {
        (Some((length, data_type)), _) => Some((length, sql_name(&data_type))),
        // A decimal of any precision.
        (None, "Decimal128") => Some((name, "DECIMAL".to_string())),
        (None, _) => None,
    }
}

/// The name of an expression with SQL's names of types in casts.
pub fn with_sql_casts(name: &str) -> String {
    const AS: &str = " AS ";
    let mut shown = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find(AS) {
        let (before, after) = rest.split_at(at + AS.len());
        shown.push_str(before);
        let cast = leading_type(after).filter(|(length, _)| after[*length..].starts_with(')'));
        rest = match cast {
            Some((length, of_cast)) => {
                shown.push_str(&of_cast);
                &after[length..]
            }
            None => after,
        };
    }
    shown + rest
}

/// Our types for CAST in DataFusion's planner.
#[derive(Debug)]
pub struct Types;

impl TypePlanner for Types {
    fn plan_type_field(&self, sql_type: &AstType) -> datafusion_common::Result<Option<FieldRef>> {
        let data_type = arrow_type(sql_type)
            .map_err(|error| datafusion_common::DataFusionError::External(Box::new(error)))?;
        Ok(Some(Arc::new(Field::new("", data_type, true))))
    }
}

/// Whether a cast never loses information silently: a value that does not fit fails its row.
pub fn arrow_cast_ok(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Int64, LargeUtf8, List, Null, Struct, Timestamp, Utf8, Utf8View};
    let number = |data_type: &DataType| data_type.is_numeric();
    let text = |data_type: &DataType| matches!(data_type, Utf8 | Utf8View | LargeUtf8);
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

/// The type of a column in a table: types that tables do not support are replaced by the nearest one.
pub fn of_tables(data_type: &DataType) -> DataType {
    match data_type {
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
    fn types_of_the_planner_are_renamed_to_sql() {
        for (planner, sql) in [
            ("no Interval(MonthDayNano)", "no INTERVAL"),
            ("Duration(µs) + Int64", "INTERVAL + BIGINT"),
            (
                "Timestamp(Nanosecond, None) or Int64Array.",
                "TIMESTAMP(9) or BIGINT.",
            ),
            (
                "Struct(\"a\": Utf8View, \"b\": Struct(\"c\": Int32)) and Binary",
                "ROW<a STRING, b ROW<c INT>> and BYTES",
            ),
            ("List(Timestamp(ms))", "ARRAY<TIMESTAMP(3)>"),
            ("Time64(µs) or Time64(Nanosecond)", "TIME or TIME"),
            ("a Decimal128 of precision 5", "a DECIMAL of precision 5"),
            (
                "Can't cast value 5 to type Decimal128(10, 2)",
                "Can't cast value 5 to type DECIMAL(10, 2)",
            ),
        ] {
            assert_eq!(with_sql_types(planner), sql);
        }
    }

    #[test]
    fn columns_with_names_of_types_keep_their_names() {
        for text in [
            "there is no column 'Int64'",
            "column \"Utf8\" of t",
            "t.Date32 = t.Boolean",
            "Int64_total and my_Utf8 and Binary2",
            "Utf8.Int64",
        ] {
            assert_eq!(with_sql_types(text), text);
        }
        assert_eq!(
            with_sql_casts("sum(CAST(Utf8 AS Int64)) + max(Date32)"),
            "sum(CAST(Utf8 AS BIGINT)) + max(Date32)"
        );
        assert_eq!(with_sql_casts("x AS Int64"), "x AS Int64");
    }
}
