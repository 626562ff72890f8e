//! Orders to the stages and their answers; all of them are sent as JSON.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Stages of the pipeline: data source, two filters, viewer.
pub const STAGES: usize = 4;

/// Copies of each stage.
pub const COPIES: usize = 3;

/// Links between two stages: one from each copy to each copy.
pub const LANES: usize = COPIES * COPIES;

/// How blocks travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// The TCP link, over the loopback interface.
    Tcp,
    /// The link through shared memory.
    Shm,
}

impl Transport {
    /// The name of the transport in tables.
    pub fn title(self) -> &'static str {
        match self {
            Transport::Tcp => "TCP",
            Transport::Shm => "shared memory",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.title())
    }
}

/// The load on the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Complete updates, this many under way at any time, and partial ones at random times.
    Full {
        /// Complete updates under way.
        under_way: usize,
        /// Partial updates per second.
        partial_per_s: f64,
    },
    /// Complete updates at regular times, and partial ones at random times.
    Rates {
        /// Complete updates per second; 0 for none.
        complete_per_s: f64,
        /// Partial updates per second.
        partial_per_s: f64,
    },
    /// Queries that follow each other: this share of them complete updates, each of the others for one of
    /// the parts that the image is divided into.
    Mixed {
        /// The share of complete updates, from 0 to 1.
        complete_share: f64,
    },
}

/// One point: what a pipeline has to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// How blocks travel.
    pub transport: Transport,
    /// Bytes of the image: a multiple of a line for each of its parts.
    pub image_bytes: usize,
    /// Number of parts that the image is divided into; a query for one of them receives all of its
    /// blocks.
    pub partitions: usize,
    /// Bytes of a block, at most; a multiple of a line.
    pub block_bytes: usize,
    /// Bytes that a partial update needs; it receives all blocks that contain some of them.
    pub region_bytes: usize,
    /// Rounds of the busy loop for each byte, in each filter.
    pub rounds_per_byte: f64,
    /// The load.
    pub load: Load,
    /// Seed of everything random.
    pub seed: u64,
}

/// The order for one stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The stage's number; the source is 0.
    pub stage: usize,
    /// The core it is pinned to.
    pub core: usize,
    /// What the pipeline is to do.
    pub order: Order,
}

/// Times of a point, on `CLOCK_MONOTONIC`, which all processes of a host share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// When the first query is due.
    pub start_ns: u64,
    /// Queries that are due from this time on are counted,
    pub begin_ns: u64,
    /// and those that are due from this time on are not.
    pub end_ns: u64,
    /// Answers that have not arrived by this time count as missing.
    pub grace_ns: u64,
}

impl Interval {
    /// Whether the interval contains a time.
    pub fn contains(&self, time_ns: u64) -> bool {
        (self.begin_ns..self.end_ns).contains(&time_ns)
    }

    /// The length of the interval.
    pub fn seconds(&self) -> f64 {
        (self.end_ns - self.begin_ns) as f64 / 1e9
    }
}

/// Response times, in microseconds, from the time that a query was due to its last block's arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Responses {
    /// Number of queries that were answered.
    pub count: u64,
    /// Number of queries that were not answered, or not in time.
    pub missing: u64,
    /// The mean of the answered queries.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The 95th percentile.
    pub p95_us: f64,
    /// The longest response time.
    pub max_us: f64,
}

/// The viewer's measurements of the queries that were due in the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Complete updates per second, calculated from the bytes that arrived within the interval.
    pub complete_per_s: f64,
    /// Response times of complete updates.
    pub complete: Responses,
    /// Response times of partial updates.
    pub partial: Responses,
}

/// What a stage answers at the end of the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// CPU time of the stage's process within the interval, in cores.
    pub cores: f64,
    /// The viewer's measurements; zeros from the other stages.
    pub seen: Seen,
}

/// A point, measured once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What was requested.
    pub order: Order,
    /// What the viewer measured.
    pub seen: Seen,
    /// CPU time of all stages, in cores.
    pub cores_used: f64,
    /// CPU time of other processes in the same time, in cores.
    pub cores_of_others: f64,
}

impl Point {
    /// Whether anything of what was asked for came within the interval.
    pub fn says_something(&self) -> bool {
        let seen = &self.seen;
        match self.order.load {
            Load::Full { .. } => seen.complete_per_s > 0.0,
            Load::Rates { .. } => seen.complete_per_s > 0.0 || seen.partial.count > 0,
            Load::Mixed { .. } => seen.complete.count + seen.partial.count > 0,
        }
    }

    /// CPU time of all stages per complete update; `None` if there were none.
    pub fn cpu_s_per_complete(&self) -> Option<f64> {
        let rate = self.seen.complete_per_s;
        (rate > 0.0).then(|| self.cores_used / rate)
    }
}
