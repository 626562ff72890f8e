//! The descriptions of options that all database connectors have. They are part of every build.

use crate::options::{OptionKind, option};

/// The options of lookups.
pub(crate) const LOOKUP_OPTIONS: &[OptionKind] = &[
    option(
        "lookup.cache.max_rows",
        "no cache; 10,000 if only `lookup.cache.ttl` is set",
        "how many rows each instance caches, at least 2. A key without rows counts as one",
    ),
    option(
        "lookup.cache.ttl",
        "never",
        "how long a cached answer is used: `'10 s'`",
    ),
    option(
        "lookup.cache",
        "`partial` if one of these is set, else `none`",
        "`none` or `partial` (Flink). For Flink's `full`, write a join without `FOR SYSTEM_TIME`",
    ),
    option(
        "lookup.partial-cache.max-rows",
        "–",
        "means the same as `lookup.cache.max_rows` (Flink)",
    ),
    option(
        "lookup.partial-cache.expire-after-write",
        "–",
        "means the same as `lookup.cache.ttl` (Flink)",
    ),
];

/// The options of sinks.
pub(crate) const SINK_OPTIONS: &[OptionKind] = &[option(
    "sink.name",
    "the declared name",
    "the sink's name in the tables `slackwater_staged` and `slackwater_committed`. Each query \
             needs its own: two queries that write to one database under the same name lose each other's \
             rows",
)];

/// Other names of the option `max-retries`.
pub(crate) const RETRIES: [OptionKind; 2] = [
    option("lookup.max_retries", "–", "means the same as `max-retries`"),
    option(
        "lookup.max-retries",
        "–",
        "means the same as `max-retries` (Flink)",
    ),
];
