//! The exceptions of the package, which are defined in Python (`slackwater/errors.py`).

use pyo3::prelude::*;
use slackwater::embed;

/// The bytes of a traceback that are kept as a reason: its end names the error.
const REASON_BYTES_MAX: usize = 2_000;

/// The exception for an error of the engine.
pub fn raised(py: Python<'_>, error: &embed::Error) -> PyErr {
    let name = match error.kind {
        embed::Kind::Sql => "SqlError",
        embed::Kind::Query => "QueryError",
    };
    let (line, column) = error.place.unzip();
    let arguments = (&error.shown, &error.message, &error.hint, line, column);
    let made = || {
        py.import("slackwater.errors")?
            .getattr(name)?
            .call1(arguments)
    };
    match made() {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The exception for rows or columns that can't be taken.
pub fn wrong(py: Python<'_>, reason: impl Into<String>) -> PyErr {
    let hint = "give rows with the columns of the table, or Arrow's data with types that SQL has";
    raised(py, &embed::Error::sql(reason, hint))
}

/// What was raised, with the end of its traceback: why a row is rejected, or a query fails.
pub fn reason(py: Python<'_>, error: PyErr) -> String {
    let shown = || {
        let traceback = py.import("traceback")?;
        let raised = (error.get_type(py), error.value(py), error.traceback(py));
        let lines = traceback.call_method1("format_exception", raised)?;
        lines.extract::<Vec<String>>().map(|lines| lines.concat())
    };
    let text = shown().unwrap_or_else(|_: PyErr| error.to_string());
    let text = text.trim_end();
    let mut start = text.len().saturating_sub(REASON_BYTES_MAX);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].to_string()
}
