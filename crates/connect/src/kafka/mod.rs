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
//! for them. The names of options are known without the feature `kafka`, everything else is not.

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

/// Options of a source beside those of every source.
#[cfg(any(feature = "kafka", test))]
pub(crate) const SOURCE_OPTIONS: &[&str] = &[
    "format",
    "topic",
    "properties.bootstrap.servers",
    "scan.startup.mode",
    "scan.startup.timestamp-millis",
    "scan.startup.specific-offsets",
    "scan.bounded.mode",
    "scan.topic-partition-discovery.interval",
];

/// Options of a sink.
#[cfg(any(feature = "kafka", test))]
pub(crate) const SINK_OPTIONS: &[&str] = &[
    "connector",
    "latency_target",
    "format",
    "topic",
    "properties.bootstrap.servers",
    "key.fields",
    "key.format",
    "delivery",
    "transactional.id.prefix",
];

/// What a build without librdkafka says.
#[cfg(not(feature = "kafka"))]
pub(crate) fn not_built() -> crate::OptionError {
    crate::OptionError::new(
        "connector",
        "this program was built without kafka",
        "build it with: cargo build --release --features kafka",
    )
}
