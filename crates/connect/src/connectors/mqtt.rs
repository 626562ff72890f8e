//! The mqtt connector: topics of a broker, read and written.

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
    name: "mqtt",
    aliases: &[],
    source: Some(read),
    sink: Some(write),
    lookup: None,
    formats: Formats::Messages,
    has_metadata: true,
    path: None,
    exclusive: Exclusive::Nothing,
    reads_standard_input: false,
    is_pushed: false,
    at_home: AtHome::Never,
    options: &[
        option(
            "address",
            "required",
            "`'host:port'` or `'mqtt://host:port'`; the default port is 1883; IPv6 as `'[::1]:1883'`",
        ),
        option(
            "protocol_version",
            "`5`",
            "the version of MQTT: `5` or `3.1.1` ([what it lacks](#mqtt-311))",
        ),
        option(
            "qos",
            "`1`",
            "delivery of messages: `0` at most once, `1` at least once, `2` exactly once",
        ),
        option(
            "client_id",
            "a random name",
            "the client identifier. Each table and query needs its own: if two clients have the same \
             identifier, the broker closes the connection of the first. The query then ends with an \
             error if the broker gives the reason; if it doesn't (Mosquitto 2.0), the two clients keep \
             replacing each other, with warnings",
        ),
        option("username", "none", "the user name"),
        option(
            "password",
            "none",
            "the password; requires `username`. It is never shown",
        ),
    ],
    source_options: &[
        option(
            "topic",
            "required",
            "topic filters, separated by `;`, at most 64: `'plant/+/temperature;plant/#'`. \
             `$share/group/filter` shares the messages with other clients of the group",
        ),
        option(
            "session",
            "`persistent` if `client_id` is set, else `clean`",
            "`persistent`: the broker keeps messages that arrive while the query is not connected",
        ),
        option(
            "session_expiry",
            "`1 d`",
            "how long the broker keeps a persistent session; rounded up to whole seconds",
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
            "a STRING column with the topic of each row. A topic that is NULL or contains wildcards \
             ends the query. The column is also written to the message",
        ),
        option(
            "retain",
            "`false`",
            "`true`: the broker keeps the last message of each topic, for clients that subscribe later",
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
