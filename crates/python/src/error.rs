//! The exceptions of the package, which are defined in Python (`slackwater/errors.py`).

use pyo3::prelude::*;
use slackwater::embed;

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
