//! The setting of copies of a query.

use slackwater_control::place::Places;

use super::setting::Setting;
use super::topic::Topic;
use super::values::chosen;

/// `copies`.
pub(super) const COPIES: Setting = Setting {
    name: "copies",
    values: "'none', 'nodes' or 'hosts'",
    default: "'none'",
    since: "0.1.0",
    topic: Topic::Parallelism,
    meaning: "whether each NUMA node or host has a copy of the query",
    more: "Each copy reads a share of the partitions, and does what needs no other rows and the first phase \
    of aggregations on its node or host; one second phase gives one answer. `parallelism` and `workers` are \
    divided among the copies ([more](internals/placement.md#copies)).",
    set: |settings, value| {
        let choices = [
            ("none", None),
            ("nodes", Some(Places::Nodes)),
            ("hosts", Some(Places::Hosts)),
        ];
        settings.copies = chosen(value, &choices)?;
        Some(())
    },
};
