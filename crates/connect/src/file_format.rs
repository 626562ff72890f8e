//! The formats that a file can have: lines of text, or columns.

use arrow_schema::Schema;

use crate::columns::{self, ColumnFormat};
use crate::format::Format;
use crate::options::{OptionError, Options};

/// A file's format, as a table's options choose it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileFormat {
    Lines(Format),
    Columns(ColumnFormat),
}

/// Endings of the names of part files.
pub(crate) const EXTENSIONS: &[&str] = &["csv", "json", "parquet", "arrow"];

/// Formats of lines that no sink writes.
fn is_read_only(name: &str) -> bool {
    ["raw", "regex", "combined_log"]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(name))
}

/// An error about the format's name, with the formats of columns among those that are known.
fn with_columns(mut error: OptionError) -> OptionError {
    if error.option.as_deref() == Some("format") && error.mend.contains("write 'csv'") {
        error.mend.push_str(" or 'arrow' or 'parquet'");
    }
    error
}

type Named = (&'static str, &'static [&'static str]);

impl FileFormat {
    /// The name of a source's format and the options that it has.
    pub(crate) fn options_of_source(options: &Options<'_>) -> Result<Named, OptionError> {
        match columns::name_of(options) {
            Some(name) => Ok((name, &[])),
            None => Format::options_of_source(options).map_err(with_columns),
        }
    }

    /// A source's format, able to give the columns.
    pub(crate) fn of_source(
        options: &Options<'_>,
        schema: &Schema,
    ) -> Result<FileFormat, OptionError> {
        match columns::name_of(options) {
            Some(name) => ColumnFormat::read(name, options, schema).map(FileFormat::Columns),
            None => Format::of_source(options, schema).map(FileFormat::Lines),
        }
    }

    /// The name of a sink's format and the options that it has.
    pub(crate) fn options_of_sink(options: &Options<'_>) -> Result<Named, OptionError> {
        match columns::name_of(options) {
            Some(name) => Ok((name, columns::options_of_sink(name))),
            None => {
                Format::options_of_sink(options).map_err(|error| match options.text("format") {
                    Some(name) if is_read_only(name) => OptionError::new(
                        "format",
                        format!("'{name}' can only be read"),
                        "write 'csv', 'json', 'arrow' or 'parquet'",
                    ),
                    _ => with_columns(error),
                })
            }
        }
    }

    /// A sink's format, able to hold the columns.
    pub(crate) fn of_sink(
        options: &Options<'_>,
        schema: &Schema,
    ) -> Result<FileFormat, OptionError> {
        match columns::name_of(options) {
            Some(name) => ColumnFormat::read(name, options, schema).map(FileFormat::Columns),
            None => Format::of_sink(options, schema).map(FileFormat::Lines),
        }
    }

    /// The ending of a part's name.
    pub(crate) fn extension(&self) -> &'static str {
        match self {
            FileFormat::Lines(Format::Json) => "json",
            FileFormat::Lines(_) => "csv",
            FileFormat::Columns(format) => format.extension(),
        }
    }

    /// What a position counts.
    pub(crate) fn unit(&self) -> &'static str {
        match self {
            FileFormat::Lines(_) => "line",
            FileFormat::Columns(_) => "row",
        }
    }
}
