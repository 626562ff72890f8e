//! Functions that there aren't, and arguments that they don't take.

use super::between;
use crate::error::{SqlError, Unknown};
use crate::names::WINDOW_FUNCTIONS;
use crate::types::with_sql_types;

/// What the planner says of a function, in our words.
pub(super) fn said(text: &str) -> Option<SqlError> {
    if let Some(name) = between(text, "Invalid function '", "'") {
        return Some(no_function(name));
    }
    if let Some(name) = between(text, "to satisfy a call to '", "'") {
        let received = with_sql_types(between(text, "coercion from ", " to the signature")?);
        return Some(SqlError::new(format!(
            "function '{name}' takes no {received}"
        )));
    }
    let name = between(text, "unction '", "'")?;
    if text.contains("failed to match any signature") {
        let received = between(text, "(DataType: ", ").")?;
        let received = with_sql_types(received);
        return Some(SqlError::new(format!(
            "function '{name}' takes no {received}"
        )));
    }
    // Of several forms none takes so many: `forms` says which numbers they take.
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
                "function '{name}' takes {wanted} {noun}, not {received}"
            )));
        }
    }
    if text.contains("failed to match any signature") {
        return None;
    }
    let (_, types) = text.split_once(" expects ")?;
    let (wanted, received) = types.split_once(" but received ")?;
    let received = received.trim_end_matches('.');
    let sql_type = |of: &str| match of {
        "String" => "STRING".to_string(),
        "Numeric" => "a number".to_string(),
        other => with_sql_types(other),
    };
    Some(SqlError::new(format!(
        "function '{name}' takes {}, not {}",
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
            "{window} stands in FROM: FROM {window}(TABLE t{per}, DESCRIPTOR(ts), {lengths}) GROUP BY \
             window_start, window_end{keys}"
        ));
    }
    if upper == "CURRENT_WATERMARK" {
        return error.hint(
            "whether a row is late is decided by its own partition's watermark: SET 'late_rows' = 't' \
             writes late rows to table t, and the report counts them",
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
            .hint(format!("{upper}(…) OVER (PARTITION BY k ORDER BY ts)"));
    }
    if ["LISTAGG", "GROUP_CONCAT", "COLLECT"].contains(&upper.as_str()) {
        return error.hint(
            "what it gives would depend on the order in which rows arrive; FIRST_VALUE and LAST_VALUE \
             order by event time",
        );
    }
    // Whoever knows the functions says which one is near.
    error
        .hint("docs/functions.md says which functions there are, \\df in the shell lists them")
        .unknown(Unknown::Function)
}
