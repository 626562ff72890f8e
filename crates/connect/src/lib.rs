//! Sources, sinks and formats.
//!
//! In the order in which data meets the modules:
//!
//! ```text
//! elsewhere                 names of other engines, into ours
//! table, options            what the DDL says, checked before anything is opened
//! source ── block ── lines  bytes into blocks, blocks into records
//!            └── format     records into columns (csv, json, combined_log, regex, raw)
//! columns                   files of columns, both ways (parquet, arrow)
//! packing                   files that are packed (.gz, .zst)
//! datagen                   made-up rows
//! mqtt                      the client of the mqtt source and sink
//! kafka                     the client of the kafka source and sink (feature `kafka`)
//! database                  tables of databases, and the clients of sqlite and postgres (features)
//! dead_letters              refused records
//! encode ── sink            columns into text, text to files, sockets, the terminal
//! ```
//!
//! A connector is made from a [`TableDefinition`] by [`source()`] or [`sink()`], which check every
//! option and whether the format can hold the columns. (Kafka's asks a broker which partitions there
//! are, because they limit the instances.) What is wrong with a table is an
//! [`OptionError`]; what goes wrong later is the engine's `Error`, with the file and line, or the
//! peer. Nothing that comes from outside panics, and every buffer has a named limit.
//!
//! Shutdown: `close` of a source and `finish` of a sink release files, sockets and threads; the
//! one exception is the thread that reads standard input, which sleeps until the process ends.

mod elsewhere;
mod options;
mod table;

mod block;
mod columns;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod database;
mod datagen;
mod file_format;
mod format;
mod kafka;
mod lines;
mod mqtt;
mod pacer;
mod packing;
mod postgres;
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

use slackwater_engine::operator::lookup_join::LookupConnector;
use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;

use file_format::FileFormat;
use format::Format;
use options::Options;

pub use dead_letters::{FileDeadLetters, dead_letters};
pub use elsewhere::{Renamed, renamed};
pub use options::{OptionError, known_table_options};
pub use sink::print::printed_rows;
pub use table::{TableDefinition, TableSettings, table_settings};
pub use time::event_time_text;

#[derive(Clone, Copy)]
enum Connector {
    File,
    Stdin,
    Tcp,
    Kafka,
    Sqlite,
    Postgres,
    Mqtt,
    Datagen,
    Blackhole,
    Print,
}

impl Connector {
    fn read(
        options: &Options<'_>,
        known: &[(&'static str, Connector)],
    ) -> Result<(&'static str, Connector), OptionError> {
        options.required("connector", known[0].0)?;
        let numbered = (0..known.len()).map(|index| (known[index].0, index));
        let index = options.choice("connector", &numbered.collect::<Vec<_>>(), 0)?;
        Ok(known[index])
    }
}

/// The names of all connectors, for completion.
pub const CONNECTORS: &[&str] = &[
    "blackhole",
    "datagen",
    "file",
    "kafka",
    "mqtt",
    "postgres",
    "print",
    "sqlite",
    "stdin",
    "tcp",
];

/// The names of all formats, for completion.
pub const FORMATS: &[&str] = &[
    "arrow",
    "combined_log",
    "csv",
    "json",
    "parquet",
    "raw",
    "regex",
];

fn joined(lists: &[&[&'static str]]) -> Vec<&'static str> {
    lists.concat()
}

/// The connector of a table that is read. Checks all options, and finds files; opens nothing.
pub fn source(table: &TableDefinition) -> Result<Arc<dyn SourceConnector>, OptionError> {
    let options = Options::new(&table.options);
    let connectors = [
        ("file", Connector::File),
        ("stdin", Connector::Stdin),
        ("tcp", Connector::Tcp),
        ("kafka", Connector::Kafka),
        ("sqlite", Connector::Sqlite),
        ("postgres", Connector::Postgres),
        ("mqtt", Connector::Mqtt),
        ("datagen", Connector::Datagen),
    ];
    if let Some(only @ ("print" | "blackhole")) = options.text("connector") {
        let reason = format!("{only} can only be written");
        return Err(OptionError::new(
            "connector",
            reason,
            "read from file, stdin, tcp, kafka, mqtt, sqlite, postgres or datagen",
        ));
    }
    if is_upsert_kafka(&options) {
        return Err(OptionError::new(
            "connector",
            "'upsert-kafka' can only be written: a topic in which messages replace each other can't be read",
            "'connector' = 'kafka' reads each message as a row; ROW_NUMBER() OVER (PARTITION BY key ORDER BY ts DESC) = 1 \
             keeps the last of each key",
        ));
    }
    let (name, connector) = Connector::read(&options, &connectors)?;
    match connector {
        Connector::Sqlite => return sqlite_source(table, &options),
        Connector::Postgres => return postgres_source(table, &options),
        _ => {}
    }
    if !matches!(connector, Connector::Kafka | Connector::Mqtt) {
        table::check_no_metadata(table, &format!("a {name} source"))?;
    }
    if let Connector::Datagen = connector {
        let known = joined(&[table::SOURCE_OPTIONS, source::datagen::OPTIONS]);
        options.check_known("a datagen source", &known)?;
        check_settings(table, connector)?;
        return Ok(Arc::new(source::datagen::DatagenConnector::new(
            table, &options,
        )?));
    }
    if let Connector::Kafka = connector {
        return kafka_source(table, &options);
    }
    if let Connector::Mqtt = connector {
        return mqtt_source(table, &options);
    }
    let own = match connector {
        Connector::File => source::file::OPTIONS,
        Connector::Stdin => source::stdin::OPTIONS,
        _ => source::tcp::OPTIONS,
    };
    let (format_name, format_options) = match connector {
        Connector::File => FileFormat::options_of_source(&options)?,
        _ => Format::options_of_source(&options)?,
    };
    let what = format!("a {name} source with format {format_name}");
    options.check_known(
        &what,
        &joined(&[table::SOURCE_OPTIONS, own, format_options]),
    )?;
    check_settings(table, connector)?;
    if let Connector::File = connector {
        let format = FileFormat::of_source(&options, &table.schema)?;
        let connector = source::file::FileConnector::new(table, &options, format)?;
        return Ok(Arc::new(connector));
    }
    let format = Format::of_source(&options, &table.schema)?;
    Ok(match connector {
        Connector::Stdin => Arc::new(source::stdin::StdinConnector {
            schema: Arc::clone(&table.schema),
            format,
        }),
        _ => {
            let connector = source::tcp::TcpConnector::new(table, &options, format)?;
            Arc::new(connector)
        }
    })
}

fn check_settings(table: &TableDefinition, connector: Connector) -> Result<(), OptionError> {
    let settings = table_settings(table)?;
    dead_letters(table)?;
    if settings.unit_of_work_file && !matches!(connector, Connector::File) {
        return Err(OptionError::new(
            "unit_of_work",
            "'file' needs a source of files",
            "leave it out, or use 'connector' = 'file'",
        ));
    }
    Ok(())
}

/// The connector of a table that is written. Checks all options; opens nothing.
pub fn sink(table: &TableDefinition) -> Result<Arc<dyn SinkConnector>, OptionError> {
    let options = Options::new(&table.options);
    let connectors = [
        ("file", Connector::File),
        ("tcp", Connector::Tcp),
        ("kafka", Connector::Kafka),
        ("sqlite", Connector::Sqlite),
        ("postgres", Connector::Postgres),
        ("mqtt", Connector::Mqtt),
        ("print", Connector::Print),
        ("blackhole", Connector::Blackhole),
    ];
    if let Some(only @ ("stdin" | "datagen")) = options.text("connector") {
        let reason = format!("{only} can only be read");
        return Err(OptionError::new(
            "connector",
            reason,
            "write to file, tcp, kafka, mqtt, sqlite, postgres, print or blackhole",
        ));
    }
    if is_upsert_kafka(&options) {
        if table.primary_key.is_empty() {
            return Err(OptionError::new(
                "connector",
                "'upsert-kafka' replaces messages by their key, and the table has no PRIMARY KEY",
                "add PRIMARY KEY (column) NOT ENFORCED",
            ));
        }
        let mut table = table.clone();
        let own = ("connector".to_string(), "kafka".to_string());
        table.options.extend([own]);
        return sink(&table);
    }
    let (name, connector) = Connector::read(&options, &connectors)?;
    table::check_no_metadata(table, "a sink")?;
    sink_latency_target(table)?;
    match connector {
        Connector::Print => {
            options.check_known("a print sink", sink::print::OPTIONS)?;
            return Ok(Arc::new(sink::print::PrintConnector::new(&table.schema)));
        }
        Connector::Blackhole => {
            options.check_known("a blackhole sink", sink::blackhole::OPTIONS)?;
            return Ok(Arc::new(sink::blackhole::BlackholeConnector));
        }
        Connector::Kafka => return kafka_sink(table, &options),
        Connector::Sqlite => return sqlite_sink(table, &options),
        Connector::Postgres => return postgres_sink(table, &options),
        Connector::Mqtt => return mqtt_sink(table, &options),
        _ => {}
    }
    let own = match connector {
        Connector::File => sink::file::OPTIONS,
        _ => sink::tcp::OPTIONS,
    };
    let (format_name, format_options) = match connector {
        Connector::File => FileFormat::options_of_sink(&options)?,
        _ => Format::options_of_sink(&options)?,
    };
    let what = format!("a {name} sink with format {format_name}");
    options.check_known(&what, &joined(&[own, format_options]))?;
    if let Connector::File = connector {
        let format = FileFormat::of_sink(&options, &table.schema)?;
        let connector = sink::file::FileConnector::new(table, &options, format)?;
        return Ok(Arc::new(connector));
    }
    let format = Format::of_sink(&options, &table.schema)?;
    let connector = sink::tcp::TcpConnector::new(table, &options, format)?;
    Ok(Arc::new(connector))
}

/// Flink's name of a kafka sink with a PRIMARY KEY.
fn is_upsert_kafka(options: &Options<'_>) -> bool {
    let name = options.text("connector");
    name.is_some_and(|name| name.eq_ignore_ascii_case("upsert-kafka"))
}

/// A format's options, but for those that are of files.
fn message_options(all: &'static [&'static str]) -> Vec<&'static str> {
    let of_files = ["csv.header", "csv.comment"];
    let kept = all.iter().filter(|name| !of_files.contains(name));
    kept.copied().collect()
}

fn mqtt_source(
    table: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn SourceConnector>, OptionError> {
    let (format_name, format_options) = Format::options_of_source(options)?;
    let what = format!("an mqtt source with format {format_name}");
    let own = [table::SOURCE_OPTIONS, mqtt::SOURCE_OPTIONS].concat();
    options.check_known(&what, &[own, message_options(format_options)].concat())?;
    check_settings(table, Connector::Mqtt)?;
    let connector = source::mqtt::MqttConnector::new(table, options)?;
    Ok(Arc::new(connector))
}

fn mqtt_sink(
    table: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn SinkConnector>, OptionError> {
    let (format_name, format_options) = Format::options_of_sink(options)?;
    let what = format!("an mqtt sink with format {format_name}");
    let own = mqtt::SINK_OPTIONS.to_vec();
    options.check_known(&what, &[own, message_options(format_options)].concat())?;
    let format = Format::of_sink(options, &table.schema)?;
    let connector = sink::mqtt::MqttConnector::new(table, options, format)?;
    Ok(Arc::new(connector))
}

#[cfg(feature = "kafka")]
fn kafka_source(
    table: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn SourceConnector>, OptionError> {
    let (format_name, format_options) = Format::options_of_source(options)?;
    let what = format!("a kafka source with format {format_name}");
    let known = [
        table::SOURCE_OPTIONS.to_vec(),
        kafka::SOURCE_OPTIONS.to_vec(),
        kafka::settings::format_options(format_options),
        kafka::settings::property_names(table),
    ];
    options.check_known(&what, &known.concat())?;
    check_settings(table, Connector::Kafka)?;
    let connector = source::kafka::KafkaConnector::new(table, options)?;
    Ok(Arc::new(connector))
}

#[cfg(feature = "kafka")]
fn kafka_sink(
    table: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn SinkConnector>, OptionError> {
    let (format_name, format_options) = Format::options_of_sink(options)?;
    let what = format!("a kafka sink with format {format_name}");
    let known = [
        kafka::SINK_OPTIONS.to_vec(),
        kafka::settings::format_options(format_options),
        kafka::settings::property_names(table),
    ];
    options.check_known(&what, &known.concat())?;
    let format = Format::of_sink(options, &table.schema)?;
    let connector = sink::kafka::KafkaConnector::new(table, options, format)?;
    Ok(Arc::new(connector))
}

#[cfg(not(feature = "kafka"))]
fn kafka_source(
    _table: &TableDefinition,
    _options: &Options<'_>,
) -> Result<Arc<dyn SourceConnector>, OptionError> {
    Err(kafka::not_built())
}

#[cfg(not(feature = "kafka"))]
fn kafka_sink(
    _table: &TableDefinition,
    _options: &Options<'_>,
) -> Result<Arc<dyn SinkConnector>, OptionError> {
    Err(kafka::not_built())
}

/// The connector of a table in which rows are looked up by their keys; `None` for one that is only read or
/// written. Checks all options; opens nothing.
pub fn lookup(table: &TableDefinition) -> Result<Option<Arc<dyn LookupConnector>>, OptionError> {
    let options = Options::new(&table.options);
    match options.text("connector") {
        Some(name) if name.eq_ignore_ascii_case("sqlite") => sqlite_lookup(table, &options),
        Some(name) if name.eq_ignore_ascii_case("postgres") => postgres_lookup(table, &options),
        _ => Ok(None),
    }
}

/// What is made of a table of a database.
macro_rules! database {
    ($feature:literal, $module:ident, $source:ident, $sink:ident, $lookup:ident, $writers_max:expr) => {
        #[cfg(feature = $feature)]
        fn $source(
            table: &TableDefinition,
            options: &Options<'_>,
        ) -> Result<Arc<dyn SourceConnector>, OptionError> {
            let table = $module::table(table, options)?;
            Ok(Arc::new(database::DatabaseSource(table)))
        }

        #[cfg(feature = $feature)]
        fn $sink(
            table: &TableDefinition,
            options: &Options<'_>,
        ) -> Result<Arc<dyn SinkConnector>, OptionError> {
            let table = $module::table(table, options)?;
            Ok(Arc::new(database::DatabaseSink::new(&table, $writers_max)))
        }

        #[cfg(feature = $feature)]
        fn $lookup(
            table: &TableDefinition,
            options: &Options<'_>,
        ) -> Result<Option<Arc<dyn LookupConnector>>, OptionError> {
            let table = $module::table(table, options)?;
            Ok(Some(Arc::new(database::DatabaseLookup(table))))
        }

        #[cfg(not(feature = $feature))]
        fn $source(
            _table: &TableDefinition,
            _options: &Options<'_>,
        ) -> Result<Arc<dyn SourceConnector>, OptionError> {
            Err($module::not_built())
        }

        #[cfg(not(feature = $feature))]
        fn $sink(
            _table: &TableDefinition,
            _options: &Options<'_>,
        ) -> Result<Arc<dyn SinkConnector>, OptionError> {
            Err($module::not_built())
        }

        #[cfg(not(feature = $feature))]
        fn $lookup(
            _table: &TableDefinition,
            _options: &Options<'_>,
        ) -> Result<Option<Arc<dyn LookupConnector>>, OptionError> {
            Err($module::not_built())
        }
    };
}

// A file of SQLite has one writer at a time.
database!(
    "sqlite",
    sqlite,
    sqlite_source,
    sqlite_sink,
    sqlite_lookup,
    1
);
database!(
    "postgres",
    postgres,
    postgres_source,
    postgres_sink,
    postgres_lookup,
    usize::MAX
);

/// What the 99th percentile of a sink's latency is to be below, in nanoseconds: its option
/// `latency_target`, if it has one.
pub fn sink_latency_target(table: &TableDefinition) -> Result<Option<u64>, OptionError> {
    let options = Options::new(&table.options);
    match options.duration_ns("latency_target")? {
        Some(0) => Err(OptionError::new(
            "latency_target",
            "no row leaves in no time",
            "write a duration such as '20 ms'",
        )),
        target => Ok(target),
    }
}

/// The connector that prints rows to the terminal: the sink of a `SELECT` without one.
pub fn print(schema: &arrow_schema::SchemaRef) -> Arc<dyn SinkConnector> {
    Arc::new(sink::print::PrintConnector::new(schema))
}

#[cfg(test)]
mod tests;
