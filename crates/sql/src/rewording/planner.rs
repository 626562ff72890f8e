//! Errors of DataFusion in our words: with SQL's names of types, without the planner's insides, and
//! with a hint where one is known.

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
    // The planner's place is often the whole query; a word says it better.
    match diagnostic.and_then(|diagnostic| diagnostic.span) {
        Some(span) => error.at_unless_near(to_span(span)),
        None => error,
    }
}

/// Without the advice to report a bug to another project, without a backtrace, and without the
/// names of kinds of errors that inner errors begin with.
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
            // `Optimizer rule 'name' failed\ncaused by\n…`: what caused it says more.
            "Optimizer rule " => match text.split_once("caused by\n") {
                Some((_, cause)) => cause,
                None => break,
            },
            kind => &text[kind.len()..],
        };
    }
    text.to_string()
}

/// The messages that users meet, one by one. What is not here is shown as DataFusion says it.
fn known(text: &str) -> Option<SqlError> {
    functions::said(text)
        .or_else(|| grouping(text))
        .or_else(|| value(text))
        .or_else(|| shape(text))
}

fn grouping(text: &str) -> Option<SqlError> {
    if text.contains(" to grouping function is not in grouping columns") {
        let column = last_part(between(text, "Argument ", " to grouping function")?);
        let message = format!("GROUPING takes keys of the GROUP BY, and '{column}' is none");
        return Some(SqlError::new(message).near("GROUPING"));
    }
    if text.contains("must be in GROUP BY or an aggregate function")
        || text.contains("must appear in the GROUP BY clause")
    {
        let column = last_part(between(text, "column \"", "\"")?);
        let message = format!("column '{column}' is neither in GROUP BY nor in an aggregate");
        return Some(SqlError::new(message).hint(format!(
            "add it to GROUP BY, or take one of its values, such as MAX({column})"
        )));
    }
    if text.starts_with("Aggregate functions are not allowed in the WHERE clause") {
        return Some(
            SqlError::new("WHERE is decided row by row, before anything is aggregated")
                .near("WHERE")
                .hint("conditions on aggregates stand in HAVING"),
        );
    }
    if text.starts_with("Aggregate function calls cannot be nested") {
        let inner = between(text, "nested: '", "(").unwrap_or_default();
        return Some(
            SqlError::new("an aggregate inside another aggregate")
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
                "an aggregate can't be computed here: GROUP BY, ON and computed columns are decided row \
                 by row",
            )
            .near("GROUP"),
        );
    }
    None
}

/// Literals that are no value of the type that they are compared with or cast to.
fn value(text: &str) -> Option<SqlError> {
    if let Some(value) = between(text, "Cannot cast value '", "' to value of ") {
        let wanted = with_sql_types(between(text, "to value of ", " type")?);
        let error = SqlError::new(format!("'{value}' is not a valid {wanted}"));
        return Some(match wanted.as_str() {
            "BOOLEAN" => error.hint("TRUE or FALSE"),
            _ => error,
        });
    }
    if let Some(value) = between(text, "Cannot cast string '", "' to value of ") {
        let wanted = with_sql_types(between(text, "to value of ", " type")?);
        return Some(SqlError::new(format!("'{value}' is no {wanted}")));
    }
    if let Some(value) = between(text, "Error parsing timestamp from '", "'") {
        return Some(
            SqlError::new(format!("'{value}' is no TIMESTAMP"))
                .hint("TIMESTAMP '2024-02-29 12:34:56.789'"),
        );
    }
    if let Some(value) = between(text, "Invalid input syntax for type interval: \"", "\"") {
        return Some(
            SqlError::new(format!("'{value}' is no INTERVAL"))
                .hint("INTERVAL '5' SECOND, INTERVAL '1' HOUR"),
        );
    }
    if text.starts_with("Unsupported interval argument") {
        return Some(
            SqlError::new("INTERVAL takes a number in quotes, then its unit")
                .near("INTERVAL")
                .hint("INTERVAL '5' SECOND, INTERVAL '1' HOUR"),
        );
    }
    if let Some(node) = text.strip_prefix("Unsupported ast node in sqltorel: ")
        && !node.starts_with("Value")
    {
        let name = node.split([' ', '(', '{']).next().unwrap_or_default();
        let error = format!("{} is not known in an expression here", name.to_uppercase());
        return Some(SqlError::new(error).near(name.to_uppercase()));
    }
    if text.starts_with("LIKE does not support escape_char") {
        return Some(
            SqlError::new("LIKE knows no other ESCAPE than the backslash")
                .near("ESCAPE")
                .hint("LIKE '10\\%' finds a percent sign"),
        );
    }
    if let Some(text) = between(text, "Unsupported Value 'UnicodeStringLiteral(\"", "\")'") {
        return Some(
            SqlError::new("texts with U& in front are not known here")
                .near(text)
                .hint("write the characters themselves: texts are UTF-8"),
        );
    }
    if let Some(value) = between(text, "Can't cast value ", " to type ") {
        let (_, of) = text.rsplit_once(" to type ")?;
        return Some(SqlError::new(format!(
            "'{value}' is no {}",
            with_sql_types(of)
        )));
    }
    if let Some(name) = text.strip_suffix(" with datetime is not supported") {
        return Some(
            SqlError::new(format!("{name}(… TO unit) is not known here"))
                .near(name)
                .hint("FLOOR(ts TO HOUR) rounds down; an INTERVAL can be added to it"),
        );
    }
    // The second is the first, shown once already.
    let casts = ["Unsupported CAST from ", "there is no CAST from "];
    if casts.iter().any(|cast| text.starts_with(cast)) {
        return Some(
            SqlError::new(with_sql_types(
                &text.replace("Unsupported CAST", "there is no CAST"),
            ))
            .near("CAST"),
        );
    }
    None
}

/// What tables, columns and conditions look like.
fn shape(text: &str) -> Option<SqlError> {
    if text.starts_with("Too many columns! The subquery should only return one column") {
        return Some(
            SqlError::new("a subquery is compared by one column, and this one has several")
                .hint("select the one that is meant, or write EXISTS"),
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
        let (_, of) = text.rsplit_once(" returning ")?;
        return Some(
            SqlError::new(format!(
                "a condition is true or false, this one is {}",
                with_sql_types(of)
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
            SqlError::new(format!(
                "the branches of CASE have no type in common: {types}"
            ))
            .near("CASE")
            .hint("CAST them to one type"),
        );
    }
    if let Some(field) = between(text, "Field ", " not found in struct") {
        let error = SqlError::new(format!("there is no field '{field}'"));
        return Some(error.unknown(Unknown::Field));
    }
    if let Some(of) = between(
        text,
        "Cannot access field at argument 1: type ",
        " is not Struct",
    ) {
        return Some(SqlError::new(format!(
            "{} has no fields",
            with_sql_types(of)
        )));
    }
    if let Some((_, of)) =
        text.split_once("Unary operator 'NOT' requires a boolean expression, got ")
    {
        return Some(SqlError::new(format!(
            "NOT takes a condition, not {}",
            with_sql_types(of)
        )));
    }
    if text.starts_with("There isn't a common type to coerce") {
        return Some(
            SqlError::new("LIKE takes texts")
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
                    "it comes from a window: FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
                );
            }
            match nearest(&field.name, &names) {
                // The name is right and its table is not.
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
            let error = SqlError::new(format!("column '{}' is in more than one table", field.name));
            let error = match field.spans.first() {
                Some(span) => error.at(to_span(span)),
                None => error,
            };
            error.hint(format!("write which one: table.{}", field.name))
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
    fn what_the_planner_says_inside_is_left_out() {
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
