//! What the kafka source and sink have in common: options, the client, its queues.
//!
//! ```text
//! settings               options, and the properties that librdkafka gets
//! client ── queue        a client whose events ring the worker
//!        └─ presence     a broker that is away is said once, and once that it is back
//! partitions ── watcher  which partitions there are, and from where to where they are read
//! ```
//!
//! librdkafka has threads of its own: one for the client and one for each broker. They fill and
//! empty queues, and ring the worker when one of them is no longer empty; the worker never waits
//! for them. Without the feature `kafka` there is only the entry in the table of connectors.

#[cfg(feature = "kafka")]
pub(crate) mod client;
#[cfg(feature = "kafka")]
pub(crate) mod partitions;
#[cfg(feature = "kafka")]
pub(crate) mod presence;
#[cfg(feature = "kafka")]
pub(crate) mod queue;
#[cfg(feature = "kafka")]
pub(crate) mod settings;
#[cfg(feature = "kafka")]
pub(crate) mod watcher;

#[cfg(all(test, feature = "kafka"))]
mod tests;

use std::sync::Arc;

use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;

use crate::connector::ConnectorKind;
#[cfg(not(feature = "kafka"))]
use crate::connector::not_built;
use crate::file_format::Formats;
use crate::options::{OptionError, Options, option};
use crate::table::TableDefinition;
#[cfg(feature = "kafka")]
use crate::{sink, source};

/// The entry in the table of connectors.
pub(crate) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "kafka",
    aliases: &[UPSERT],
    feature: Some("kafka"),
    source: Some(read),
    sink: Some(write),
    lookup: None,
    formats: Formats::Messages,
    has_metadata: true,
    options: &[
        option(
            "topic",
            "required",
            "the topic; a source reads several: `'orders;returns'`",
        ),
        option(
            "properties.bootstrap.servers",
            "required",
            "`'host:port'`, several with commas",
        ),
        option(
            "properties.",
            "librdkafka's",
            "any [property of \
             librdkafka](https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md): \
             `'properties.fetch.wait.max.ms' = '5000'`, `'properties.security.protocol' = 'SASL_SSL'`. \
             Those of Java alone (JAAS, key stores) are rejected, and so are those that the engine sets \
             itself (groups, commits, acknowledgements), each with what to write instead",
        ),
    ],
    source_options: &[
        option(
            "scan.startup.mode",
            "`earliest-offset`",
            "also `latest-offset`, `timestamp`, `specific-offsets`",
        ),
        option(
            "scan.startup.timestamp-millis",
            "–",
            "with `timestamp`: the first message of this time (milliseconds since 1970) or later",
        ),
        option(
            "scan.startup.specific-offsets",
            "–",
            "with `specific-offsets`: `'partition:0,offset:42;partition:1,offset:300'`; other partitions \
             begin at their first message",
        ),
        option(
            "scan.bounded.mode",
            "`unbounded`",
            "`latest-offset`: the source ends with what is there when it begins",
        ),
        option(
            "scan.topic-partition-discovery.interval",
            "`5 min`",
            "how often new partitions are looked for; `'0'`: never. A bounded source never does",
        ),
    ],
    sink_options: &[
        option(
            "key.fields",
            "no key",
            "columns of the message's key: `'customer'`, `'customer;region'`",
        ),
        option(
            "key.format",
            "`format`",
            "`csv` or `json`; a key of one column as `csv` is its text",
        ),
        option(
            "delivery",
            "`exactly_once`",
            "`exactly_once`, `at_least_once`: what becomes of rows when a query resumes from a \
             checkpoint. Written out, `exactly_once` refuses to run without checkpoints",
        ),
        option(
            "transactional.id.prefix",
            "`slackwater.TOPIC.TABLE`",
            "how the names of the sink's transactions begin, and the name of the group that notes the \
             last of them. Each query needs its own",
        ),
    ],
    lookup_options: &[],
};

/// Flink's name of a kafka sink with a PRIMARY KEY.
const UPSERT: &str = "upsert-kafka";

fn is_upsert(options: &Options<'_>) -> bool {
    let name = options.text("connector");
    name.is_some_and(|name| name.eq_ignore_ascii_case(UPSERT))
}

fn read(
    table: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn SourceConnector>, OptionError> {
    if is_upsert(options) {
        return Err(OptionError::new(
            "connector",
            "'upsert-kafka' can only be written: a topic in which messages replace each other can't be read",
            "'connector' = 'kafka' reads each message as a row; ROW_NUMBER() OVER (PARTITION BY key ORDER BY ts DESC) = 1 \
             keeps the last of each key",
        ));
    }
    #[cfg(feature = "kafka")]
    return Ok(Arc::new(source::kafka::KafkaConnector::new(
        table, options,
    )?));
    #[cfg(not(feature = "kafka"))]
    not_built(table, options)
}

fn write(
    table: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn SinkConnector>, OptionError> {
    if is_upsert(options) && table.primary_key.is_empty() {
        return Err(OptionError::new(
            "connector",
            "'upsert-kafka' replaces messages by their key, and the table has no PRIMARY KEY",
            "add PRIMARY KEY (column) NOT ENFORCED",
        ));
    }
    #[cfg(feature = "kafka")]
    {
        let format = crate::format::Format::of_sink(options, &table.schema)?;
        let connector = sink::kafka::KafkaConnector::new(table, options, format)?;
        Ok(Arc::new(connector))
    }
    #[cfg(not(feature = "kafka"))]
    not_built(table, options)
}
