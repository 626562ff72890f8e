//! The error type of the data path: where, what, and a hint.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a query can't continue. Displayed as `place: reason (hint)`.
///
/// The place is something that the user can find: `flights.csv:812`, `127.0.0.1:9000`, `option
/// 'address'`, `aggregate #4`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// Where it happened; empty if the reason says it.
    pub place: String,
    /// What happened.
    pub reason: String,
    /// What the user can do about it; empty if there is nothing to add to the reason.
    pub hint: String,
    /// Whether the error follows from a failure elsewhere (the other end of a link has died, for
    /// example), which is reported separately and says more.
    pub consequence: bool,
    /// Whether trying again would fail in the same way, so that the query is not restarted.
    pub is_final: bool,
    /// The row of a batch that fails alone, if whatever has failed for the batch says so. It may be wrong.
    #[serde(skip)]
    pub row: Option<usize>,
}

/// The result type of the data path.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error at a place, without a hint.
    pub fn new(place: impl Into<String>, reason: impl Into<String>) -> Error {
        Error {
            place: place.into(),
            reason: reason.into(),
            hint: String::new(),
            consequence: false,
            is_final: false,
            row: None,
        }
    }

    /// Marks the error as a consequence of a failure elsewhere.
    #[must_use]
    pub fn consequence(mut self) -> Error {
        self.consequence = true;
        self
    }

    /// Marks the error as one that every retry would meet again.
    #[must_use]
    pub fn final_one(mut self) -> Error {
        self.is_final = true;
        self
    }

    /// Names the row of a batch that fails alone.
    #[must_use]
    pub fn row(mut self, row: usize) -> Error {
        self.row = Some(row);
        self
    }

    /// The error for a caught panic.
    pub fn of_panic(place: impl Into<String>, panic: &(dyn std::any::Any + Send)) -> Error {
        let text = panic_text(panic);
        Error::new(place, format!("panicked: {text}"))
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = hint.into();
        self
    }

    /// Puts `place` in front of the place that the error already names.
    #[must_use]
    pub fn at(mut self, place: &str) -> Error {
        self.place = if self.place.is_empty() {
            place.to_string()
        } else {
            format!("{place}: {}", self.place)
        };
        self
    }
}

/// The message of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.reason)?;
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<arrow_schema::ArrowError> for Error {
    fn from(error: arrow_schema::ArrowError) -> Error {
        Error::new("", error.to_string())
    }
}
