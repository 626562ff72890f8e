//! Settings of standbys.

use slackwater_engine::time::parse_duration_ns;

use super::STANDBY_LAG_MIN_NS;
use super::setting::Setting;
use super::topic::Topic;

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
