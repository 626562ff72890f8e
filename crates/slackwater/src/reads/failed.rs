//! Why a read fails.

use std::fmt;
use std::time::Duration;

use slackwater_sql::SqlError;

use crate::views::NotRead;

/// Why a read fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// The text, or the value of a parameter, is wrong.
    Sql(SqlError),
    /// The rows of a view can't be read now.
    NotRead(String),
    /// A value can't be computed, or the read met a bug.
    Query(String),
    /// Somebody cancelled it.
    Cancelled,
    /// Its time is over.
    TimedOut(Duration),
    /// Its operators held more than this many bytes.
    Memory(u64),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Sql(error) => error.fmt(f),
            Failed::NotRead(reason) | Failed::Query(reason) => f.write_str(reason),
            Failed::Cancelled => f.write_str("the read was cancelled"),
            Failed::TimedOut(limit) => {
                write!(f, "the read took longer than {} ms", limit.as_millis())
            }
            Failed::Memory(limit) => write!(
                f,
                "the read needs more than its {limit} bytes of memory: select fewer rows, or use LIMIT"
            ),
        }
    }
}

impl std::error::Error for Failed {}

impl From<SqlError> for Failed {
    fn from(error: SqlError) -> Failed {
        Failed::Sql(error)
    }
}

impl From<NotRead> for Failed {
    fn from(error: NotRead) -> Failed {
        Failed::NotRead(error.to_string())
    }
}

impl From<slackwater_engine::Error> for Failed {
    fn from(error: slackwater_engine::Error) -> Failed {
        Failed::Query(error.to_string())
    }
}
