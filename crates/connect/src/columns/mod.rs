//! Formats of columns, in both directions: Parquet, and Arrow's own.
//!
//! ```text
//! parquet, arrow   a file's batches, as far as columns are read
//! fit, convert     do a file's columns fit the table's, and how they become these
//! reader           batches into rows of a partition, from any row on
//! written          what a table's columns are in such a file
//! ```
//!
//! Columns go by name. A file says what its columns are, so those that don't fit are an error before
//! the first row; a value that doesn't fit its column (a number that is too large) makes a bad record.
//! Both libraries read files that somebody else has made, and may panic on a broken one: that is caught
//! and becomes an error.

mod arrow;
mod convert;
mod fit;
#[cfg(feature = "parquet")]
mod parquet;
mod reader;
mod written;

use std::panic::AssertUnwindSafe;
use std::path::Path;

use arrow_schema::{Schema, SchemaRef};
use slackwater_engine::error::{Error, Result, panic_text};

use crate::format::{is_nested, sql_type_name};
use crate::options::{OptionError, Options};

pub(crate) use arrow::ArrowWriter;
#[cfg(feature = "parquet")]
pub(crate) use parquet::ParquetWriter;
pub(crate) use reader::{ColumnReader, Progress};

/// A format, as a table's options choose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnFormat {
    Arrow(ArrowOptions),
    #[cfg(feature = "parquet")]
    Parquet(ParquetCompression),
}

/// How a sink writes Arrow's format. Sources find it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrowOptions {
    /// Without the list of batches at the end, by which a file is read from anywhere.
    pub(crate) is_stream: bool,
    pub(crate) compression: ArrowCompression,
}

/// How the buffers of an Arrow file are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrowCompression {
    None,
    Zstd,
    #[cfg(feature = "parquet")]
    Lz4,
}

/// How the pages of a Parquet file are packed.
#[cfg(feature = "parquet")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParquetCompression {
    None,
    Snappy,
    Gzip,
    Lz4,
    Zstd,
}

/// The names of these formats.
const NAMES: &[&str] = &["parquet", "arrow"];

const ARROW_OPTIONS: &[&str] = &["arrow.layout", "arrow.compression"];

#[cfg(feature = "parquet")]
const PARQUET_OPTIONS: &[&str] = &["parquet.compression"];

/// The format's name, if it is one of columns.
pub(crate) fn name_of(options: &Options<'_>) -> Option<&'static str> {
    let text = options.text("format")?;
    let mut names = NAMES.iter().copied();
    names.find(|name| text.eq_ignore_ascii_case(name))
}

/// The options that the format has as a sink. As a source it has none.
pub(crate) fn options_of_sink(name: &str) -> &'static [&'static str] {
    match name {
        "arrow" => ARROW_OPTIONS,
        #[cfg(feature = "parquet")]
        "parquet" => PARQUET_OPTIONS,
        _ => &[],
    }
}

impl ColumnFormat {
    /// The format of that name, able to hold the columns.
    pub(crate) fn read(
        name: &str,
        options: &Options<'_>,
        schema: &Schema,
    ) -> std::result::Result<ColumnFormat, OptionError> {
        if schema.fields().is_empty() {
            let mend = "declare at least one";
            return Err(OptionError::table("the table has no column", mend));
        }
        for field in schema.fields() {
            if !is_nested(field.data_type()) {
                let (name_of_field, found) = (field.name(), sql_type_name(field.data_type()));
                let reason =
                    format!("column '{name_of_field}' is {found}, which format {name} can't hold");
                let mend = "declare the column with another type";
                return Err(OptionError::table(reason, mend));
            }
        }
        if name == "arrow" {
            let layouts = [("file", false), ("stream", true)];
            let compressions = [
                ("none", ArrowCompression::None),
                ("zstd", ArrowCompression::Zstd),
                #[cfg(feature = "parquet")]
                ("lz4", ArrowCompression::Lz4),
            ];
            return Ok(ColumnFormat::Arrow(ArrowOptions {
                is_stream: options.choice("arrow.layout", &layouts, false)?,
                compression: options.choice(
                    "arrow.compression",
                    &compressions,
                    ArrowCompression::None,
                )?,
            }));
        }
        parquet_of(options)
    }

    /// The ending of a part's name.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            ColumnFormat::Arrow(_) => "arrow",
            #[cfg(feature = "parquet")]
            ColumnFormat::Parquet(_) => "parquet",
        }
    }

    /// Opens a file at row `first`, from 1, for the columns that are read.
    pub(crate) fn open(
        self,
        path: &Path,
        read: &SchemaRef,
        first: u64,
        progress: Progress,
    ) -> Result<ColumnReader> {
        match self {
            ColumnFormat::Arrow(_) => arrow::open(path, read, first, progress),
            #[cfg(feature = "parquet")]
            ColumnFormat::Parquet(_) => parquet::open(path, read, first, progress),
        }
    }
}

#[cfg(feature = "parquet")]
fn parquet_of(options: &Options<'_>) -> std::result::Result<ColumnFormat, OptionError> {
    let compressions = [
        ("zstd", ParquetCompression::Zstd),
        ("snappy", ParquetCompression::Snappy),
        ("gzip", ParquetCompression::Gzip),
        ("lz4", ParquetCompression::Lz4),
        ("none", ParquetCompression::None),
    ];
    let compression = options.choice(
        "parquet.compression",
        &compressions,
        ParquetCompression::Zstd,
    )?;
    Ok(ColumnFormat::Parquet(compression))
}

#[cfg(not(feature = "parquet"))]
fn parquet_of(_options: &Options<'_>) -> std::result::Result<ColumnFormat, OptionError> {
    Err(OptionError::new(
        "format",
        "this program was built without parquet",
        "build it with: cargo build --release --features parquet",
    ))
}

/// Does something with a library that may panic on a file that somebody else has made. What was going
/// on is given up afterwards, so nothing half-done is seen.
fn guarded<T>(place: &str, name: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        let reason = format!(
            "is no {name} file that can be read: {}",
            panic_text(&*panic)
        );
        Err(Error::new(place, reason).mend(MEND_BROKEN).final_one())
    })
}

/// What to do about a file that can't be read.
const MEND_BROKEN: &str = "is it broken, or of another format? make or fetch it again";

#[cfg(test)]
mod broken_tests;
#[cfg(test)]
mod tests;
