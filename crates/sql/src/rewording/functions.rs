//! Errors about unknown functions, and about arguments that functions do not accept.

use super::between;
use crate::error::{SqlError, Unknown};
use crate::names::WINDOW_FUNCTIONS;
use crate::types::with_sql_types;

/// The planner's errors about functions, in our own words.
pub(super) fn said(text: &str) -> Option<SqlError> {
    if let Some(name) = between(text, "Invalid function '", "'") {
        return Some(no_function(name));
    }
    if let Some(name) = between(text, "to satisfy a call to '", "'") {
        let received = with_sql_types(between(text, "coercion from ", " to the signature")?);
        return Some(SqlError::new(format!(
            "function '{name}' does not accept {received}"
        )));
    }
    let name = between(text, "unction '", "'")?;
    if text.contains("failed to match any signature") {
        let received = between(text, "(DataType: ", ").")?;
        let received = with_sql_types(received);
        return Some(SqlError::new(format!(
            "function '{name}' does not accept {received}"
        )));
    }
    // With several overloads none accepts so many arguments: `forms` lists the numbers that they accept.
    let has_forms = text.contains("errors: ");
    for (expects, but) in [
        (" expects ", " arguments but received "),
        (" expected ", " arguments but received "),
    ] {
        if !has_forms
            && let Some((_, counts)) = text.split_once(expects)
            && let Some((wanted, received)) = counts.split_once(but)
        {
            let received = received.trim_end_matches('.');
            let noun = if wanted == "1" {
                "argument"
            } else {
                "arguments"
            };
            return Some(SqlError::new(format!(
                "function '{name}' needs {wanted} {noun}, not {received}"
            )));
        }
    }
    if text.contains("failed to match any signature") {
        return None;
    }
    let (_, types) = text.split_once(" expects ")?;
    let (wanted, received) = types.split_once(" but received ")?;
    let received = received.trim_end_matches('.');
    let sql_type = |name: &str| match name {
        "String" => "STRING".to_string(),
        "Numeric" => "a number".to_string(),
        other => with_sql_types(other),
    };
    Some(SqlError::new(format!(
        "function '{name}' needs {}, not {}",
        sql_type(wanted),
        sql_type(received)
    )))
}

fn no_function(name: &str) -> SqlError {
    let upper = name.to_uppercase();
    let error = SqlError::new(format!("there is no function '{name}'"));
    // Group windows of older Flink versions: TUMBLE(ts, …) and TUMBLE_START(ts, …) in GROUP BY and SELECT.
    const EDGES: [&str; 4] = ["_START", "_END", "_ROWTIME", "_PROCTIME"];
    let window = WINDOW_FUNCTIONS.iter().find(|window| {
        let edge = upper.strip_prefix(**window);
        edge.is_some_and(|edge| edge.is_empty() || EDGES.contains(&edge))
    });
    if let Some(window) = window {
        let (per, lengths, keys) = match *window {
            "TUMBLE" => ("", "INTERVAL '10' SECOND", ""),
            "HOP" => ("", "INTERVAL '5' SECOND, INTERVAL '10' SECOND", ""),
            "CUMULATE" => ("", "INTERVAL '1' HOUR, INTERVAL '1' DAY", ""),
            "SESSION" => (" PARTITION BY k", "INTERVAL '30' MINUTE", ", k"),
            _ => (" PARTITION BY k", "100", ", window_number, k"),
        };
        return error.hint(format!(
            "use {window} in FROM: FROM {window}(TABLE t{per}, DESCRIPTOR(ts), {lengths}) GROUP BY \
            window_start, window_end{keys}"
        ));
    }
    if upper == "CURRENT_WATERMARK" {
        return error.hint(
            "the watermark of its own partition decides whether a row is late: SET 'late_rows' = 't' writes \
            late rows to table t, and the report has their number",
        );
    }
    const NEED_OVER: [&str; 9] = [
        "ROW_NUMBER",
        "RANK",
        "DENSE_RANK",
        "LAG",
        "LEAD",
        "NTILE",
        "NTH_VALUE",
        "PERCENT_RANK",
        "CUME_DIST",
    ];
    if NEED_OVER.contains(&upper.as_str()) {
        return SqlError::new(format!("{upper} needs OVER"))
            .near(name)
            .hint(format!("use {upper}(…) OVER (PARTITION BY k ORDER BY ts)"));
    }
    if ["LISTAGG", "GROUP_CONCAT", "COLLECT"].contains(&upper.as_str()) {
        return error.hint(
            "the result would depend on the order in which rows arrive; use FIRST_VALUE or LAST_VALUE, which \
            order rows by event time",
        );
    }
    // The caller knows the functions, and suggests a similar one.
    error
        .hint("docs/functions.md lists the functions, as does \\df in the shell")
        .unknown(Unknown::Function)
}
