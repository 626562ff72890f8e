//! Settings of standbys.

use slackwater_engine::time::parse_duration_ns;

use super::setting::Setting;
use super::topic::Topic;
use super::{STANDBY_LAG_MIN_NS, STANDBY_TIMEOUT_MIN_NS};

/// `standby_lag`.
pub(super) const STANDBY_LAG: Setting = Setting {
    name: "standby_lag",
    values: "a duration of at least '20 ms'",
    default: "'1 s'",
    since: "0.1.0",
    topic: Topic::State,
    meaning: "how far what a standby holds may be behind the run that it follows",
    more: "While a standby follows, checkpoints are taken twice in this time, and it stores them \
    ([standbys](standby.md)).",
    set: |settings, value| {
        let lag_ns = parse_duration_ns(value);
        settings.standby_lag_ns = lag_ns.filter(|ns| *ns >= STANDBY_LAG_MIN_NS)?;
        Some(())
    },
};

/// `standby_timeout`.
pub(super) const STANDBY_TIMEOUT: Setting = Setting {
    name: "standby_timeout",
    values: "a duration of at least '3 s'",
    default: "'3 s'",
    since: "0.1.0",
    topic: Topic::State,
    meaning: "how long the host of a run may be silent before its standby on another host continues",
    more: "In whole seconds. A run that is wrongly believed to be gone ends, and commits nothing any more \
    ([standbys](standby.md)).",
    set: |settings, value| {
        let timeout_ns = parse_duration_ns(value);
        settings.standby_timeout_ns = timeout_ns.filter(|ns| *ns >= STANDBY_TIMEOUT_MIN_NS)?;
        Some(())
    },
};
