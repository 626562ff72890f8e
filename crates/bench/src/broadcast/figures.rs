//! The figures: what each round measured, and the medians over rounds.

use serde::Serialize;
use slackwater_control::broadcast::model::Aim;

use super::plan::{Link, Plan, Point, Way};
use super::verdict::{Ordering, orderings};
use crate::fleet::Seen;
use crate::lab::spread;
use slackwater::measure::Spread;

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Duration of the experiment, in seconds.
    pub seconds: f64,
    /// Number of rounds.
    pub rounds: u32,
    /// The ordering of the algorithms in the largest setting, by link.
    pub orderings: Vec<Ordering>,
    /// All points, in the order of tables.
    pub points: Vec<PointFigures>,
    /// The measurements of each round, from which goals calculate ratios.
    #[serde(skip)]
    pub measured: Vec<Measured>,
}

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

impl Figures {
    /// The figures, without the duration.
    pub fn new(plan: &Plan, measured: Vec<Measured>) -> Figures {
        let points = plan.points().into_iter().map(|point| {
            let of_point = measured.iter().filter(|one| one.point == point);
            let mut ways = of_point.map(|one| one.way).collect::<Vec<Way>>();
            ways.sort();
            ways.dedup();
            let links = Link::ALL.into_iter();
            let links = links.filter(|link| ways.iter().any(|way| way.link == *link));
            let choices = links.map(|link| Choices {
                link,
                latency: plan.choice(link, &point, Aim::Latency),
                throughput: plan.choice(link, &point, Aim::Throughput),
            });
            PointFigures {
                point,
                choices: choices.collect(),
                ways: ways
                    .iter()
                    .map(|&way| of_way(&measured, point, way))
                    .collect(),
            }
        });
        let points = points.collect::<Vec<PointFigures>>();
        Figures {
            seconds: 0.0,
            rounds: plan.rounds,
            orderings: orderings(&points),
            points,
            measured,
        }
    }
}

fn of_way(measured: &[Measured], point: Point, way: Way) -> WayFigures {
    let spread = |pick: fn(&Measured) -> f64| {
        let own = measured
            .iter()
            .filter(|one| one.point == point && one.way == way);
        spread(own, pick)
    };
    WayFigures {
        way,
        latency_p50_us: spread(|one| one.latency_p50_us),
        latency_p90_us: spread(|one| one.latency_p90_us),
        messages_per_s: spread(|one| one.messages_per_s),
        cpu_us_per_message: spread(|one| one.cpu_us_per_message),
    }
}
