//! Options that tables of every database have, described. Known in every build.

use crate::options::{OptionKind, option};

/// The options of lookups.
pub(crate) const LOOKUP_OPTIONS: &[OptionKind] = &[
    option(
        "lookup.cache.max_rows",
        "no cache; 10,000 if only the time is set",
        "rows that each instance keeps, those of keys that have none included; from 2",
    ),
    option(
        "lookup.cache.ttl",
        "never",
        "how long an answer is used, as `'10 s'`",
    ),
    option(
        "lookup.cache",
        "`partial` where one of these is set, else `none`",
        "`none` or `partial` (Flink); `full` is a join without `FOR SYSTEM_TIME`",
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
    "the name by which the tables `slackwater_staged` and `slackwater_committed` know the sink. \
         Each query needs its own: two that write with one name to one database forget each other's \
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
