//! What went wrong, where, and how to fix it.

use std::fmt;

/// Whose mistake an error is; it decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The command line or the configuration is wrong: exit code 2.
    Usage,
    /// Something failed while the program ran: exit code 1.
    Failed,
}

/// An error with its place, the fact, and a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    place: String,
    what: String,
    hint: Option<String>,
}

impl Error {
    /// A mistake in the command line or the configuration.
    pub fn usage(place: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self::new(Kind::Usage, place, what)
    }

    /// A failure at run time.
    pub fn failed(place: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self::new(Kind::Failed, place, what)
    }

    fn new(kind: Kind, place: impl fmt::Display, what: impl fmt::Display) -> Self {
        let (place, what) = (place.to_string(), what.to_string());
        Self {
            kind,
            place,
            what,
            hint: None,
        }
    }

    /// Adds how to fix it.
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        match self.kind {
            Kind::Usage => 2,
            Kind::Failed => 1,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}: {}", self.place, self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// A result whose error is for people.
pub type Result<T> = std::result::Result<T, Error>;
