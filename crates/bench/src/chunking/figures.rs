//! All that was measured, as JSON has it.

use serde::Serialize;

use super::bench::DISTURBED_MIN;
use super::latency::AtRate;
use super::mixed::Mix;
use super::order::{Point, STAGES};
use super::rate::AtLatency;
use super::sweep::Sweep;

/// All that was measured.
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
    /// What a partial update needs of it.
    pub region_bytes: usize,
    /// The share of the bandwidth that a planned block leaves free.
    pub reserve: f64,
    /// Of the random partial updates.
    pub seed: u64,
    /// Rounds of the busy loop in a nanosecond.
    pub rounds_per_ns: f64,
    /// How long it all took.
    pub seconds: f64,
    /// By amount of computing.
    pub levels: Vec<Level>,
    /// Points that were measured again because other processes disturbed them.
    pub repeated: usize,
    /// Points during which other processes used a noticeable share of a core all the same.
    pub disturbed: usize,
    /// Every point.
    pub points: Vec<Point>,
}

/// What was measured with one amount of computing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Level {
    /// Computing in each filter.
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
