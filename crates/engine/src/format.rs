//! Formats that the program brings itself: records into rows, and rows into records.
//!
//! A record is a line or a message. What finds records in bytes, counts them and keeps the bad ones is the
//! connector; a format sees one record after the other, and each of them alone: several threads read parts of
//! one file.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;

use crate::error::Result;

/// A format that the program brings.
pub trait RecordFormat: Debug + Send + Sync {
    /// Its name, in lower case.
    fn name(&self) -> &str;

    /// The names of its options, as tables have them: `nmea.talker`.
    fn options(&self) -> &[String];

    /// What it does with the records of a table.
    ///
    /// # Errors
    ///
    /// What is wrong with the table's options or columns.
    fn records(
        &self,
        table: &RecordTable<'_>,
    ) -> std::result::Result<Arc<dyn Records>, FormatError>;
}

/// A table whose rows are records of a format.
#[derive(Debug, Clone, Copy)]
pub struct RecordTable<'t> {
    /// The columns that are in records.
    pub schema: &'t SchemaRef,
    /// All options of the table.
    pub options: &'t BTreeMap<String, String>,
    /// Whether rows are written; otherwise they are read.
    pub is_written: bool,
}

/// What is wrong with a table of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatError {
    /// The option with the error; `None` if the columns, or the table as a whole, are wrong.
    pub option: Option<String>,
    /// What is wrong.
    pub reason: String,
    /// What to write instead.
    pub hint: String,
}

impl FormatError {
    /// An error about the table.
    pub fn new(reason: impl Into<String>, hint: impl Into<String>) -> FormatError {
        FormatError {
            option: None,
            reason: reason.into(),
            hint: hint.into(),
        }
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl From<String> for FormatError {
    fn from(reason: String) -> FormatError {
        FormatError::new(reason, "")
    }
}

impl From<&str> for FormatError {
    fn from(reason: &str) -> FormatError {
        FormatError::new(reason, "")
    }
}

/// The records of a table.
pub trait Records: Debug + Send + Sync {
    /// Reads records as rows with the columns `projection` of the table.
    fn decoder(&self, projection: &[usize]) -> Box<dyn RecordDecoder>;

    /// Writes rows as records.
    fn encoder(&self) -> Box<dyn RecordEncoder>;
}

/// The most rows of one record: with them a chunk has at most this many more rows than it is meant to have.
pub const ROWS_OF_RECORD_MAX: usize = 65_536;

/// Reads records, in a thread of its own.
pub trait RecordDecoder: Debug + Send {
    /// Reads a record, and returns the number of its rows, at most [`ROWS_OF_RECORD_MAX`].
    ///
    /// # Errors
    ///
    /// Why the record is rejected: it has no rows then.
    fn decode(&mut self, record: &[u8]) -> std::result::Result<usize, String>;

    /// The columns of all rows since the last call, and those among the rows that are rejected, with the
    /// reason.
    fn take(&mut self) -> (Vec<ArrayRef>, Vec<(usize, String)>);
}

/// Writes records, in a thread of its own.
pub trait RecordEncoder: Debug + Send {
    /// Appends one record for each row. `written` is called after each of them, and may append what separates
    /// records.
    ///
    /// # Errors
    ///
    /// If a row can't be written, which ends the query.
    fn encode(
        &mut self,
        rows: &RecordBatch,
        out: &mut Vec<u8>,
        written: &mut dyn FnMut(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()>;
}
