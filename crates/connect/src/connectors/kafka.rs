//! The kafka connector: topics, read and written (feature `kafka`).

#[cfg(feature = "kafka")]
use std::sync::Arc;

#[cfg(feature = "kafka")]
use slackwater_engine::sink::SinkConnector;
#[cfg(feature = "kafka")]
use slackwater_engine::source::SourceConnector;

#[cfg(not(feature = "kafka"))]
use self::{not_built as read, not_built as write};
use crate::connector::{Alias, AtHome, ConnectorKind, Exclusive};
use crate::file_format::Formats;
#[cfg(feature = "kafka")]
use crate::options::Options;
use crate::options::{OptionError, option};
#[cfg(feature = "kafka")]
use crate::table::TableDefinition;
use crate::table::Use;
#[cfg(feature = "kafka")]
use crate::{sink, source};

/// The connector's entry in the table of connectors.
pub(crate) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "kafka",
    aliases: &[UPSERT],
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
            "topic",
            "required",
            "the topic. A source can read several: `'orders;returns'`",
        ),
        option(
            "properties.bootstrap.servers",
            "required",
            "`'host:port'`; several are separated by commas",
        ),
        option(
            "properties.",
            "librdkafka's",
            "any [property of \
             librdkafka](https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md): \
             `'properties.fetch.wait.max.ms' = '5000'`, `'properties.security.protocol' = 'SASL_SSL'`. \
             Properties that only Java clients have (JAAS, key stores) are rejected, and so are those \
             that the engine sets (groups, commits, acknowledgements); the message says what to write \
             instead",
        ),
    ],
    source_options: &[
        option(
            "scan.startup.mode",
            "`earliest-offset`",
            "where reading starts: `earliest-offset`, `latest-offset`, `timestamp`, `specific-offsets`",
        ),
        option(
            "scan.startup.timestamp-millis",
            "–",
            "for `timestamp`: reading starts at the first message of this time (milliseconds since \
             1970) or later",
        ),
        option(
            "scan.startup.specific-offsets",
            "–",
            "for `specific-offsets`: `'partition:0,offset:42;partition:1,offset:300'`. Other partitions \
             are read from their first message",
        ),
        option(
            "scan.bounded.mode",
            "`unbounded`",
            "`latest-offset`: the source ends at the messages that are last when it starts",
        ),
        option(
            "scan.topic-partition-discovery.interval",
            "`5 min`",
            "how often to look for new partitions; `'0'`: never. A bounded source never does",
        ),
    ],
    sink_options: &[
        option(
            "key.fields",
            "no key",
            "the columns of the message's key: `'customer'`, `'customer;region'`",
        ),
        option(
            "key.format",
            "`format`",
            "`csv` or `json`. A key of one column is the plain value in `csv` (`anna`), and an object in \
             `json` (`{\"customer\":\"anna\"}`)",
        ),
        option(
            "delivery",
            "`exactly_once`",
            "`exactly_once` or `at_least_once`: how often a reader sees each row if the query fails and \
             resumes. If `exactly_once` is set explicitly, the query refuses to run without checkpoints",
        ),
        option(
            "transactional.id.prefix",
            "`slackwater.TOPIC.TABLE`",
            "the prefix of the sink's transactional ids, and the name of the consumer group that \
             records the last transaction. Each query needs its own",
        ),
    ],
    lookup_options: &[],
};

/// Flink's name of a kafka sink with a PRIMARY KEY.
const UPSERT: Alias = Alias {
    name: "upsert-kafka",
    check: |table, usage| match usage {
        Use::Sink if table.primary_key.is_empty() => Err(OptionError::new(
            "connector",
            "'upsert-kafka' replaces messages by their key, and the table has no PRIMARY KEY",
            "add PRIMARY KEY (column) NOT ENFORCED",
        )),
        Use::Sink => Ok(()),
        Use::Source | Use::Lookup => Err(OptionError::new(
            "connector",
            "'upsert-kafka' can only be written: a topic in which messages replace each other can't be read",
            "'connector' = 'kafka' reads each message as a row; ROW_NUMBER() OVER (PARTITION BY key \
             ORDER BY ts DESC) = 1 keeps the last of each key",
        )),
    },
};

#[cfg(feature = "kafka")]
fn read(
    table: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn SourceConnector>, OptionError> {
    let connector = source::kafka::KafkaConnector::new(table, options)?;
    Ok(Arc::new(connector))
}

#[cfg(feature = "kafka")]
fn write(
    table: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn SinkConnector>, OptionError> {
    let format = crate::format::Format::of_sink(options, &table.schema)?;
    let connector = sink::kafka::KafkaConnector::new(table, options, format)?;
    Ok(Arc::new(connector))
}

#[cfg(not(feature = "kafka"))]
fn not_built<T: ?Sized>(
    _table: &crate::table::TableDefinition,
    _options: &crate::options::Options<'_>,
) -> Result<std::sync::Arc<T>, crate::options::OptionError> {
    Err(crate::options::needs_feature("connector", "kafka"))
}
