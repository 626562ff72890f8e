//! The settings of queries on several hosts.

use std::fmt;

use slackwater_engine::time::parse_duration_ns;

use super::setting::Setting;
use super::topic::Topic;
use super::values::unless_none;
use super::{HOST_TIMEOUT_MIN_NS, HOSTS_AFTER_MAX_NS, Rescale};

/// `host_patience`.
pub(super) const HOST_PATIENCE: Setting = Setting {
    name: "host_patience",
    values: "a duration",
    default: "'1 min'",
    since: "0.1.0",
    topic: Topic::Parallelism,
    meaning: "how long a query on several hosts waits for hosts to join",
    more: "At the start, and when one was lost: then the query waits until enough are there again, and \
    ends with an error if that takes longer ([several hosts](cluster.md)).",
    set: |settings, value| {
        settings.host_patience_ns = parse_duration_ns(value)?;
        Some(())
    },
};

/// `host_timeout`.
pub(super) const HOST_TIMEOUT: Setting = Setting {
    name: "host_timeout",
    values: "a duration of at least '500 ms'",
    default: "'3 s'",
    since: "0.1.0",
    topic: Topic::Parallelism,
    meaning: "after how long without a sign of life a host is lost",
    more: "A host that can't reach the orchestrator for so long kills its worker processes. Shorter times \
    find a cut network sooner, and lose a host that is only slow ([several hosts](cluster.md)).",
    set: |settings, value| {
        let timeout_ns = parse_duration_ns(value)?;
        settings.host_timeout_ns = Some(timeout_ns).filter(|ns| *ns >= HOST_TIMEOUT_MIN_NS)?;
        Some(())
    },
};

/// How many hosts a query is to run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hosts {
    /// It doesn't run on fewer.
    pub min: usize,
    /// It doesn't use more.
    pub max: usize,
}

impl Hosts {
    /// Reads `3`, or `1..3`; `None` if it is something else.
    pub fn parse(text: &str) -> Option<Hosts> {
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        let (min, max) = (min.trim().parse().ok()?, max.trim().parse().ok()?);
        (0 < min && min <= max).then_some(Hosts { min, max })
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min == self.max {
            true => write!(f, "{}", self.min),
            false => write!(f, "{}..{}", self.min, self.max),
        }
    }
}

/// `hosts`.
pub(super) const HOSTS: Setting = Setting {
    name: "hosts",
    values: "a number, such as '3', a range, such as '1..3', or 'none'",
    default: "'none'",
    since: "0.1.0",
    topic: Topic::Parallelism,
    meaning: "on how many hosts a job of a server runs, with that of the server",
    more: "The server needs `--listen`, and agents that join it ([jobs on several \
    hosts](server.md#jobs-on-several-hosts)). `slackwater run` has the option `--hosts` instead.",
    set: |settings, value| {
        settings.hosts = unless_none(value, Hosts::parse)?;
        Some(())
    },
};

/// `hosts_fewer_after`.
pub(super) const HOSTS_FEWER_AFTER: Setting = Setting {
    name: "hosts_fewer_after",
    values: "a duration up to '1 h'",
    default: "'5 min'",
    since: "0.1.0",
    topic: Topic::Parallelism,
    meaning: "how long fewer hosts would have to do before a query on several hosts wants fewer",
    more: "Whoever starts and stops hosts reads how many are wanted from the metrics ([several \
    hosts](cluster.md#as-many-hosts-as-it-takes)).",
    set: |settings, value| {
        settings.hosts_fewer_after_ns = window_ns(value)?;
        Some(())
    },
};

/// `hosts_more_after`.
pub(super) const HOSTS_MORE_AFTER: Setting = Setting {
    name: "hosts_more_after",
    values: "a duration up to '1 h'",
    default: "'30 s'",
    since: "0.1.0",
    topic: Topic::Parallelism,
    meaning: "how long hosts have to be too busy before a query on several hosts wants more",
    more: "Shorter times follow bursts, longer ones ignore them ([several \
    hosts](cluster.md#as-many-hosts-as-it-takes)).",
    set: |settings, value| {
        settings.hosts_more_after_ns = window_ns(value)?;
        Some(())
    },
};

fn window_ns(value: &str) -> Option<u64> {
    parse_duration_ns(value).filter(|ns| *ns <= HOSTS_AFTER_MAX_NS)
}

/// `rescale`.
pub(super) const RESCALE: Setting = Setting {
    name: "rescale",
    values: "'off' or 'auto'",
    default: "'off'",
    since: "0.1.0",
    topic: Topic::Parallelism,
    meaning: "whether a query on several hosts begins to use hosts that join while it runs",
    more: "With `'auto'`, ten seconds after the last one has joined: the query is saved, and goes on with \
    all of them, up to `--hosts MIN..MAX`. With `'off'`, at its next restart ([several hosts](cluster.md)).",
    set: |settings, value| {
        settings.rescale = match value {
            "off" => Rescale::Off,
            "auto" => Rescale::Auto,
            _ => return None,
        };
        Some(())
    },
};
