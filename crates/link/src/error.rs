//! Errors: why a message was not taken, and why a link broke.

use std::fmt;

/// Why a message was not taken. The message is handed back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendError<T> {
    /// The link is full. The writer is woken once a quarter of it is free: keep the message, do something
    /// else, or announce, try again, and sleep.
    Full(T),
    /// The receiver is gone: nobody will ever read the message.
    Closed(T),
}

impl<T> SendError<T> {
    /// The message that was not sent.
    pub fn into_message(self) -> T {
        match self {
            SendError::Full(message) | SendError::Closed(message) => message,
        }
    }
}

// Implemented by hand, so that messages need not be `Debug`.
impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            SendError::Full(_) => "Full(..)",
            SendError::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            SendError::Full(_) => "the link is full: send again once its writer is woken",
            SendError::Closed(_) => "the link's receiver is gone",
        })
    }
}

impl<T> std::error::Error for SendError<T> {}

/// Why a link broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkError {
    /// The peer at the other end, as the user knows it: `process 2`, `10.0.0.7:4711`.
    pub peer: String,
    /// What happened.
    pub reason: String,
    /// What to do about it; may be empty.
    pub hint: String,
}

impl LinkError {
    /// An error of the link to `peer`.
    pub fn new(peer: impl Into<String>, reason: impl Into<String>) -> LinkError {
        LinkError {
            peer: peer.into(),
            reason: reason.into(),
            hint: String::new(),
        }
    }

    /// Adds what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> LinkError {
        self.hint = hint.into();
        self
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.peer, self.reason)?;
        if self.hint.is_empty() {
            return Ok(());
        }
        write!(formatter, "; {}", self.hint)
    }
}

impl std::error::Error for LinkError {}
