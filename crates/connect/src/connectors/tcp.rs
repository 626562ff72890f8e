//! The tcp connector: lines from a socket and to a socket.

use std::sync::Arc;

use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;

use crate::connector::{AtHome, ConnectorKind, Exclusive};
use crate::file_format::Formats;
use crate::format::Format;
use crate::options::{OptionError, Options, option};
use crate::table::TableDefinition;
use crate::{sink, source};

/// The connector's entry in the table of connectors.
pub(crate) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "tcp",
    aliases: &[],
    source: Some(read),
    sink: Some(write),
    lookup: None,
    formats: Formats::Lines,
    has_metadata: false,
    path: None,
    exclusive: Exclusive::Nothing,
    reads_standard_input: false,
    is_pushed: false,
    at_home: AtHome::If {
        option: "mode",
        value: "listen",
    },
    options: &[
        option(
            "address",
            "required",
            "`'host:port'`; IPv6 as `'[::1]:9000'`",
        ),
        option(
            "mode",
            "`connect`",
            "`connect` connects to the peer when the query starts; `listen` accepts connections of \
             peers",
        ),
        option(
            "on_close",
            "see below",
            "what to do when a connection ends: `reconnect` waits for the next one; `end` (sources) \
             ends the table; `fail` (sinks) ends the query with an error",
        ),
    ],
    source_options: &[option(
        "connections_max",
        "`256`",
        "for `listen`: how many connections at a time, at most 65536 ([memory](#as-a-source))",
    )],
    sink_options: &[],
    lookup_options: &[],
};

fn read(
    table: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn SourceConnector>, OptionError> {
    let format = Format::of_source(options, &table.schema)?;
    let connector = source::tcp::TcpConnector::new(table, options, format)?;
    Ok(Arc::new(connector))
}

fn write(
    table: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn SinkConnector>, OptionError> {
    let format = Format::of_sink(options, &table.schema)?;
    let connector = sink::tcp::TcpConnector::new(table, options, format)?;
    Ok(Arc::new(connector))
}
