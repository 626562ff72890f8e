//! The error of this crate: the place, the reason, and a hint.

use std::fmt;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What a caller does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An object doesn't exist.
    Missing,
    /// An object exists and is not what was written: another checkpoint must be used.
    Corrupt,
    /// A later incarnation has taken over: this one must stop, and may not commit anything.
    Fenced,
    /// The storage can't be reached, is full, or denies access: it is unknown what is stored there.
    Unavailable,
    /// The request of the caller or the user is not possible.
    Invalid,
}

/// Why something was not stored or read. Displayed as `place: reason (hint)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The kind of the error, which decides what a caller does.
    pub kind: Kind,
    /// The object, directory or URL.
    pub place: String,
    /// What happened.
    pub reason: String,
    /// What the user can do about it; empty if the reason says it all.
    pub hint: String,
}

impl Error {
    /// An error at a place, without a hint.
    pub fn new(kind: Kind, place: impl Into<String>, reason: impl Into<String>) -> Error {
        Error {
            kind,
            place: place.into(),
            reason: reason.into(),
            hint: String::new(),
        }
    }

    /// The error for bytes that are not what was written.
    pub(crate) fn corrupt(place: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::new(Kind::Corrupt, place, reason)
    }

    /// The same error with what the user can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = hint.into();
        self
    }

    /// The same error, at another place.
    #[must_use]
    pub(crate) fn at(mut self, place: impl Into<String>) -> Error {
        self.place = place.into();
        self
    }
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
