//! Sources, sinks and formats.
//!
//! In the order in which data meets the modules:
//!
//! ```text
//! elsewhere                 replaces other engines' names by ours
//! connectors, file_format   the tables of connectors and formats, one entry each
//! table, options            what the DDL says, checked before anything is opened
//! source ── block ── lines  bytes into blocks, blocks into records
//!            └── parsers    the same by several threads
//!            └── format     records into columns (csv, json, combined_log, regex, raw)
//! columns                   files of columns, both ways (parquet, arrow)
//! packing                   files that are compressed (.gz, .zst)
//! push                      rows that other threads push, for the http source
//! feed                      rows in memory, for the memory source
//! custom                    sources and sinks that the process itself has
//! datagen                   generated rows
//! mqtt                      the client of the mqtt source and sink
//! kafka                     the client of the kafka source and sink (feature `kafka`)
//! database                  tables of databases, and the clients of sqlite and postgres (features)
//! dead_letters              rejected records
//! encode ── sink            columns into text, text to files, sockets, the terminal
//! ```
//!
//! A connector is made from a [`TableDefinition`] by [`source()`], [`sink()`] or [`lookup()`], which check
//! every option and whether the format can hold the columns. (Kafka's asks a broker which partitions there
//! are, because they limit the instances.) What is wrong with a table is an [`OptionError`]; what goes wrong
//! later is the engine's `Error`, with the file and line, or the peer. Nothing that comes from outside
//! panics, and every buffer has a named limit.
//!
//! Shutdown: `close` of a source and `finish` of a sink release files, sockets and threads; the
//! one exception is the thread that reads standard input, which sleeps until the process ends.

mod connector;
mod connectors;
mod elsewhere;
mod options;
mod table;

mod block;
mod columns;
pub mod custom;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod database;
mod database_options;
mod datagen;
pub mod feed;
mod file_encoder;
mod file_format;
mod format;
#[cfg(feature = "kafka")]
mod kafka;
mod lines;
mod mqtt;
mod pacer;
mod packing;
mod parsers;
mod postgres;
pub mod push;
mod source;
mod sqlite;
mod tcp;
mod time;

mod dead_letters;

#[cfg(any(test, feature = "kafka"))]
#[doc(hidden)]
pub mod fuzz;

mod encode;
mod sink;

use std::sync::Arc;

use slackwater_engine::sink::SinkConnector;

pub use connector::{ConnectorKind, Exclusive};
pub use connectors::{CONNECTORS, dead_letters, known_table_options, lookup, sink, source};
pub use dead_letters::FileDeadLetters;
pub use elsewhere::{Renamed, renamed};
pub use file_format::{FORMATS, FormatKind};
pub use options::{OptionError, OptionKind};
pub use sink::print::printed_rows;
pub use source::file::found::{Files, find_files, findings};
pub use table::{Findings, TableDefinition, TableSettings, table_settings};
pub use time::event_time_text;

/// The connector that prints rows to the terminal: the sink of a `SELECT` without one.
pub fn print(schema: &arrow_schema::SchemaRef) -> Arc<dyn SinkConnector> {
    Arc::new(sink::print::PrintConnector::new(schema))
}

#[cfg(test)]
mod tests;
