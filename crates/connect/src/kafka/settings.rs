//! A kafka table's options, checked without a broker.

use std::time::Duration;

use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::KafkaError;

use crate::format::Format;
use crate::options::{OptionError, Options};
use crate::table::TableDefinition;

type Result<T> = std::result::Result<T, OptionError>;

/// The most topics of one table. Each is requested separately, and nobody lists more by hand.
const TOPICS_MAX: usize = 64;

/// How often a source looks for new partitions: Flink's default.
const DISCOVERY_DEFAULT_NS: u64 = 5 * 60 * 1_000_000_000;

/// How long a broker waits for the end of a transaction: the most that it allows by default. Checkpoints must
/// be more frequent.
const TRANSACTION_TIMEOUT_DEFAULT: Duration = Duration::from_secs(15 * 60);

/// Bytes of 'transactional.id.prefix': brokers allow 32 KiB, which nobody could read.
const TRANSACTIONAL_ID_BYTES_MAX: usize = 200;

/// Options with this prefix are passed to librdkafka.
const PREFIX: &str = "properties.";

/// Properties that the engine sets itself, and what to write instead.
const OWN: &[(&str, &str)] = &[
    (
        "group.id",
        "offsets belong to the query, not to a group: say where it starts with 'scan.startup.mode'",
    ),
    ("group.instance.id", "there is no consumer group"),
    ("group.protocol", "there is no consumer group"),
    (
        "partition.assignment.strategy",
        "the query assigns partitions to its instances",
    ),
    ("enable.auto.commit", "offsets are not committed"),
    ("enable.auto.offset.store", "offsets are not committed"),
    (
        "auto.offset.reset",
        "say where the query starts with 'scan.startup.mode'; rows that are gone are an error",
    ),
    (
        "enable.partition.eof",
        "end the query with 'scan.bounded.mode' = 'latest-offset'",
    ),
    (
        "enable.idempotence",
        "it is always on, so that a retry neither doubles nor reorders rows",
    ),
    ("acks", "all replicas acknowledge, or a row could be lost"),
    (
        "request.required.acks",
        "all replicas acknowledge, or a row could be lost",
    ),
    (
        "transactional.id",
        "a sink has several: write how they begin, 'transactional.id.prefix'",
    ),
    (
        "delivery.report.only.error",
        "every row's delivery is checked",
    ),
    (
        "metadata.broker.list",
        "write 'properties.bootstrap.servers'",
    ),
];

/// Where a source starts to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Startup {
    Earliest,
    Latest,
    /// The first message of this time, in milliseconds, or a later one.
    Timestamp(i64),
    /// Partition and offset; other partitions are read from their first message.
    Offsets(Vec<(i32, i64)>),
}

/// The broker and the topics of a table.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    /// `properties.bootstrap.servers`, as it was written.
    pub(crate) servers: String,
    /// The topics, sorted and without duplicates.
    pub(crate) topics: Vec<String>,
    properties: Vec<(String, String)>,
}

impl Cluster {
    pub(crate) fn read(options: &Options<'_>) -> Result<Cluster> {
        let topic = options.required("topic", "orders")?;
        let mut topics: Vec<String> = topic.split(';').map(|name| name.trim().into()).collect();
        topics.sort();
        topics.dedup();
        let is_name = |name: &String| {
            let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            !name.is_empty() && name.len() <= 249 && name.chars().all(fits)
        };
        if let Some(wrong) = topics.iter().find(|name| !is_name(name)) {
            let hint = "write letters, digits, '.', '_' and '-', and ';' between topics";
            return Err(OptionError::new(
                "topic",
                format!("'{wrong}' is not a valid topic name"),
                hint,
            ));
        }
        if topics.len() > TOPICS_MAX {
            let reason = format!("more than {TOPICS_MAX} topics");
            return Err(OptionError::new("topic", reason, "use several tables"));
        }
        let servers = options.required("properties.bootstrap.servers", "127.0.0.1:9092")?;
        let mut properties = vec![];
        for (name, value) in options.beginning_with(PREFIX) {
            let property = &name[PREFIX.len()..];
            if let Some((_, hint)) = OWN.iter().find(|(own, _)| *own == property) {
                return Err(OptionError::new(name, "is set by the engine", *hint));
            }
            properties.push((property.to_string(), value.to_string()));
        }
        let cluster = Cluster {
            servers: servers.to_string(),
            topics,
            properties,
        };
        cluster
            .config()
            .create_native_config()
            .map_err(|error| match error {
                KafkaError::ClientConfig(_, reason, property, _) => {
                    let hint = if reason.contains("libzstd not available") {
                        "build with Zstandard: cargo build --release --features kafka-zstd"
                    } else if reason.contains("not available at build time") {
                        "build with TLS: cargo build --release --features kafka-tls"
                    } else {
                        "properties are those of librdkafka, which has no JAAS and no key stores: \
                     sasl.username, ssl.ca.location"
                    };
                    OptionError::new(format!("{PREFIX}{property}"), reason, hint)
                }
                error => OptionError::new("properties.bootstrap.servers", error.to_string(), ""),
            })?;
        Ok(cluster)
    }

    /// The configuration of every client of this table.
    pub(crate) fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("client.id", "slackwater");
        for (property, value) in &self.properties {
            config.set(property, value);
        }
        // Important problems arrive as errors; the rest is only logged by the library.
        config.set_log_level(RDKafkaLogLevel::Critical);
        config
    }

    /// How long a broker waits for the end of a transaction.
    pub(crate) fn transaction_timeout(&self) -> Duration {
        let mut properties = self.properties.iter();
        let set = properties.find(|(name, _)| name == "transaction.timeout.ms");
        // librdkafka has checked the number with the other properties.
        let timeout_ms = set.and_then(|(_, value)| value.trim().parse().ok());
        timeout_ms.map_or(TRANSACTION_TIMEOUT_DEFAULT, Duration::from_millis)
    }

    /// Whether the user has set this property.
    pub(crate) fn sets(&self, property: &str) -> bool {
        self.properties.iter().any(|(name, _)| name == property)
    }
}

/// A source's options apart from its cluster.
#[derive(Debug, Clone)]
pub(crate) struct Scan {
    pub(crate) startup: Startup,
    /// Whether the source ends at the messages that are last when it starts.
    pub(crate) bounded: bool,
    /// How often to look for new partitions; `None`: never.
    pub(crate) discovery_ns: Option<u64>,
}

impl Scan {
    pub(crate) fn read(options: &Options<'_>, topics: usize) -> Result<Scan> {
        let bounded = [("unbounded", false), ("latest-offset", true)];
        let bounded = options.choice("scan.bounded.mode", &bounded, false)?;
        let interval = "scan.topic-partition-discovery.interval";
        let interval_ns = match options.text(interval) {
            Some("0") => Some(0),
            _ => options.duration_ns(interval)?,
        };
        let discovery_ns = interval_ns.unwrap_or(DISCOVERY_DEFAULT_NS);
        Ok(Scan {
            startup: startup(options, topics)?,
            bounded,
            discovery_ns: (!bounded && discovery_ns > 0).then_some(discovery_ns),
        })
    }
}

fn startup(options: &Options<'_>, topics: usize) -> Result<Startup> {
    const MODE: &str = "scan.startup.mode";
    const TIMESTAMP: &str = "scan.startup.timestamp-millis";
    const OFFSETS: &str = "scan.startup.specific-offsets";
    if let Some("group-offsets") = options.text(MODE) {
        let hint = "write 'earliest-offset', 'latest-offset', 'timestamp' or 'specific-offsets'";
        return Err(OptionError::new(MODE, "there is no consumer group", hint));
    }
    let modes = [
        ("earliest-offset", 0),
        ("latest-offset", 1),
        ("timestamp", 2),
        ("specific-offsets", 3),
    ];
    let mode = options.choice(MODE, &modes, 0)?;
    for (option, its_mode) in [(TIMESTAMP, 2), (OFFSETS, 3)] {
        if mode != its_mode && options.text(option).is_some() {
            let name = modes[its_mode as usize].0;
            let hint = format!("add '{MODE}' = '{name}', or leave it out");
            return Err(OptionError::new(
                option,
                format!("needs {MODE} '{name}'"),
                hint,
            ));
        }
    }
    match mode {
        0 => Ok(Startup::Earliest),
        1 => Ok(Startup::Latest),
        2 => {
            options.required(TIMESTAMP, "1767225600000")?;
            let time = options.number(TIMESTAMP, None, 0..=i64::MAX as u64)?;
            Ok(Startup::Timestamp(time.unwrap_or_default() as i64))
        }
        _ => {
            let text = options.required(OFFSETS, "partition:0,offset:42;partition:1,offset:300")?;
            if topics > 1 {
                let hint = "use a table for each topic";
                return Err(OptionError::new(OFFSETS, "is for one topic", hint));
            }
            specific_offsets(text).map(Startup::Offsets).ok_or_else(|| {
                let reason = format!("'{text}' is not a list of offsets");
                OptionError::new(
                    OFFSETS,
                    reason,
                    "write 'partition:0,offset:42;partition:1,offset:300'",
                )
            })
        }
    }
}

fn specific_offsets(text: &str) -> Option<Vec<(i32, i64)>> {
    let mut offsets = vec![];
    for pair in text.trim_end_matches(';').split(';') {
        let (partition, offset) = pair.split_once(',')?;
        let partition = partition
            .trim()
            .strip_prefix("partition:")?
            .trim()
            .parse::<u32>()
            .ok()?;
        let offset = offset
            .trim()
            .strip_prefix("offset:")?
            .trim()
            .parse::<u64>()
            .ok()?;
        let partition = i32::try_from(partition).ok()?;
        if offsets.iter().any(|(known, _)| *known == partition) {
            return None;
        }
        offsets.push((partition, i64::try_from(offset).ok()?));
    }
    Some(offsets)
}

/// A sink's options apart from its cluster.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    /// Indices of the columns that make up the key.
    pub(crate) columns: Vec<usize>,
    pub(crate) format: Format,
}

impl Keys {
    /// The key of a sink's messages, if the options give it one.
    pub(crate) fn read(table: &TableDefinition, options: &Options<'_>) -> Result<Option<Keys>> {
        let columns = match (options.text("key.fields"), options.text("key.format")) {
            (Some(text), _) => Keys::named(table, text)?,
            (None, _) if !table.primary_key.is_empty() => table.primary_key.clone(),
            (None, None) => return Ok(None),
            (None, Some(_)) => {
                return Err(OptionError::new(
                    "key.format",
                    "there is no key",
                    "name its columns with 'key.fields' = 'a;b', or a PRIMARY KEY",
                ));
            }
        };
        let is_primary = columns.len() == table.primary_key.len()
            && columns
                .iter()
                .all(|column| table.primary_key.contains(column));
        if !table.primary_key.is_empty() && !is_primary {
            return Err(OptionError::new(
                "key.fields",
                "a message replaces the last one of the same key, so the key is the PRIMARY KEY",
                "leave the option out",
            ));
        }
        let fields = table
            .schema
            .project(&columns)
            .map_err(|error| OptionError::new("key.fields", error.to_string(), ""))?;
        let name = options
            .text("key.format")
            .or(options.text("format"))
            .unwrap_or("csv");
        let chosen = [("format".to_string(), name.to_string())].into();
        let format = Format::of_sink(&Options::new(&chosen), &fields).map_err(|mut error| {
            error.option = Some("key.format".into());
            error
        })?;
        Ok(Some(Keys { columns, format }))
    }

    /// The indices of the columns in `key.fields`.
    fn named(table: &TableDefinition, text: &str) -> Result<Vec<usize>> {
        let mut columns = vec![];
        for name in text.split(';').map(str::trim) {
            let Ok(index) = table.schema.index_of(name) else {
                let known = table
                    .schema
                    .fields()
                    .iter()
                    .map(|field| field.name().as_str());
                let hint = format!("the columns are: {}", known.collect::<Vec<_>>().join(", "));
                return Err(OptionError::new(
                    "key.fields",
                    format!("there is no column '{name}'"),
                    hint,
                ));
            };
            if columns.contains(&index) {
                let reason = format!("names column '{name}' twice");
                return Err(OptionError::new("key.fields", reason, "name it once"));
            }
            columns.push(index);
        }
        Ok(columns)
    }
}

/// How a sink delivers its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivering {
    /// In transactions, if the query takes checkpoints.
    pub(crate) exactly_once: bool,
    /// The table requests transactions explicitly, so it is an error if there can be none.
    pub(crate) is_asked: bool,
    /// The prefix of the transactional ids, and the name of the marker's group.
    pub(crate) prefix: String,
}

impl Delivering {
    pub(crate) fn read(table: &TableDefinition, options: &Options<'_>) -> Result<Delivering> {
        const PREFIX: &str = "transactional.id.prefix";
        let choices = [("exactly_once", true), ("at_least_once", false)];
        let prefix = match options.text(PREFIX) {
            Some(prefix) => prefix.to_string(),
            None => {
                let topic = options.text("topic").unwrap_or_default();
                format!("slackwater.{topic}.{}", table.name)
            }
        };
        let fits = !prefix.is_empty() && !prefix.contains(char::is_control);
        if !fits || prefix.len() > TRANSACTIONAL_ID_BYTES_MAX {
            let reason = format!("'{prefix}' can't begin the names of transactions");
            let hint = format!(
                "write 1 to {TRANSACTIONAL_ID_BYTES_MAX} bytes of text, as in '{PREFIX}' = 'totals'"
            );
            return Err(OptionError::new(PREFIX, reason, hint));
        }
        Ok(Delivering {
            exactly_once: options.choice("delivery", &choices, true)?,
            is_asked: options
                .text("delivery")
                .is_some_and(|text| text.eq_ignore_ascii_case("exactly_once")),
            prefix,
        })
    }
}
