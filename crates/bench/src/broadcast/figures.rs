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
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Rounds.
    pub rounds: u32,
    /// Which algorithm is the best in the largest setting, by link.
    pub orderings: Vec<Ordering>,
    /// Each point, in the order of tables.
    pub points: Vec<PointFigures>,
    /// Each round, of which goals form ratios.
    #[serde(skip)]
    pub measured: Vec<Measured>,
}

/// A point and all ways there.
#[derive(Debug, Serialize)]
pub struct PointFigures {
    /// The point.
    pub point: Point,
    /// What was measured, way by way.
    pub ways: Vec<WayFigures>,
    /// What the model would choose, by link.
    pub choices: Vec<Choices>,
}

/// What the model would choose.
#[derive(Debug, Serialize)]
pub struct Choices {
    /// Over these links.
    pub link: Link,
    /// For the least latency.
    pub latency: Way,
    /// For the most throughput.
    pub throughput: Way,
}

/// A way at a point, over all rounds.
#[derive(Debug, Serialize)]
pub struct WayFigures {
    /// The way.
    pub way: Way,
    /// Latency until the last receiver has it, in microseconds: each round's median.
    pub latency_p50_us: Spread,
    /// And of the slowest in ten.
    pub latency_p90_us: Spread,
    /// Messages per second.
    pub messages_per_s: Spread,
    /// CPU time of all processes for a message, in microseconds, when they follow each other.
    pub cpu_us_per_message: Spread,
}

/// What one round measured of a way at a point.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The round.
    pub round: u32,
    /// The point.
    pub point: Point,
    /// The way.
    pub way: Way,
    /// Median until the last receiver has it, in microseconds.
    pub latency_p50_us: f64,
    /// And the slowest in ten.
    pub latency_p90_us: f64,
    /// Messages per second.
    pub messages_per_s: f64,
    /// CPU time for a message, in microseconds.
    pub cpu_us_per_message: f64,
}

impl Measured {
    /// From what was seen when messages were spaced and when they were not.
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
    /// Without how long it took.
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
