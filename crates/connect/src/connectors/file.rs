//! The file connector: rows from files and into files.

use std::sync::Arc;

use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;

use crate::connector::{AtHome, ConnectorKind, Exclusive};
use crate::file_format::{FileFormat, Formats};
use crate::options::{OptionError, Options, option};
use crate::table::TableDefinition;
use crate::{sink, source};

/// The connector's entry in the table of connectors.
pub(crate) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "file",
    aliases: &[],
    source: Some(read),
    sink: Some(write),
    lookup: None,
    formats: Formats::Files,
    has_metadata: false,
    path: Some("path"),
    exclusive: Exclusive::File("path"),
    reads_standard_input: false,
    is_pushed: false,
    at_home: AtHome::OneFile,
    options: &[],
    source_options: &[
        option(
            "path",
            "required",
            "a file, or a pattern: `*` matches any characters, `?` one, `[ab]` one of a set, `**` any \
             folders. Files whose names end in `.gz` or `.zst` are decompressed (formats of lines only)",
        ),
        option(
            "files",
            "`shared`",
            "`shared`: all hosts of a query have the same files. `per_host`: each host has its own, which it \
             reads itself ([more](../cluster.md#what-runs-where))",
        ),
        option(
            "replay_rate",
            "as fast as possible",
            "rows per second of the whole source: `'10000/s'`, `'30/min'`",
        ),
    ],
    sink_options: &[
        option(
            "path",
            "required",
            "with an extension: one file, written by one instance, compressed if the name ends in `.gz` \
             or `.zst`. Without: a folder of part files `part-<instance>.csv`, `.json`, `.parquet` or \
             `.arrow`",
        ),
        option(
            "overwrite",
            "`false`",
            "`true` replaces the file, or the part files of the folder, when the query ends without an \
             error",
        ),
    ],
    lookup_options: &[],
};

fn read(
    table: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn SourceConnector>, OptionError> {
    let format = FileFormat::of_source(options, &table.schema)?;
    let connector = source::file::FileConnector::new(table, options, format)?;
    Ok(Arc::new(connector))
}

fn write(
    table: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn SinkConnector>, OptionError> {
    let format = FileFormat::of_sink(options, &table.schema)?;
    let connector = sink::file::FileConnector::new(table, options, format)?;
    Ok(Arc::new(connector))
}
