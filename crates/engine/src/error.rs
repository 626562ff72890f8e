//! The one error of the data path: where, what, and a hint.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a query can't go on. Displayed as `place: reason (hint)`.
///
/// The place is what the user can find again: `flights.csv:812`, `127.0.0.1:9000`,
/// `option 'address'`, `aggregate #4`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// Where it happened; may be empty when the reason says it.
    pub place: String,
    /// What happened.
    pub reason: String,
    /// What the user can do about it; empty when nothing better than the reason is known.
    pub hint: String,
    /// It follows from a failure elsewhere (the other end of a link has died, say), which is
    /// reported by itself and says more.
    pub consequence: bool,
    /// Trying again would come to the same: the query is not started again.
    pub is_final: bool,
}

/// A result of the data path.
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
        }
    }

    /// The same error, said to follow from a failure elsewhere.
    #[must_use]
    pub fn consequence(mut self) -> Error {
        self.consequence = true;
        self
    }

    /// The same error, said to come again whenever the same is tried.
    #[must_use]
    pub fn final_one(mut self) -> Error {
        self.is_final = true;
        self
    }

    /// The error that a caught panic stands for.
    pub fn of_panic(place: impl Into<String>, panic: &(dyn std::any::Any + Send)) -> Error {
        let text = panic_text(panic);
        Error::new(place, format!("panicked: {text}"))
    }

    /// The same error with what the user can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = hint.into();
        self
    }

    /// The same error, further out: `place` goes in front of the place it already names.
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

/// What a panic says.
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
