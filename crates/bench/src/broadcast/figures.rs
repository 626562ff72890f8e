//! The figures: what each round measured, and the medians over rounds.

use serde::Serialize;
use slackwater_control::broadcast::model::Aim;

use super::measured::{Choices, Measured, PointFigures, WayFigures};
use super::plan::{Link, Plan, Point, Way};
use super::verdict::{Ordering, orderings};
use crate::lab::spread;

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
