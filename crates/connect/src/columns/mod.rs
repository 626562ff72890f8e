//! Formats of columns, in both directions: Parquet, and Arrow's own.
//!
//! ```text
//! parquet, arrow   a file's batches, as far as columns are read
//! fit, convert     whether a file's columns fit the table's, and how they are converted
//! reader           batches into rows of a partition, from any row on
//! written          a table's columns as such a file holds them
//! ```
//!
//! Columns are matched by name. A file declares its columns, so those that don't fit are an error before the
//! first row; a value that doesn't fit its column (a number that is too large) makes a bad record. Both
//! libraries read files from outside, and may panic on a broken one: the panic is caught and becomes an
//! error.

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

use crate::format::{is_nested, sql_type_name, types};
#[cfg(not(feature = "parquet"))]
use crate::options::needs_feature;
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

/// How a sink writes Arrow's format. Sources detect it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrowOptions {
    /// Without the list of batches at the end, which allows a file to be read from any batch on.
    pub(crate) is_stream: bool,
    pub(crate) compression: ArrowCompression,
}

/// How the buffers of an Arrow file are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrowCompression {
    None,
    Zstd,
    #[cfg(feature = "parquet")]
    Lz4,
}

/// How the pages of a Parquet file are compressed.
#[cfg(feature = "parquet")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParquetCompression {
    None,
    Snappy,
    Gzip,
    Lz4,
    Zstd,
}

/// Rejects columns that no format of columns can hold.
fn check_columns(schema: &Schema, format: &str) -> std::result::Result<(), OptionError> {
    types::check_columns(schema)?;
    for field in schema.fields() {
        if !is_nested(field.data_type()) {
            let (name, found) = (field.name(), sql_type_name(field.data_type()));
            let reason = format!("column '{name}' is {found}, which format {format} can't hold");
            let fix = "declare the column with another type";
            return Err(OptionError::table(reason, fix));
        }
    }
    Ok(())
}

pub(crate) fn arrow_of(
    options: &Options<'_>,
    schema: &Schema,
) -> std::result::Result<ColumnFormat, OptionError> {
    check_columns(schema, "arrow")?;
    let layouts = [("file", false), ("stream", true)];
    let compressions = [
        ("none", ArrowCompression::None),
        ("zstd", ArrowCompression::Zstd),
        #[cfg(feature = "parquet")]
        ("lz4", ArrowCompression::Lz4),
    ];
    let none = ArrowCompression::None;
    Ok(ColumnFormat::Arrow(ArrowOptions {
        is_stream: options.choice("arrow.layout", &layouts, false)?,
        compression: options.choice("arrow.compression", &compressions, none)?,
    }))
}

impl ColumnFormat {
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
pub(crate) fn parquet_of(
    options: &Options<'_>,
    schema: &Schema,
) -> std::result::Result<ColumnFormat, OptionError> {
    check_columns(schema, "parquet")?;
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
pub(crate) fn parquet_of(
    _options: &Options<'_>,
    schema: &Schema,
) -> std::result::Result<ColumnFormat, OptionError> {
    check_columns(schema, "parquet")?;
    Err(needs_feature("format", "parquet"))
}

/// Calls a library that may panic on a broken file. The operation is abandoned after a panic, so nobody sees
/// a partial result.
fn guarded<T>(place: &str, name: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        let reason = format!("is not a readable {name} file: {}", panic_text(&*panic));
        Err(Error::new(place, reason).hint(HINT_BROKEN).final_one())
    })
}

/// The hint for a file that can't be read.
const HINT_BROKEN: &str = "the file may be damaged or in another format: create or fetch it again";

#[cfg(test)]
mod broken_tests;
#[cfg(test)]
mod tests;
