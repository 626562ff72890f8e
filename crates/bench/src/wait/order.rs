//! Orders to the two sides and their answers; all of them are sent as JSON.

use serde::{Deserialize, Serialize};

pub use crate::common::{Interval, Latency, Usage, histogram};

use super::arrivals::Arrivals;
use super::way::Way;
use slackwater::calibrate::WaitCosts;

/// Bytes of a message, as in P1's experiment and about those of a HiBench visit.
pub const MESSAGE_BYTES: usize = 200;

/// How long after the measured interval a message that was due within it still counts as received: one
/// and a half times the longest sleep.
pub const GRACE_NS: u64 = 15_000_000;

/// Above this rate the sender sends due messages once per tick: a sleep costs some 15 µs of CPU time, so
/// one per message would take the whole core.
const RATE_PER_DEADLINE_MAX: f64 = 10_000.0;

/// The tick.
pub const TICK_NS: u64 = 100_000;

/// A side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Sends.
    Sender,
    /// Receives.
    Receiver,
}

/// The order for one point and one side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The side.
    pub part: Part,
    /// The core it is pinned to.
    pub core: usize,
    /// The way that is measured.
    pub way: Way,
    /// The assumed cost of waiting, for a reader that chooses how to wait.
    pub costs: WaitCosts,
    /// Messages per second.
    pub rate_per_s: f64,
    /// How messages arrive.
    pub arrivals: Arrivals,
    /// Seed of the arrivals.
    pub seed: u64,
    /// How long messages flow before they are counted.
    pub warm_up_ns: u64,
    /// How long they are counted.
    pub time_ns: u64,
}

impl Order {
    /// The shortest time between two wake-ups of the sender.
    pub fn tick_ns(&self) -> u64 {
        tick_ns(self.rate_per_s)
    }
}

/// The sender's tick at a rate; 0 at low rates, at which it sleeps until each deadline.
pub fn tick_ns(rate_per_s: f64) -> u64 {
    if rate_per_s > RATE_PER_DEADLINE_MAX {
        TICK_NS
    } else {
        0
    }
}

/// The sender's measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// CPU time and waiting.
    pub usage: Usage,
    /// Number of messages due within the interval.
    pub due: u64,
    /// Time from when messages were due until their sending began.
    pub lag: Latency,
}

/// The receiver's measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// CPU time and waiting.
    pub usage: Usage,
    /// Number of messages due within the interval and received before its end, or within [`GRACE_NS`]
    /// after it.
    pub in_time: u64,
    /// Time from when a message was due until its receipt.
    pub since_due: Latency,
    /// Time from the beginning of a message's sending until its receipt.
    pub since_sent: Latency,
    /// Number of timed sleeps, over the whole run, including the warm-up.
    pub sleeps: u64,
    /// Number of timed sleeps that a wake-up ended.
    pub sleeps_ended_early: u64,
    /// Number of waits without a time limit.
    pub parks: u64,
    /// How often `auto` changed its mode.
    pub changes: u64,
}

/// A point as one round measured it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The way that was measured.
    pub way: Way,
    /// Requested messages per second.
    pub rate_per_s: f64,
    /// The round.
    pub round: u32,
    /// The sender's side.
    pub sent: Sent,
    /// The receiver's side, unless the sender was alone.
    pub received: Option<Received>,
}

impl Point {
    /// The share of the time in which other processes kept the more disturbed side from its core.
    pub fn disturbed(&self) -> f64 {
        let receiver = self.received.map(|received| received.usage.disturbed());
        self.sent.usage.disturbed().max(receiver.unwrap_or(0.0))
    }
}
