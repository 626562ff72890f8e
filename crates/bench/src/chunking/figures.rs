//! All measurements, as they are stored as JSON.

use serde::Serialize;

use super::bench::DISTURBED_MIN;
use super::latency::AtRate;
use super::mixed::Mix;
use super::order::{Point, STAGES};
use super::rate::AtLatency;
use super::sweep::Sweep;

/// All measurements.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// The cores of the stages.
    pub cores: [usize; STAGES],
    /// Copies of each stage.
    pub copies: usize,
    /// Blocks that each copy may have unacknowledged of each copy before it.
    pub window: usize,
    /// Bytes of the image.
    pub image_bytes: usize,
    /// Bytes that a partial update needs.
    pub region_bytes: usize,
    /// The share of the bandwidth that a planned block leaves free.
    pub reserve: f64,
    /// Seed of the random partial updates.
    pub seed: u64,
    /// Rounds of the busy loop in a nanosecond.
    pub rounds_per_ns: f64,
    /// Duration of the whole experiment.
    pub seconds: f64,
    /// Measurements by amount of computing.
    pub levels: Vec<Level>,
    /// Points that were measured again because other processes disturbed them.
    pub repeated: usize,
    /// Points during which other processes used a noticeable share of a core nevertheless.
    pub disturbed: usize,
    /// All points.
    pub points: Vec<Point>,
}

/// Measurements with one amount of computing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Level {
    /// Nanoseconds of computing per byte in each filter.
    pub ns_per_byte: f64,
    /// How long a point was measured.
    pub seconds: f64,
    /// Rounds of the guaranteed rates.
    pub rounds: u32,
    /// Rounds of the search for the best block, and of the mixed queries.
    pub short_rounds: u32,
    /// The search for the best block.
    pub sweep: Sweep,
    /// Latency under guaranteed rates.
    pub latency: Vec<AtRate>,
    /// Rate under guaranteed latencies.
    pub rate: Vec<AtLatency>,
    /// Mixed queries.
    pub mixed: Vec<Mix>,
}

/// How many points were disturbed.
pub fn disturbed(points: &[Point]) -> usize {
    let disturbed = points.iter();
    disturbed
        .filter(|point| point.cores_of_others > DISTURBED_MIN)
        .count()
}
