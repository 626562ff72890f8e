//! What the two sides are told and what they answer; all of it travels as JSON.

use serde::{Deserialize, Serialize};

pub use crate::common::{Interval, Latency, Usage, histogram};

use super::arrivals::Arrivals;
use super::way::Way;
use slackwater::calibrate::WaitCosts;

/// Bytes of a message, as in P1's experiment and about those of a HiBench visit.
pub const MESSAGE_BYTES: usize = 200;

/// How long after the measured interval a message due within it still counts as received: the
/// longest sleep, and a half of it to spare.
pub const GRACE_NS: u64 = 15_000_000;

/// Above this rate the sender sends what is due per tick: a sleep costs some 15 µs of CPU time, so
/// one per message would take the whole core.
const RATE_PER_DEADLINE_MAX: f64 = 10_000.0;

/// The tick.
pub const TICK_NS: u64 = 100_000;

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Sends.
    Sender,
    /// Receives.
    Receiver,
}

/// One point, for one side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Which side.
    pub part: Part,
    /// The core it is pinned to.
    pub core: usize,
    /// What is measured.
    pub way: Way,
    /// What waiting costs here, for a reader that chooses how to wait.
    pub costs: WaitCosts,
    /// Messages per second.
    pub rate_per_s: f64,
    /// How they come.
    pub arrivals: Arrivals,
    /// Of the arrivals.
    pub seed: u64,
    /// Messages flow for so long before it counts.
    pub warm_up_ns: u64,
    /// How long it counts.
    pub time_ns: u64,
}

impl Order {
    /// The least time between two of the sender's wake-ups.
    pub fn tick_ns(&self) -> u64 {
        tick_ns(self.rate_per_s)
    }
}

/// The sender's tick at a rate; none at low ones, where it sleeps until each deadline.
pub fn tick_ns(rate_per_s: f64) -> u64 {
    if rate_per_s > RATE_PER_DEADLINE_MAX {
        TICK_NS
    } else {
        0
    }
}

/// What the sender measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// What it used.
    pub usage: Usage,
    /// Messages due within the interval.
    pub due: u64,
    /// How long after they were due their sending began.
    pub lag: Latency,
}

/// What the receiver measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// What it used.
    pub usage: Usage,
    /// Messages due within the interval and received before it was over, or [`GRACE_NS`] later.
    pub in_time: u64,
    /// From the time that a message was due to its receipt.
    pub since_due: Latency,
    /// From the beginning of its sending to its receipt.
    pub since_sent: Latency,
    /// Timed sleeps, over the whole run, warm-up included.
    pub sleeps: u64,
    /// Those that a ring ended.
    pub sleeps_ended_early: u64,
    /// Waits for everything.
    pub parks: u64,
    /// How often `auto` changed its mode.
    pub changes: u64,
}

/// A point as one round measured it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What was measured.
    pub way: Way,
    /// Messages per second that were asked for.
    pub rate_per_s: f64,
    /// In which round.
    pub round: u32,
    /// The sender's side.
    pub sent: Sent,
    /// The receiver's, unless the sender was alone.
    pub received: Option<Received>,
}

impl Point {
    /// The share of the time in which other processes kept the more disturbed side from its core.
    pub fn disturbed(&self) -> f64 {
        let receiver = self.received.map(|received| received.usage.disturbed());
        self.sent.usage.disturbed().max(receiver.unwrap_or(0.0))
    }
}
