//! What goes wrong with a query, in parts.

use std::fmt;

use slackwater_sql::SqlError;

use crate::run::Failure;
use crate::script::Script;

/// What is wrong with a text, or why a query failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Which of the two.
    pub kind: Kind,
    /// What is wrong.
    pub message: String,
    /// What to do; empty if nothing is to be said.
    pub hint: String,
    /// The line and the column in the text that was given last, both from 1.
    pub place: Option<(usize, usize)>,
    /// All of it as the command line shows it, with the line of the text.
    pub shown: String,
}

/// The kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The SQL, a setting or an option is wrong: nothing has run.
    Sql,
    /// The query has failed.
    Query,
}

/// How a hint begins in a message.
const HINT: &str = "\n  = ";

impl Error {
    /// An error about the SQL or a setting as a whole.
    pub fn sql(message: impl Into<String>, hint: &str) -> Error {
        Error::new(Kind::Sql, message.into(), hint)
    }

    /// An error of a query.
    pub fn query(message: impl Into<String>, hint: &str) -> Error {
        Error::new(Kind::Query, message.into(), hint)
    }

    fn new(kind: Kind, message: String, hint: &str) -> Error {
        Error {
            kind,
            shown: format!("{message}{HINT}{hint}"),
            message,
            hint: hint.to_string(),
            place: None,
        }
    }

    /// An error of a script.
    pub fn of(script: &Script, error: &SqlError) -> Error {
        let place = script.place_in_last(error);
        Error {
            kind: Kind::Sql,
            message: error.message.clone(),
            hint: error.hint.clone(),
            place: place.map(|place| (place.line, place.column)),
            shown: script.render(error),
        }
    }

    /// An error that is known by its text only.
    fn shown(kind: Kind, shown: String) -> Error {
        let (message, hint) = match shown.rsplit_once(HINT) {
            Some((message, hint)) => (message.to_string(), hint.to_string()),
            None => (shown.clone(), String::new()),
        };
        Error {
            kind,
            message,
            hint,
            place: None,
            shown,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Usage(shown) => Error::shown(Kind::Sql, shown),
            Failure::Query(shown, _) => Error::shown(Kind::Query, shown),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_its_hint() {
        let failure = Failure::Query("a.csv:3: not a number\n  = fix it".to_string(), None);
        let error = Error::from(failure);
        assert_eq!(error.message, "a.csv:3: not a number");
        assert_eq!(error.hint, "fix it");
        assert_eq!(error.kind, Kind::Query);
    }
}
