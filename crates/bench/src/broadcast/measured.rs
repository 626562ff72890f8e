//! What rounds measured, and the figures of a point and of a way.

use serde::Serialize;

use super::plan::{Link, Point, Way};
use crate::fleet::Seen;
use slackwater::measure::Spread;

/// A point with all ways that were measured there.
#[derive(Debug, Serialize)]
pub struct PointFigures {
    /// The point.
    pub point: Point,
    /// The figures of each way.
    pub ways: Vec<WayFigures>,
    /// What the model would choose, by link.
    pub choices: Vec<Choices>,
}

/// What the model would choose.
#[derive(Debug, Serialize)]
pub struct Choices {
    /// The links that the choices are for.
    pub link: Link,
    /// The way with the least latency.
    pub latency: Way,
    /// The way with the most throughput.
    pub throughput: Way,
}

/// A way at a point, over all rounds.
#[derive(Debug, Serialize)]
pub struct WayFigures {
    /// The way.
    pub way: Way,
    /// Latency until the last receiver has the message, in microseconds: each round's median.
    pub latency_p50_us: Spread,
    /// The 90th percentile of the same latency, in microseconds.
    pub latency_p90_us: Spread,
    /// Messages per second.
    pub messages_per_s: Spread,
    /// CPU time of all processes for a message when messages follow each other without a gap, in
    /// microseconds.
    pub cpu_us_per_message: Spread,
}

/// Measurements of a way at a point in one round.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The round.
    pub round: u32,
    /// The point.
    pub point: Point,
    /// The way.
    pub way: Way,
    /// Median latency until the last receiver has the message, in microseconds.
    pub latency_p50_us: f64,
    /// The 90th percentile of the same latency, in microseconds.
    pub latency_p90_us: f64,
    /// Messages per second.
    pub messages_per_s: f64,
    /// CPU time for a message, in microseconds.
    pub cpu_us_per_message: f64,
}

impl Measured {
    /// The measurement, from what was observed when messages were spaced and when they were not.
    pub fn new(round: u32, point: Point, way: Way, spaced: &Seen, flat: &Seen) -> Measured {
        let mut latencies_us = spaced.latencies_us.clone();
        latencies_us.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (latencies_us.len() as f64 * share) as usize;
            latencies_us.get(place).copied().unwrap_or(f64::NAN)
        };
        Measured {
            round,
            point,
            way,
            latency_p50_us: at(0.5),
            latency_p90_us: at(0.9),
            messages_per_s: flat.messages_per_s.unwrap_or(f64::NAN),
            cpu_us_per_message: flat.cpu_us_per_message,
        }
    }
}
