//! Orders to the generator and its answers, and the measurements of a point; all of them as JSON.

use serde::{Deserialize, Serialize};

use super::query::Query;
use super::records::Schedule;
use super::setting::Setting;
use crate::common::{DISTURBED_MAX, Latency, Usage};

/// CPU time of other processes, in percent of a core, above which a point counts as disturbed: an idle
/// system, and the noise of counting, stay far below.
pub const OTHERS_PERCENT_MAX: f64 = 15.0;

/// What distinguishes points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The program that runs the query, and its settings.
    pub setting: Setting,
    /// The query.
    pub query: Query,
    /// Records per second.
    pub rate_per_s: u64,
}

/// What the generator has to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The query that reads the records.
    pub query: Query,
    /// Records per second.
    pub rate_per_s: u64,
    /// How long records flow before they are counted.
    pub warm_up_ns: u64,
    /// How long they are counted.
    pub time_ns: u64,
    /// The core of the generator's threads.
    pub core: usize,
}

impl Order {
    /// The due times of the records.
    pub fn schedule(&self) -> Schedule {
        Schedule {
            rate_per_s: self.rate_per_s,
        }
    }
}

/// What the sender did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Records sent, including those before and after the interval.
    pub records: u64,
    /// Records that were due and not sent, because earlier ones were not accepted.
    pub unsent: u64,
    /// Number of sent records that the filter keeps,
    pub kept: u64,
    /// and the wrapping sum of their stamps.
    pub kept_stamps: u64,
}

/// What the receiver received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Number of rows.
    pub rows: u64,
    /// The wrapping sum of the stamps of a filter's rows.
    pub stamps: u64,
    /// The number of records that a window's rows count.
    pub records: u64,
}

/// The generator's answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generated {
    /// What the sender did.
    pub sent: Sent,
    /// What came back, which is complete; otherwise the generator fails.
    pub received: Received,
    /// Number of rows that belong to the interval.
    pub rows: u64,
    /// Time from when the last record of a row was due to the row's receipt; `None` if there were no
    /// rows.
    pub latency: Option<Latency>,
    /// Time from when records were due until the sender's writes began.
    pub lag: Latency,
    /// Number of the receiver's reads, over the whole run.
    pub reads: u64,
}

/// The engine's own measurements, over the whole run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Own {
    /// The 99th percentile of its latency, from the ingest time on.
    pub p99_us: Option<f64>,
    /// The median of its latency.
    pub p50_us: Option<f64>,
    /// Whether the engine considers its target met, if it has one.
    pub target_met: Option<bool>,
    /// The plan that it ran.
    pub plan: serde_json::Value,
    /// Its standard error.
    pub said: String,
}

/// A point, as one round measured it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The point.
    pub spec: Spec,
    /// The round.
    pub round: u32,
    /// What the process that runs the query used.
    pub usage: Usage,
    /// CPU time of all other processes except the generator, in percent of a core.
    pub others_percent: f64,
    /// What the generator measured.
    pub generated: Generated,
    /// What the engine measured; `None` for the hand-written program.
    pub own: Option<Own>,
}

impl Point {
    /// How much other processes disturbed the point, as a multiple of the limit: they used the core that
    /// the query's process needed, or changed the machine's state. (A core that others keep awake makes
    /// wake-ups cheaper.)
    pub fn disturbance(&self) -> f64 {
        let waited = self.usage.disturbed() / DISTURBED_MAX;
        waited.max(self.others_percent / OTHERS_PERCENT_MAX)
    }

    /// Whether the disturbance is above the limit.
    pub fn is_disturbed(&self) -> bool {
        self.disturbance() > 1.0
    }
}
