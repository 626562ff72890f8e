//! The mqtt connector: topics of a broker, read and written.

use std::sync::Arc;

use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;

use crate::connector::ConnectorKind;
use crate::file_format::Formats;
use crate::format::Format;
use crate::options::{OptionError, Options, option};
use crate::table::TableDefinition;
use crate::{sink, source};

/// The connector's entry in the table of connectors.
pub(crate) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "mqtt",
    aliases: &[],
    source: Some(read),
    sink: Some(write),
    lookup: None,
    formats: Formats::Messages,
    has_metadata: true,
    options: &[
        option(
            "address",
            "required",
            "`'host:port'`, or `'mqtt://host:port'`; the port is 1883 where it is left out; IPv6 as \
             `'[::1]:1883'`",
        ),
        option(
            "qos",
            "`1`",
            "`0`, `1`, `2`: how a message comes or goes, at most, at least or exactly once",
        ),
        option(
            "client_id",
            "a random name",
            "the name by which the broker knows us. Each table and query needs its own: a broker has one \
             client of a name, and closes the other one's connection. Where it says so that is an error; \
             where it doesn't (Mosquitto 2.0) both come back in turn, with warnings",
        ),
        option("username", "none", "the user"),
        option(
            "password",
            "none",
            "the password, which needs a `username`; it is never shown",
        ),
    ],
    source_options: &[
        option(
            "topic",
            "required",
            "topic filters: `'plant/+/temperature;plant/#'`, 64 at most. `$share/group/filter` shares the \
             messages with other clients of the group",
        ),
        option(
            "session",
            "`persistent` with `client_id`, else `clean`",
            "`persistent`: the broker keeps what arrives while we are away",
        ),
        option(
            "session_expiry",
            "`1 d`",
            "for how long, with `persistent`; in whole seconds, rounded up",
        ),
    ],
    sink_options: &[
        option(
            "topic",
            "required, or `topic_column`",
            "the topic of all rows",
        ),
        option(
            "topic_column",
            "none",
            "a STRING column that has each row's topic. A row without one, or with wildcards in it, ends \
             the query. The column is in the message, too",
        ),
        option(
            "retain",
            "`false`",
            "the broker keeps the last message of each topic, for clients that subscribe later",
        ),
    ],
    lookup_options: &[],
};

fn read(
    table: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn SourceConnector>, OptionError> {
    let connector = source::mqtt::MqttConnector::new(table, options)?;
    Ok(Arc::new(connector))
}

fn write(
    table: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn SinkConnector>, OptionError> {
    let format = Format::of_sink(options, &table.schema)?;
    let connector = sink::mqtt::MqttConnector::new(table, options, format)?;
    Ok(Arc::new(connector))
}
