//! The error of this crate: the place, the reason, and a hint.

use std::fmt;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The entry isn't as expected: look again, and decide again.
    Conflict,
    /// The term that guards the write doesn't lead, or no longer: stop, and stand again.
    Fenced,
    /// The session was lost, and its entries with it: stand again.
    Expired,
    /// Whether it was written is unknown, for the connection broke: look.
    Unknown,
    /// The registry can't be reached or used; it may be later.
    Unavailable,
    /// Somebody else is writing, for too long.
    Busy,
    /// The disk, or the registry itself, is full.
    Full,
    /// What is there is not what was written.
    Damaged,
    /// A later version of this program has written what is there.
    Later,
    /// The registry was removed or replaced while it was in use.
    Removed,
    /// The request of the caller or the user is not possible.
    Invalid,
}

/// Why something was not done. Displayed as `place: reason (hint)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The kind of the error, which decides what a caller does.
    pub kind: Kind,
    /// The path or servers, and the key.
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

    /// The same error with what the user can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = hint.into();
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)?;
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
