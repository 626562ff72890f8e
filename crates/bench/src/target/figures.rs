//! The figures, as JSON and for tables.

use serde::Serialize;

use super::comparison::Comparison;
use super::order::Point;
use super::predicted::Prediction;
use super::summary::Summary;
use crate::common::Assumed;

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// The core of the process that sent and received.
    pub core: usize,
    /// The assumed cost of waiting.
    #[serde(flatten)]
    pub assumed: Assumed,
    /// Bytes of a record.
    pub record_bytes: usize,
    /// Number of rounds.
    pub rounds: u32,
    /// How long each point was measured in each round.
    pub seconds: f64,
    /// How long records flowed before that.
    pub warm_up_s: f64,
    /// Medians of each point.
    pub summaries: Vec<Summary>,
    /// `auto` compared with the cheapest fixed setting that meets its target.
    pub comparisons: Vec<Comparison>,
    /// What `explain` predicts for points with a target, beside what was measured.
    pub predictions: Vec<Prediction>,
    /// Points that were measured again because other processes disturbed them.
    pub repeated: usize,
    /// Points that were disturbed nevertheless.
    pub disturbed: usize,
    /// Every point of every round.
    pub points: Vec<Point>,
}
