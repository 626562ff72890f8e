//! Code that the kafka source and sink share: options, the client, its queues.
//!
//! ```text
//! settings               options, and the properties that librdkafka gets
//! client ── queue        a client whose events wake the worker
//!        └─ presence     reports once that no broker is reachable, and once that one is back
//! partitions ── watcher  which partitions exist, and in which range they are read
//! ```
//!
//! librdkafka has threads of its own: one for the client and one for each broker. They fill and
//! empty queues, and wake the worker when one of them is no longer empty; the worker never waits
//! for them.

pub(crate) mod client;
pub(crate) mod partitions;
pub(crate) mod presence;
pub(crate) mod queue;
pub(crate) mod settings;
pub(crate) mod watcher;

#[cfg(test)]
mod tests;
