//! CSV: its options, for both directions.

use crate::options::{OptionError, Options};

/// The form of a table's CSV.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CsvOptions {
    pub(crate) delimiter: u8,
    /// The first record names the columns: skipped by sources, written by sinks.
    pub(crate) header: bool,
    /// An unquoted field equal to this is NULL.
    pub(crate) null: String,
    /// Lines that begin with this byte are skipped.
    pub(crate) comment: Option<u8>,
}

impl CsvOptions {
    pub(crate) fn read(options: &Options<'_>) -> Result<CsvOptions, OptionError> {
        let csv = CsvOptions {
            delimiter: options.byte("csv.delimiter")?.unwrap_or(b','),
            header: options.flag("csv.header", false)?,
            null: options.text("csv.null").unwrap_or("").to_string(),
            comment: options.byte("csv.comment")?,
        };
        if csv.comment == Some(csv.delimiter) {
            return Err(OptionError::new(
                "csv.comment",
                "is also the delimiter",
                "choose another byte",
            ));
        }
        let unusable = |byte: u8| byte == csv.delimiter || matches!(byte, b'"' | b'\n' | b'\r');
        if csv.null.bytes().any(unusable) {
            return Err(OptionError::new(
                "csv.null",
                "can't hold the delimiter, a quote or a line end",
                "write a word such as 'NA' or '\\N'",
            ));
        }
        Ok(csv)
    }
}
