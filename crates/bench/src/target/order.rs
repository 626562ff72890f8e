//! What the generator is told and what it answers, and what a point comes to; all of it as JSON.

use serde::{Deserialize, Serialize};

use super::query::Query;
use super::records::Schedule;
use super::setting::Setting;
use crate::common::{DISTURBED_MAX, Latency, Usage};

/// CPU time of other processes, in per cent of a core, above which a point counts as disturbed: what
/// an idle system does, and the noise of counting it, are far below.
pub const OTHERS_PERCENT_MAX: f64 = 15.0;

/// What is measured in a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Who runs it, and how.
    pub setting: Setting,
    /// What is run.
    pub query: Query,
    /// Records per second.
    pub rate_per_s: u64,
}

/// What the generator is to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// What reads its records.
    pub query: Query,
    /// Records per second.
    pub rate_per_s: u64,
    /// Records flow for so long before it counts.
    pub warm_up_ns: u64,
    /// How long it counts.
    pub time_ns: u64,
    /// The core of its threads.
    pub core: usize,
}

impl Order {
    /// When its records are due.
    pub fn schedule(&self) -> Schedule {
        Schedule {
            rate_per_s: self.rate_per_s,
        }
    }
}

/// What the sender did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Records sent, those before and behind the interval included.
    pub records: u64,
    /// Records that were due and not sent, since those before them were not taken.
    pub unsent: u64,
    /// Of the records sent, how many the filter keeps,
    pub kept: u64,
    /// and the sum of their stamps, that wraps.
    pub kept_stamps: u64,
}

/// What the receiver saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Rows.
    pub rows: u64,
    /// The sum of their stamps, that wraps: of a filter's rows.
    pub stamps: u64,
    /// The records that they count: of a window's rows.
    pub records: u64,
}

/// What the generator answers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generated {
    /// What was sent.
    pub sent: Sent,
    /// What came back; all of it, or the generator fails.
    pub received: Received,
    /// Rows that belong to the interval.
    pub rows: u64,
    /// From the time that a row's last record was due to the row's receipt; nothing without rows.
    pub latency: Option<Latency>,
    /// How long after they were due the sender's writes began.
    pub lag: Latency,
    /// Reads of the receiver, over the whole run.
    pub reads: u64,
}

/// What the engine says of itself, over the whole run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Own {
    /// Its p99, from the ingest time on.
    pub p99_us: Option<f64>,
    /// Its median.
    pub p50_us: Option<f64>,
    /// Whether it thinks that it met its target, where it has one.
    pub target_met: Option<bool>,
    /// How it ran.
    pub plan: serde_json::Value,
    /// What it said on standard error.
    pub said: String,
}

/// A point as one round measured it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// What was measured.
    pub spec: Spec,
    /// In which round.
    pub round: u32,
    /// What the process that runs the query used.
    pub usage: Usage,
    /// What all others used meanwhile, the generator excepted, in per cent of a core.
    pub others_percent: f64,
    /// What the generator measured.
    pub generated: Generated,
    /// What the engine measured; nothing of a program written by hand.
    pub own: Option<Own>,
}

impl Point {
    /// How much other processes disturbed, as a multiple of what passes: they had the core that the
    /// query's process wanted, or kept the machine from being as it is alone. (A core that others
    /// keep awake makes wake-ups cheaper.)
    pub fn disturbance(&self) -> f64 {
        let waited = self.usage.disturbed() / DISTURBED_MAX;
        waited.max(self.others_percent / OTHERS_PERCENT_MAX)
    }

    /// Whether that was too much.
    pub fn is_disturbed(&self) -> bool {
        self.disturbance() > 1.0
    }
}
