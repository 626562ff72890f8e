//! CSV: its options, for both directions.

use super::{Format, types};
use crate::file_format::{FormatKind, Layout};
use crate::options::{OptionError, Options, option};

/// How a table's CSV is written.
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

/// The entry in the table of formats.
pub(crate) const CSV: FormatKind = FormatKind {
    name: "csv",
    layout: Layout::Lines {
        read: |options, schema| {
            types::check_columns(schema)?;
            types::check_scalar(schema, "csv")?;
            Ok(Format::Csv(CsvOptions::read(options)?))
        },
        write: Some(|options, schema| {
            types::check_flat(schema, "csv")?;
            Ok(Format::Csv(CsvOptions::read(options)?))
        }),
    },
    options: &[
        option("csv.delimiter", "`,`", "one ASCII character, or `'\\t'`"),
        option(
            "csv.header",
            "`false`",
            "`true`: the first record of each file is a header. Sources skip it: columns go by position, \
             in the order of the file, and all must be declared; in another order values end up in the \
             wrong columns, and no record is bad where they fit there. A header that has the table's \
             columns in another order is warned of. Without the option a header is a record like others. \
             Sinks write it",
        ),
        option(
            "csv.null",
            "the empty field",
            "an unquoted field equal to this is NULL: `'NA'`",
        ),
    ],
    source_options: &[option(
        "csv.comment",
        "none",
        "lines that begin with this character are skipped",
    )],
    sink_options: &[],
    not_of_messages: &["csv.header", "csv.comment"],
};

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
