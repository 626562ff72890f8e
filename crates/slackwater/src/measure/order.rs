//! What is to be measured, and what came of it: both travel as JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Messages that are sent before the reader is told, at most.
const BATCH_MESSAGES_MAX: usize = 64;

/// And their bytes.
const BATCH_BYTES_MAX: usize = 16 << 10;

/// How messages flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One message to and fro.
    PingPong,
    /// As fast as the link takes them, one way.
    Stream,
}

/// What a side does that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waiting {
    /// Looks again at once.
    Poll,
    /// Sleeps until it is woken: announce, look, sleep; plain programs block.
    Interrupt,
}

/// One point to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// How messages flow.
    pub pattern: Pattern,
    /// What both sides do that have nothing to do.
    pub waiting: Waiting,
    /// Bytes of a message: one of [`super::SIZES`].
    pub size_bytes: usize,
    /// How long to measure; a tenth of it warms up before.
    pub time_ms: u64,
}

impl Order {
    /// Messages that are pushed together.
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

    /// The same point for a shorter time, before the one that counts.
    pub fn warm_up(&self) -> Order {
        Order {
            time_ms: self.time_ms / 10,
            ..*self
        }
    }
}

/// One way latency, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The median.
    pub p50_ns: f64,
    /// One in a hundred is longer.
    pub p99_ns: f64,
    /// One in a thousand is longer.
    pub p999_ns: f64,
    /// The longest.
    pub max_ns: f64,
    /// The median over batches of the mean within one, without reading the clock in between.
    pub batched_ns: f64,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Messages that the leader sent.
    pub messages: u64,
    /// From the first one to the last one's receipt.
    pub wall_s: f64,
    /// Of round trips.
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

/// What a leader answers to an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It was measured.
    Sample(Sample),
    /// This kind can't do that: why.
    Unsupported(String),
}
