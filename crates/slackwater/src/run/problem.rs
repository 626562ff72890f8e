//! What is wrong with a request, as JSON: `{"error": {"kind": …, "message": …, "hint": …}}`.

use serde_json::json;
use slackwater_serve::http::{Answer, StatusCode};

/// An answer that says what is wrong and what to do, and in which line of the body it is.
pub fn problem(
    status: StatusCode,
    kind: &str,
    message: &str,
    hint: &str,
    line: Option<u64>,
) -> Answer {
    let mut error = json!({ "kind": kind, "message": message, "hint": hint });
    if let Some(line) = line {
        error["line"] = line.into();
    }
    let answer = Answer::json(status, format!("{}\n", json!({ "error": error })));
    match status {
        StatusCode::SERVICE_UNAVAILABLE => answer.with("retry-after", "1"),
        _ => answer,
    }
}
