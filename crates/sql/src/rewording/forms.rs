//! More of what the planner says, in our words: functions and operators whose operands don't fit, and forms
//! that aren't supported. `text` has SQL's names of types already.

use super::{between, last_part};
use crate::error::SqlError;

/// The messages that are known here.
pub(super) fn known(text: &str) -> Option<SqlError> {
    arguments(text)
        .or_else(|| operands(text))
        .or_else(|| values(text))
        .or_else(|| clauses(text))
        .or_else(|| syntax(text))
}

/// Any other message: as it is, unless it shows what the planner is made of.
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
            .hint("docs/sql.md says which forms there are"),
    }
}

/// A kind of argument, as the planner names it.
fn kind(name: &str) -> String {
    match name {
        "String" => "STRING".to_string(),
        "Integer" => "a whole number".to_string(),
        "Numeric" => "a number".to_string(),
        other => other.to_string(),
    }
}

/// Functions whose arguments don't fit.
fn arguments(text: &str) -> Option<SqlError> {
    if let Some(name) = between(text, "unction '", "' requires ") {
        let wanted = kind(between(text, "' requires ", ", but received ")?);
        let received =
            between(text, "(DataType: ", ").").or(between(text, "but received ", " ("))?;
        return Some(SqlError::new(format!(
            "function '{name}' takes {wanted}, not {received}"
        )));
    }
    if let Some(name) = between(text, "unction '", "' user-defined coercion failed") {
        let types = text
            .rfind(": [")
            .and_then(|at| between(&text[at..], ": [", "]"));
        let error = match types {
            Some(types) => {
                format!("the arguments of '{name}' have no type in common: {types}")
            }
            None => format!("the arguments of '{name}' have no type in common"),
        };
        // An array is written without the name of its function.
        let error = SqlError::new(error).hint("CAST them to one type");
        return Some(match name {
            "make_array" => SqlError::new(match types {
                Some(types) => format!("the elements of an ARRAY have no type in common: {types}"),
                None => "the elements of an ARRAY have no type in common".to_string(),
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
            "function '{name}' takes {wanted} {noun}, not {received}"
        )));
    }
    if let Some(name) = between(text, "'", "' does not support zero arguments") {
        let error = format!("function '{name}' takes an argument, and there is none");
        return Some(SqlError::new(error).near(name));
    }
    if text.starts_with("named_struct requires") {
        return Some(
            SqlError::new("named_struct takes names and values in turn, and names are strings")
                .near("named_struct")
                .hint("named_struct('city', city, 'n', 5)"),
        );
    }
    if text.starts_with("Percentile value") {
        let name = [
            "percentile_cont",
            "approx_percentile_cont",
            "percentile_disc",
        ];
        let error = match between(text, "inclusive, ", " is invalid") {
            Some(value) => format!("a percentile is a number between 0 and 1, not {value}"),
            None => "a percentile is a constant between 0 and 1".to_string(),
        };
        let named = text.to_lowercase();
        let name = name.into_iter().find(|name| named.contains(name));
        return Some(SqlError::new(error).near(name.unwrap_or("percentile_cont")));
    }
    if text.contains("Must be a supported arrow type name") {
        let name = between(text, "Unsupported type '", "'")?;
        return Some(
            SqlError::new(format!("'{name}' is not a type that arrow_cast can read"))
                .hint("CAST(… AS type) takes the types of SQL"),
        );
    }
    None
}

/// Operators whose operands don't fit.
fn operands(text: &str) -> Option<SqlError> {
    let cast = "CAST one of them";
    if let Some(operation) =
        text.strip_prefix("Cannot infer common argument type for regex operation ")
    {
        return Some(
            SqlError::new(format!("there is no {operation}")).hint(
                "a regular expression is a STRING, and is matched with one: CAST(… AS STRING)",
            ),
        );
    }
    if let Some(operation) = text.strip_prefix("Cannot infer common type for bitwise operation ") {
        return Some(SqlError::new(format!("there is no {operation}")).hint("CAST(… AS BIGINT)"));
    }
    if let Some(rest) = text.strip_prefix("Cannot automatically convert ") {
        let (from, to) = rest.split_once(" to ")?;
        let error = format!("{to} is expected here, not {from}");
        return Some(SqlError::new(error).hint(match to {
            // No CAST makes one.
            "INTERVAL" => "INTERVAL '5' SECOND".to_string(),
            _ => format!("CAST(… AS {to})"),
        }));
    }
    if let Some(signs) = text.strip_prefix("Unary operator '") {
        let (sign, _) = signs.split_once('\'')?;
        return Some(SqlError::new(format!("{sign} takes a number")).hint("CAST(… AS DOUBLE)"));
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
            "//" => error.hint("whole numbers are divided without decimals by /"),
            "->" | "->>" | "#>" | "#>>" => error.hint("JSON_VALUE(text, '$.name') reads a field"),
            _ => error,
        });
    }
    None
}

/// Literals that aren't valid.
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
            SqlError::new("a literal of a type is written with a string")
                .hint("DATE '2024-02-29', TIMESTAMP '2024-02-29 12:34:56'"),
        );
    }
    if text.starts_with("Unsupported Value '") {
        return Some(
            SqlError::new("strings with a prefix, such as N'…', are not supported")
                .hint("write the string without it"),
        );
    }
    if text.starts_with("Unsupported Interval Expression") {
        return Some(
            SqlError::new("an INTERVAL of several units, or with a precision, is not supported")
                .near("INTERVAL")
                .hint("INTERVAL '14' MONTH, INTERVAL '1 day 2 hours'"),
        );
    }
    None
}

/// Tables, windows and groups.
fn clauses(text: &str) -> Option<SqlError> {
    if let Some(name) = between(text, "The window ", " is not defined") {
        return Some(
            SqlError::new(format!("there is no window '{name}'")).hint(format!(
                "… FROM t WINDOW {name} AS (PARTITION BY k ORDER BY ts)"
            )),
        );
    }
    if text.starts_with("Aggregate function calls cannot contain window function calls") {
        return Some(
            SqlError::new("a function with OVER can't stand inside an aggregate")
                .near("OVER")
                .hint("compute it in a subquery: FROM (SELECT … OVER (…) AS x FROM t)"),
        );
    }
    if let Some(rest) = text.strip_prefix("HAVING clause references: ") {
        let what = rest.split(" must appear ").next().unwrap_or(rest);
        let column = last_part(what.split(' ').next().unwrap_or(what));
        return Some(
            SqlError::new(format!(
                "HAVING takes keys and aggregates, and '{column}' is neither"
            ))
            .near("HAVING")
            .hint("conditions on rows stand in WHERE"),
        );
    }
    if text.starts_with("QUALIFY clause requires window functions") {
        return Some(
            SqlError::new("QUALIFY needs a function with OVER")
                .near("QUALIFY")
                .hint("conditions on columns stand in WHERE"),
        );
    }
    if let Some(name) = text.strip_prefix("Invalid qualifier ") {
        let name = name.trim_end_matches('.');
        return Some(
            SqlError::new(format!("FROM names no table '{name}'"))
                .near(name)
                .hint(format!(
                    "{name}.* takes the columns of a table that FROM names so"
                )),
        );
    }
    if let Some(name) = between(text, "WITH query name \"", "\" specified more than once") {
        return Some(
            SqlError::new(format!("two queries of WITH are named '{name}'"))
                .hint("give one of them another name"),
        );
    }
    if let Some(columns) = between(text, "Source table contains ", " columns but only ") {
        let names = between(text, " columns but only ", " names")?;
        let noun = if columns == "1" { "column" } else { "columns" };
        let error = format!("the table has {columns} {noun}, and {names} names are given");
        return Some(SqlError::new(error).near("AS").hint("name each, or none"));
    }
    if let Some(name) = between(
        text,
        "Schema contains duplicate unqualified field name \"",
        "\"",
    ) {
        return Some(
            SqlError::new(format!(
                "'{name}' is computed twice, as a key and as a column"
            ))
            .near("GROUP")
            .hint("aggregates can't be keys: name the columns in GROUP BY"),
        );
    }
    None
}

/// What the parser reads and the planner doesn't know.
fn syntax(text: &str) -> Option<SqlError> {
    if text.starts_with("Dot access not supported for") {
        return Some(
            SqlError::new("a field of an expression is written in brackets")
                .hint("(expression)['name']"),
        );
    }
    if let Some(node) = text.strip_prefix("Unsupported ast node ") {
        let node = node.strip_prefix("in sqltorel: ").unwrap_or(node);
        let name = node.split([' ', '(', '{']).next().unwrap_or_default();
        return Some(match name {
            "TableFunction" => SqlError::new("TABLE(…) in FROM takes a window function only")
                .near("TABLE")
                .hint("TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))"),
            "Value" => SqlError::new("this constant can't stand here"),
            name => {
                let name = name.to_uppercase();
                SqlError::new(format!("{name} is not supported")).near(name)
            }
        });
    }
    None
}
