//! What the stages are told and what they answer; all of it travels as JSON.

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
    /// What it is, for tables.
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

/// What is asked of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Complete updates, this many under way at any time, and partial ones at random beside.
    Full {
        /// Complete updates under way.
        under_way: usize,
        /// Partial updates per second.
        partial_per_s: f64,
    },
    /// Complete updates at regular times, and partial ones at random.
    Rates {
        /// Complete updates per second; none for 0.
        complete_per_s: f64,
        /// Partial updates per second.
        partial_per_s: f64,
    },
    /// One query behind the other: this share of them complete updates, the others each for one of
    /// the parts that the image is cut into.
    Mixed {
        /// From 0 to 1.
        complete_share: f64,
    },
}

/// One point: what a pipeline is to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// How blocks travel.
    pub transport: Transport,
    /// Bytes of the image: a multiple of a line for each of its parts.
    pub image_bytes: usize,
    /// Parts that the image is cut into; a query for one of them takes all of its blocks.
    pub partitions: usize,
    /// Bytes of a block, at most; a multiple of a line.
    pub block_bytes: usize,
    /// Bytes that a partial update needs; it takes all blocks in which some of them lie.
    pub region_bytes: usize,
    /// Rounds of the busy loop for each byte, in each filter.
    pub rounds_per_byte: f64,
    /// What is asked.
    pub load: Load,
    /// Of all that is random.
    pub seed: u64,
}

/// The part of one stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Which stage, the source being 0.
    pub stage: usize,
    /// The core it is pinned to.
    pub core: usize,
    /// What the pipeline is to do.
    pub order: Order,
}

/// When, on `CLOCK_MONOTONIC`, which all processes of a host share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// The first query is due.
    pub start_ns: u64,
    /// Queries due from here on count,
    pub begin_ns: u64,
    /// and those due from here on don't.
    pub end_ns: u64,
    /// Answers that have not come by now count as missing.
    pub grace_ns: u64,
}

impl Interval {
    /// Whether it counts what is due, or happens, then.
    pub fn contains(&self, time_ns: u64) -> bool {
        (self.begin_ns..self.end_ns).contains(&time_ns)
    }

    /// Its length.
    pub fn seconds(&self) -> f64 {
        (self.end_ns - self.begin_ns) as f64 / 1e9
    }
}

/// Response times, in microseconds, from the time that a query was due to its last block's arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Responses {
    /// Queries that were answered.
    pub count: u64,
    /// Queries that were not, or too late to be waited for.
    pub missing: u64,
    /// The mean of those answered.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// One in twenty is longer.
    pub p95_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// What the viewer has seen of the queries that were due in the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Complete updates per second, in bytes that arrived within the interval.
    pub complete_per_s: f64,
    /// The complete updates.
    pub complete: Responses,
    /// The others.
    pub partial: Responses,
}

/// What a stage answers at the end of the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// CPU time of its process within the interval, in cores.
    pub cores: f64,
    /// What the viewer has seen; nothing of the others.
    pub seen: Seen,
}

/// A point as it was measured once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What was asked for.
    pub order: Order,
    /// What came of it.
    pub seen: Seen,
    /// CPU time of all stages, in cores.
    pub cores_used: f64,
    /// CPU time that other processes used meanwhile, in cores.
    pub cores_of_others: f64,
}

impl Point {
    /// CPU time of all stages for a complete update; nothing without any.
    pub fn cpu_s_per_complete(&self) -> Option<f64> {
        let rate = self.seen.complete_per_s;
        (rate > 0.0).then(|| self.cores_used / rate)
    }
}
