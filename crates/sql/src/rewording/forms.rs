//! More errors of the planner in our own words: operands of the wrong types, and syntax that is not
//! supported. `text` already has SQL's names of types.

use super::{between, last_part};
use crate::error::SqlError;

/// The errors that this module rewords.
pub(super) fn known(text: &str) -> Option<SqlError> {
    arguments(text)
        .or_else(|| operands(text))
        .or_else(|| values(text))
        .or_else(|| clauses(text))
        .or_else(|| syntax(text))
}

/// Any other error: unchanged, unless it contains internal details of the planner.
pub(super) fn shown(text: &str) -> SqlError {
    const INSIDES: [&str; 10] = [
        "Ident {",
        "Span(",
        "Some(",
        "None",
        "DataType",
        "Expr",
        "Physical",
        "user-defined coercion",
        "LogicalPlan",
        "ScalarValue",
    ];
    let mut plain = text;
    const KINDS: [&str; 5] = [
        "Cast error: ",
        "Compute error: ",
        "Invalid argument error: ",
        "Parser error: ",
        "Arithmetic overflow: ",
    ];
    while let Some(rest) = KINDS.iter().find_map(|kind| plain.strip_prefix(kind)) {
        plain = rest;
    }
    match INSIDES.iter().any(|inside| plain.contains(inside)) {
        false => SqlError::new(plain),
        true => SqlError::new("this form of expression is not supported")
            .hint("docs/sql.md lists the supported syntax"),
    }
}

/// A kind of argument, in the planner's words.
fn kind(name: &str) -> String {
    match name {
        "String" => "STRING".to_string(),
        "Integer" => "an integer".to_string(),
        "Numeric" => "a number".to_string(),
        other => other.to_string(),
    }
}

/// Functions with arguments of the wrong types.
fn arguments(text: &str) -> Option<SqlError> {
    if let Some(name) = between(text, "unction '", "' requires ") {
        let wanted = kind(between(text, "' requires ", ", but received ")?);
        let received =
            between(text, "(DataType: ", ").").or(between(text, "but received ", " ("))?;
        return Some(SqlError::new(format!(
            "function '{name}' needs {wanted}, not {received}"
        )));
    }
    if let Some(name) = between(text, "unction '", "' user-defined coercion failed") {
        let types = text
            .rfind(": [")
            .and_then(|at| between(&text[at..], ": [", "]"));
        let error = match types {
            Some(types) => {
                format!("the arguments of '{name}' have no common type: {types}")
            }
            None => format!("the arguments of '{name}' have no common type"),
        };
        // The user has written an array, not the function that makes it.
        let error = SqlError::new(error).hint("CAST them to one type");
        return Some(match name {
            "make_array" => SqlError::new(match types {
                Some(types) => format!("the elements of an ARRAY have no common type: {types}"),
                None => "the elements of an ARRAY have no common type".to_string(),
            })
            .hint("CAST them to one type"),
            name => error.near(name),
        });
    }
    if let Some(name) = between(
        text,
        "unction '",
        "' failed to match any signature, errors: ",
    ) {
        let mut wanted = Vec::new();
        let mut received = "";
        for part in text.split(" expects ").skip(1) {
            let (count, rest) = part.split_once(" arguments but received ")?;
            if !wanted.contains(&count) {
                wanted.push(count);
            }
            received = rest.split(',').next().unwrap_or(rest).trim_end_matches('.');
        }
        let noun = if wanted == ["1"] {
            "argument"
        } else {
            "arguments"
        };
        let wanted = wanted.join(" or ");
        return Some(SqlError::new(format!(
            "function '{name}' needs {wanted} {noun}, not {received}"
        )));
    }
    if let Some(name) = between(text, "'", "' does not support zero arguments") {
        let error = format!("function '{name}' needs an argument");
        return Some(SqlError::new(error).near(name));
    }
    if text.starts_with("named_struct requires") {
        return Some(
            SqlError::new(
                "the arguments of named_struct must be names, as strings, and values in turn",
            )
            .near("named_struct")
            .hint("for example named_struct('city', city, 'n', 5)"),
        );
    }
    if text.starts_with("Percentile value") {
        let name = [
            "percentile_cont",
            "approx_percentile_cont",
            "percentile_disc",
        ];
        let error = match between(text, "inclusive, ", " is invalid") {
            Some(value) => format!("a percentile must be between 0 and 1, not {value}"),
            None => "a percentile must be a constant between 0 and 1".to_string(),
        };
        let named = text.to_lowercase();
        let name = name.into_iter().find(|name| named.contains(name));
        return Some(SqlError::new(error).near(name.unwrap_or("percentile_cont")));
    }
    if text.contains("Must be a supported arrow type name") {
        let name = between(text, "Unsupported type '", "'")?;
        return Some(
            SqlError::new(format!("'{name}' is not a type that arrow_cast supports"))
                .hint("use CAST(… AS type) with a type of SQL"),
        );
    }
    None
}

/// Operators with operands of the wrong types.
fn operands(text: &str) -> Option<SqlError> {
    let cast = "CAST one of the operands";
    if let Some(operation) =
        text.strip_prefix("Cannot infer common argument type for regex operation ")
    {
        return Some(
            SqlError::new(format!("operator does not exist: {operation}"))
                .hint("a regular expression and its operand must be strings: CAST(… AS STRING)"),
        );
    }
    if let Some(operation) = text.strip_prefix("Cannot infer common type for bitwise operation ") {
        return Some(
            SqlError::new(format!("operator does not exist: {operation}"))
                .hint("CAST(… AS BIGINT)"),
        );
    }
    if let Some(rest) = text.strip_prefix("Cannot automatically convert ") {
        let (from, to) = rest.split_once(" to ")?;
        let error = format!("expected {to}, found {from}");
        return Some(SqlError::new(error).hint(match to {
            // No CAST makes one.
            "INTERVAL" => "INTERVAL '5' SECOND".to_string(),
            _ => format!("CAST(… AS {to})"),
        }));
    }
    if let Some(signs) = text.strip_prefix("Unary operator '") {
        let (sign, _) = signs.split_once('\'')?;
        return Some(SqlError::new(format!("{sign} needs a number")).hint("CAST(… AS DOUBLE)"));
    }
    if let Some(pair) = text.strip_prefix("For function 'nullif' ") {
        let pair = pair.strip_suffix(" is not comparable.").unwrap_or(pair);
        let pair = pair.strip_suffix(" is not comparable").unwrap_or(pair);
        return Some(
            SqlError::new(format!("NULLIF can't compare {pair}"))
                .near("NULLIF")
                .hint(cast),
        );
    }
    if let Some(pair) = text.strip_prefix("Can not find compatible types to compare ") {
        let (left, list) = pair.split_once(" with [")?;
        let list = list.trim_end_matches(']');
        return Some(
            SqlError::new(format!("IN can't compare {left} with {list}"))
                .near("IN")
                .hint(cast),
        );
    }
    if let Some(pair) = between(text, "Failed to coerce types ", " in BETWEEN expression") {
        return Some(
            SqlError::new(format!("BETWEEN can't compare {pair}"))
                .near("BETWEEN")
                .hint(cast),
        );
    }
    if let Some(left) = between(text, "Failed to coerce case (", ") and when (") {
        let right = between(text, ") and when (", ") to common")?;
        return Some(
            SqlError::new(format!("CASE can't compare {left} with {right}"))
                .near("CASE")
                .hint(cast),
        );
    }
    if let Some(operator) = between(text, "Operator ", " is not yet supported") {
        let sign = match operator {
            "DIV" => "//",
            sign => sign,
        };
        let error = SqlError::new(format!("the operator {sign} is not supported"));
        return Some(match sign {
            "//" => error.hint("use /, whose result for integers is an integer"),
            "->" | "->>" | "#>" | "#>>" => {
                error.hint("use JSON_VALUE(text, '$.name') to read a field")
            }
            _ => error,
        });
    }
    None
}

/// Invalid literals.
fn values(text: &str) -> Option<SqlError> {
    if let Some(rest) = text.strip_prefix("regex parse error:") {
        let mut lines = rest.lines().map(str::trim).filter(|line| !line.is_empty());
        let pattern = lines.next().unwrap_or_default();
        let reason = rest.rsplit("error: ").next().unwrap_or_default().trim();
        return Some(SqlError::new(format!(
            "'{pattern}' is not a valid regular expression: {reason}"
        )));
    }
    if text.starts_with("Typed literal requires a string payload") {
        return Some(
            SqlError::new("a literal with a type must be a string")
                .hint("for example DATE '2024-02-29' or TIMESTAMP '2024-02-29 12:34:56'"),
        );
    }
    if text.starts_with("Unsupported Value '") {
        return Some(
            SqlError::new("strings with a prefix, such as N'…', are not supported")
                .hint("write the string without the prefix"),
        );
    }
    if text.starts_with("Unsupported Interval Expression") {
        return Some(
            SqlError::new("an INTERVAL with several units or a precision is not supported")
                .near("INTERVAL")
                .hint("use INTERVAL '14' MONTH or INTERVAL '1 day 2 hours'"),
        );
    }
    None
}

/// Tables, windows and groups.
fn clauses(text: &str) -> Option<SqlError> {
    if let Some(name) = between(text, "The window ", " is not defined") {
        return Some(
            SqlError::new(format!("there is no window '{name}'")).hint(format!(
                "define it: … FROM t WINDOW {name} AS (PARTITION BY k ORDER BY ts)"
            )),
        );
    }
    if text.starts_with("Aggregate function calls cannot contain window function calls") {
        return Some(
            SqlError::new("an aggregate can't contain a function with OVER")
                .near("OVER")
                .hint("compute it in a subquery: FROM (SELECT … OVER (…) AS x FROM t)"),
        );
    }
    if let Some(rest) = text.strip_prefix("HAVING clause references: ") {
        let what = rest.split(" must appear ").next().unwrap_or(rest);
        let column = last_part(what.split(' ').next().unwrap_or(what));
        return Some(
            SqlError::new(format!(
                "HAVING can only use keys and aggregates, and '{column}' is neither"
            ))
            .near("HAVING")
            .hint("use WHERE for conditions on rows"),
        );
    }
    if text.starts_with("QUALIFY clause requires window functions") {
        return Some(
            SqlError::new("QUALIFY needs a function with OVER")
                .near("QUALIFY")
                .hint("use WHERE for conditions on columns"),
        );
    }
    if let Some(name) = text.strip_prefix("Invalid qualifier ") {
        let name = name.trim_end_matches('.');
        return Some(
            SqlError::new(format!("there is no table '{name}' in FROM"))
                .near(name)
                .hint(format!(
                    "{name}.* needs a table of that name, or with that alias, in FROM"
                )),
        );
    }
    if let Some(name) = between(text, "WITH query name \"", "\" specified more than once") {
        return Some(
            SqlError::new(format!("WITH defines '{name}' twice"))
                .hint("give one of them another name"),
        );
    }
    if let Some(columns) = between(text, "Source table contains ", " columns but only ") {
        let names = between(text, " columns but only ", " names")?;
        let noun = if columns == "1" { "column" } else { "columns" };
        let error = format!("the table has {columns} {noun}, but the alias has {names} names");
        return Some(
            SqlError::new(error)
                .near("AS")
                .hint("name all columns, or none"),
        );
    }
    if let Some(name) = between(
        text,
        "Schema contains duplicate unqualified field name \"",
        "\"",
    ) {
        return Some(
            SqlError::new(format!("'{name}' is both a key and a column"))
                .near("GROUP")
                .hint("aggregates can't be keys: use columns in GROUP BY"),
        );
    }
    None
}

/// Syntax that the parser accepts and the planner does not support.
fn syntax(text: &str) -> Option<SqlError> {
    if text.starts_with("Dot access not supported for") {
        return Some(
            SqlError::new("use brackets to access a field of an expression")
                .hint("(expression)['name']"),
        );
    }
    if let Some(node) = text.strip_prefix("Unsupported ast node ") {
        let node = node.strip_prefix("in sqltorel: ").unwrap_or(node);
        let name = node.split([' ', '(', '{']).next().unwrap_or_default();
        return Some(match name {
            "TableFunction" => SqlError::new("TABLE(…) in FROM needs a window function")
                .near("TABLE")
                .hint(
                    "for example TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)); \
                     operators are called without it: FROM clip(TABLE t, …)",
                ),
            "Value" => SqlError::new("a constant is not allowed here"),
            name => {
                let name = name.to_uppercase();
                SqlError::new(format!("{name} is not supported")).near(name)
            }
        });
    }
    None
}
