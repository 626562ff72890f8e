//! The one error of this crate: where, what, and the mend.

use std::fmt;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What a caller does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An object isn't there.
    Missing,
    /// An object is there and is not what was written: another checkpoint has to do.
    Corrupt,
    /// A later incarnation has taken over: this one must stop, and may not commit anything.
    Fenced,
    /// Storage can't be reached, is full, or forbids it: nothing is known of what is stored there.
    Unavailable,
    /// What the caller or the user asked for can't be.
    Invalid,
}

/// Why something was not stored or read. Displayed as `place: reason (mend)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What a caller does about it.
    pub kind: Kind,
    /// The object, directory or URL.
    pub place: String,
    /// What happened.
    pub reason: String,
    /// What the user can do about it; empty when nothing better than the reason is known.
    pub mend: String,
}

impl Error {
    /// An error at a place, without a mend.
    pub fn new(kind: Kind, place: impl Into<String>, reason: impl Into<String>) -> Error {
        Error {
            kind,
            place: place.into(),
            reason: reason.into(),
            mend: String::new(),
        }
    }

    /// Bytes that are not what was written.
    pub(crate) fn corrupt(place: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::new(Kind::Corrupt, place, reason)
    }

    /// The same error with what the user can do about it.
    #[must_use]
    pub fn mend(mut self, mend: impl Into<String>) -> Error {
        self.mend = mend.into();
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
        if !self.mend.is_empty() {
            write!(f, " ({})", self.mend)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
