//! Orders to measure something, and their answers, which are sent as JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The most messages that are sent before the reader is notified.
const BATCH_MESSAGES_MAX: usize = 64;

/// The most bytes that are sent before the reader is notified.
const BATCH_BYTES_MAX: usize = 16 << 10;

/// How messages flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One message back and forth.
    PingPong,
    /// Messages in one direction, as fast as the link takes them.
    Stream,
}

/// How an idle side waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waiting {
    /// It polls.
    Poll,
    /// It sleeps until it is woken (announce, look, sleep); plain programs block.
    Interrupt,
}

/// One point to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// How messages flow.
    pub pattern: Pattern,
    /// How both sides wait.
    pub waiting: Waiting,
    /// The bytes of a message: one of [`super::SIZES`].
    pub size_bytes: usize,
    /// How long to measure, after a warm-up of a tenth of this time.
    pub time_ms: u64,
}

impl Order {
    /// The number of messages that are pushed together.
    pub fn batch(&self) -> usize {
        match self.pattern {
            Pattern::PingPong => 1,
            Pattern::Stream => (BATCH_BYTES_MAX / self.size_bytes).clamp(1, BATCH_MESSAGES_MAX),
        }
    }

    /// How long to measure.
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.time_ms)
    }

    /// The order for the warm-up: the same point for a shorter time.
    pub fn warm_up(&self) -> Order {
        Order {
            time_ms: self.time_ms / 10,
            ..*self
        }
    }
}

/// The one-way latency, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The median.
    pub p50_ns: f64,
    /// The 99th percentile.
    pub p99_ns: f64,
    /// The 99.9th percentile.
    pub p999_ns: f64,
    /// The longest.
    pub max_ns: f64,
    /// The median over batches of the mean within one, without reading the clock in between.
    pub batched_ns: f64,
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The number of messages that the leader sent.
    pub messages: u64,
    /// The time from the first message to the receipt of the last one.
    pub wall_s: f64,
    /// The latency, for round trips.
    pub latency: Option<Latency>,
    /// CPU time of the leader's thread.
    pub sender_cpu_s: f64,
    /// CPU time of the follower's thread.
    pub receiver_cpu_s: f64,
}

impl Sample {
    /// Messages per second, one way.
    pub fn messages_per_s(&self) -> f64 {
        self.messages as f64 / self.wall_s
    }

    /// Payload in billions of bytes per second, one way.
    pub fn gb_per_s(&self, size_bytes: usize) -> f64 {
        self.messages_per_s() * size_bytes as f64 / 1e9
    }
}

/// A leader's answer to an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The result.
    Sample(Sample),
    /// Why this kind does not support the order.
    Unsupported(String),
}
