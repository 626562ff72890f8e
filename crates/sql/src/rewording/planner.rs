//! Errors of DataFusion in our own words: with SQL's names of types, without internal details of the planner,
//! and with a hint where there is one.

use datafusion_common::{DataFusionError, Diagnostic, SchemaError};

use super::{between, forms, from_parser, functions, last_part};
use crate::error::{SqlError, Unknown, nearest, to_span};
use crate::explain::{readable, without_literal_types};
use crate::names::WINDOW_COLUMNS;
use crate::types::with_sql_types;

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> SqlError {
        from_datafusion(&error, None)
    }
}

fn from_datafusion(error: &DataFusionError, diagnostic: Option<&Diagnostic>) -> SqlError {
    let text = match error {
        DataFusionError::Diagnostic(diagnostic, inner) => {
            return from_datafusion(inner, Some(diagnostic));
        }
        DataFusionError::Context(_, inner) => return from_datafusion(inner, diagnostic),
        DataFusionError::Shared(inner) => return from_datafusion(inner, diagnostic),
        DataFusionError::Collection(errors) if !errors.is_empty() => {
            return from_datafusion(&errors[0], diagnostic);
        }
        DataFusionError::SchemaError(schema, _) => {
            return placed(from_schema_error(schema), diagnostic);
        }
        DataFusionError::SQL(error, _) => return from_parser(error),
        DataFusionError::External(error) => match error.downcast_ref::<SqlError>() {
            Some(ours) => return ours.clone(),
            None => error.to_string(),
        },
        DataFusionError::Plan(text)
        | DataFusionError::NotImplemented(text)
        | DataFusionError::Execution(text)
        | DataFusionError::Internal(text) => text.clone(),
        DataFusionError::ArrowError(error, _) => error.to_string(),
        other => other.strip_backtrace(),
    };
    let text = without_literal_types(&first_sentence(&text));
    let converted = known(&text).or_else(|| forms::known(&with_sql_types(&text)));
    let converted = converted.unwrap_or_else(|| forms::shown(&with_sql_types(&text)));
    placed(converted, diagnostic)
}

fn placed(error: SqlError, diagnostic: Option<&Diagnostic>) -> SqlError {
    // The planner's place is often the whole query; a word is more exact.
    match diagnostic.and_then(|diagnostic| diagnostic.span) {
        Some(span) => error.at_unless_near(to_span(span)),
        None => error,
    }
}

/// The message without the advice to report a bug to another project, without a backtrace, and without the
/// kinds of errors with which nested errors start.
fn first_sentence(text: &str) -> String {
    let end = [
        "\n\nbacktrace",
        ".\nThis issue was likely caused",
        "\nThis issue was likely caused",
        " No function matches the given name",
    ]
    .iter()
    .filter_map(|mark| text.find(mark))
    .min()
    .unwrap_or(text.len());
    let mut text = text[..end].trim_end();
    const KINDS: &[&str] = &[
        "Error during planning: ",
        "This feature is not implemented: ",
        "Internal error: ",
        "Execution error: ",
        "External error: ",
        "Arrow error: ",
        "Optimizer rule ",
    ];
    while let Some(kind) = KINDS.iter().find(|kind| text.starts_with(**kind)) {
        text = match *kind {
            // `Optimizer rule 'name' failed\ncaused by\n…`: only the cause is shown.
            "Optimizer rule " => match text.split_once("caused by\n") {
                Some((_, cause)) => cause,
                None => break,
            },
            kind => &text[kind.len()..],
        };
    }
    text.to_string()
}

/// The errors that users meet, one by one. All others are shown as DataFusion writes them.
fn known(text: &str) -> Option<SqlError> {
    functions::said(text)
        .or_else(|| grouping(text))
        .or_else(|| value(text))
        .or_else(|| shape(text))
}

fn grouping(text: &str) -> Option<SqlError> {
    if text.contains(" to grouping function is not in grouping columns") {
        let column = last_part(between(text, "Argument ", " to grouping function")?);
        let message = format!("GROUPING needs keys of the GROUP BY, and '{column}' is not one");
        return Some(SqlError::new(message).near("GROUPING"));
    }
    if text.contains("must be in GROUP BY or an aggregate function")
        || text.contains("must appear in the GROUP BY clause")
    {
        let column = last_part(between(text, "column \"", "\"")?);
        let message = format!("column '{column}' must be in GROUP BY or in an aggregate");
        return Some(SqlError::new(message).hint(format!(
            "add it to GROUP BY, or use an aggregate, such as MAX({column})"
        )));
    }
    if text.starts_with("Aggregate functions are not allowed in the WHERE clause") {
        return Some(
            SqlError::new("aggregates are not allowed in WHERE")
                .near("WHERE")
                .hint("use HAVING for conditions on aggregates"),
        );
    }
    if text.starts_with("Aggregate function calls cannot be nested") {
        let inner = between(text, "nested: '", "(").unwrap_or_default();
        return Some(
            SqlError::new("an aggregate can't contain another aggregate")
                .near(inner)
                .hint("compute the inner one in a subquery over the same window"),
        );
    }
    if let Some(number) = between(text, "Cannot find column with position ", " ") {
        return Some(SqlError::new(format!("SELECT has no column number {number}")).near(number));
    }
    if text.starts_with("Physical plan does not support logical expression AggregateFunction") {
        return Some(
            SqlError::new(
                "an aggregate is not allowed in GROUP BY, ON or a computed column, which are computed \
                for each row",
            )
            .near("GROUP"),
        );
    }
    None
}

/// Literals that are not valid values of the type that they are compared with or cast to.
fn value(text: &str) -> Option<SqlError> {
    if let Some(value) = between(text, "Cannot cast value '", "' to value of ") {
        let wanted = with_sql_types(between(text, "to value of ", " type")?);
        let error = SqlError::new(format!("'{value}' is not a valid {wanted}"));
        return Some(match wanted.as_str() {
            "BOOLEAN" => error.hint("use TRUE or FALSE"),
            _ => error,
        });
    }
    if let Some(value) = between(text, "Cannot cast string '", "' to value of ") {
        let wanted = with_sql_types(between(text, "to value of ", " type")?);
        return Some(SqlError::new(format!("'{value}' is not a valid {wanted}")));
    }
    if let Some(value) = between(text, "Error parsing timestamp from '", "'") {
        return Some(
            SqlError::new(format!("'{value}' is not a valid TIMESTAMP"))
                .hint("for example TIMESTAMP '2024-02-29 12:34:56.789'"),
        );
    }
    if let Some(value) = between(text, "Invalid input syntax for type interval: \"", "\"") {
        return Some(
            SqlError::new(format!("'{value}' is not a valid INTERVAL"))
                .hint("for example INTERVAL '5' SECOND or INTERVAL '1' HOUR"),
        );
    }
    if text.starts_with("Unsupported interval argument") {
        return Some(
            SqlError::new("INTERVAL needs a number in quotes, followed by its unit")
                .near("INTERVAL")
                .hint("for example INTERVAL '5' SECOND or INTERVAL '1' HOUR"),
        );
    }
    if let Some(node) = text.strip_prefix("Unsupported ast node in sqltorel: ")
        && !node.starts_with("Value")
    {
        let name = node.split([' ', '(', '{']).next().unwrap_or_default();
        let error = format!("{} is not supported in an expression", name.to_uppercase());
        return Some(SqlError::new(error).near(name.to_uppercase()));
    }
    if text.starts_with("LIKE does not support escape_char") {
        return Some(
            SqlError::new("LIKE only supports the backslash as ESCAPE character")
                .near("ESCAPE")
                .hint("for example LIKE '10\\%' for a percent sign"),
        );
    }
    if let Some(text) = between(text, "Unsupported Value 'UnicodeStringLiteral(\"", "\")'") {
        return Some(
            SqlError::new("strings with the prefix U& are not supported")
                .near(text)
                .hint("write the characters themselves, in UTF-8"),
        );
    }
    if let Some(value) = between(text, "Can't cast value ", " to type ") {
        let (_, data_type) = text.rsplit_once(" to type ")?;
        return Some(SqlError::new(format!(
            "'{value}' is not a valid {}",
            with_sql_types(data_type)
        )));
    }
    if let Some(name) = text.strip_suffix(" with datetime is not supported") {
        return Some(
            SqlError::new(format!("{name}(… TO unit) is not supported"))
                .near(name)
                .hint("use FLOOR(ts TO HOUR), which rounds down, and add an INTERVAL"),
        );
    }
    // The second one is our own message, when it is reworded again.
    let casts = ["Unsupported CAST from ", "can't cast from "];
    if casts.iter().any(|cast| text.starts_with(cast)) {
        return Some(
            SqlError::new(with_sql_types(
                &text.replace("Unsupported CAST", "can't cast"),
            ))
            .near("CAST"),
        );
    }
    None
}

/// Columns of the wrong number or name, and conditions of the wrong type.
fn shape(text: &str) -> Option<SqlError> {
    if text.starts_with("Too many columns! The subquery should only return one column") {
        return Some(
            SqlError::new("the subquery must return a single column")
                .hint("select one column, or use EXISTS"),
        );
    }
    if text.starts_with("Projections require unique expression names") {
        let name = between(text, "the expression \"", "\"")?;
        let name = name.rsplit(" AS ").next().unwrap_or(name);
        return Some(
            SqlError::new(format!("two columns are named '{}'", last_part(name)))
                .hint("give one of them another name with AS"),
        );
    }
    if let Some((_, name)) = text.split_once("duplicate qualified field name ") {
        let table = name.split('.').next().unwrap_or(name);
        return Some(
            SqlError::new(format!("two tables are named '{table}'"))
                .hint("give one of them another name with AS"),
        );
    }
    if text.starts_with("Cannot create filter with non-boolean predicate '") {
        let (_, data_type) = text.rsplit_once(" returning ")?;
        return Some(
            SqlError::new(format!(
                "a condition must be a BOOLEAN, and this is {}",
                with_sql_types(data_type)
            ))
            .near("WHERE"),
        );
    }
    if text.starts_with("UNION queries have different number of columns") {
        return Some(
            SqlError::new("the sides of a UNION have different numbers of columns").near("UNION"),
        );
    }
    if text.starts_with("Incompatible inputs for Union") {
        let one = between(text, "were of type ", ", but")?;
        let other = between(text, "incompatible type ", " on column")?;
        return Some(
            SqlError::new(with_sql_types(&format!(
                "a column of a UNION is {one} on one side and {other} on the other"
            )))
            .near("UNION")
            .hint("CAST one of them"),
        );
    }
    if text.starts_with("Failed to coerce then") {
        let then = between(text, "then (", ") and else (")?;
        let other = between(text, ") and else (", ") to common")?;
        let types = with_sql_types(&format!("{then} and {other}"));
        return Some(
            SqlError::new(format!("the branches of CASE have no common type: {types}"))
                .near("CASE")
                .hint("CAST them to one type"),
        );
    }
    if let Some(field) = between(text, "Field ", " not found in struct") {
        let error = SqlError::new(format!("there is no field '{field}'"));
        return Some(error.unknown(Unknown::Field));
    }
    if let Some(data_type) = between(
        text,
        "Cannot access field at argument 1: type ",
        " is not Struct",
    ) {
        return Some(SqlError::new(format!(
            "{} has no fields",
            with_sql_types(data_type)
        )));
    }
    if let Some((_, data_type)) =
        text.split_once("Unary operator 'NOT' requires a boolean expression, got ")
    {
        return Some(SqlError::new(format!(
            "NOT needs a condition, not {}",
            with_sql_types(data_type)
        )));
    }
    if text.starts_with("There isn't a common type to coerce") {
        return Some(
            SqlError::new("LIKE needs strings")
                .near("LIKE")
                .hint("CAST(… AS STRING)"),
        );
    }
    None
}

fn from_schema_error(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound {
            field,
            valid_fields,
        } => {
            let names = valid_fields
                .iter()
                .map(|valid| valid.name.clone())
                .collect::<Vec<_>>();
            let shown = match &field.relation {
                Some(table) => format!("{table}.{}", field.name),
                None => field.name.clone(),
            };
            let error = SqlError::new(format!("there is no column '{shown}'"));
            let error = match field.spans.first() {
                Some(span) => error.at(to_span(span)),
                None => error,
            };
            if WINDOW_COLUMNS.contains(&field.name.as_str()) {
                return error.hint(
                    "it is a column of a window function: FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL \
                    '10' SECOND)",
                );
            }
            match nearest(&field.name, &names) {
                // The column exists in another table.
                Some(near) if near == field.name => {
                    let tables = valid_fields.iter().filter(|valid| valid.name == near);
                    let tables = tables.map(|valid| format!("'{}'", valid.flat_name()));
                    error.hint(format!(
                        "did you mean {}?",
                        tables.collect::<Vec<_>>().join(" or ")
                    ))
                }
                Some(near) => error.hint(format!("did you mean '{near}'?")),
                None if names.is_empty() => error,
                None => error.hint(format!("the columns are: {}", names.join(", "))),
            }
        }
        SchemaError::DuplicateUnqualifiedField { name } if name.contains('(') => {
            forms::known(&error.to_string()).unwrap_or_else(|| forms::shown(&error.to_string()))
        }
        SchemaError::DuplicateUnqualifiedField { name } => SqlError::new(format!(
            "GROUP BY has '{}' twice, cast to different types",
            readable(name)
        ))
        .near("GROUP")
        .hint(
            "cast in a subquery: FROM (SELECT CAST(x AS INT) AS a, CAST(x AS STRING) AS b FROM t) \
             GROUP BY a, b",
        ),
        SchemaError::AmbiguousReference { field } => {
            let error = SqlError::new(format!(
                "column '{}' is ambiguous: several tables have it",
                field.name
            ));
            let error = match field.spans.first() {
                Some(span) => error.at(to_span(span)),
                None => error,
            };
            error.hint(format!("add the table: table.{}", field.name))
        }
        SchemaError::DuplicateQualifiedField { qualifier, .. } => {
            SqlError::new(format!("two tables are named '{qualifier}'"))
                .hint("give one of them another name with AS")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_details_of_the_planner_are_removed() {
        assert_eq!(
            first_sentence(
                "Optimizer rule 'simplify' failed\ncaused by\nArrow error: Cast error: no"
            ),
            "Cast error: no"
        );
        assert_eq!(
            first_sentence("a.\nThis issue was likely caused by a bug"),
            "a"
        );
    }
}
