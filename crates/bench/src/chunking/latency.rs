//! Latency of partial updates while complete updates keep a guaranteed rate.

use serde::Serialize;

use super::bench::{Asked, Bench, is_kept};
use super::effort::Effort;
use super::order::{Load, Point, Transport};
use super::sweep::Sweep;
use super::way::Way;
use slackwater::measure::median;

/// A way at a guaranteed rate: medians over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AtRate {
    /// The way that was measured.
    pub way: Way,
    /// The guaranteed rate, as a share of the highest rate that TCP reaches with its best block.
    pub fraction: f64,
    /// The guaranteed rate in complete updates per second.
    pub complete_per_s: f64,
    /// The rate that was reached.
    pub reached_per_s: f64,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// The mean latency of partial updates.
    pub mean_us: f64,
    /// The 95th percentile of the latency.
    pub p95_us: f64,
    /// CPU time of all stages, in cores.
    pub cores_used: f64,
    /// CPU time of all stages per complete update; 0 if there were none.
    pub cpu_ms_per_complete: f64,
    /// Whether most rounds kept the rate and answered all partial updates.
    pub kept: bool,
}

/// Measures all ways at all rates.
pub fn measure(
    bench: &mut Bench<'_>,
    effort: &Effort,
    sweep: &Sweep,
) -> Result<Vec<AtRate>, String> {
    let mut cells: Vec<(Way, f64, Vec<Point>)> = Vec::new();
    for &fraction in &effort.fractions {
        // TCP can't be asked for more than its own best rate.
        let ways = bench
            .plan
            .ways
            .iter()
            .filter(|way| fraction <= 1.0 || way.transport() == Transport::Shm);
        cells.extend(ways.map(|&way| (way, fraction, Vec::new())));
    }
    for round in 0..effort.rounds {
        let places = (0..cells.len()).collect::<Vec<_>>();
        for place in Effort::in_turn(round, &places) {
            let (way, fraction, points) = &mut cells[place];
            let complete_per_s = sweep.best_per_s * *fraction;
            let asked = Asked {
                transport: way.transport(),
                partitions: 1,
                block_bytes: sweep.block(bench.plan.image_bytes, *way, complete_per_s),
                load: Load::Rates {
                    complete_per_s,
                    partial_per_s: effort.partial_per_s,
                },
            };
            points.push(bench.measure(effort, round, asked)?);
        }
    }
    let rows = cells.into_iter().map(|(way, fraction, points)| {
        summary(way, fraction, sweep.best_per_s * fraction, &points)
    });
    Ok(rows.collect())
}

fn summary(way: Way, fraction: f64, complete_per_s: f64, points: &[Point]) -> AtRate {
    let median = |value: fn(&Point) -> f64| median(points.iter().map(value).collect());
    let kept = points.iter().filter(|point| is_kept(point, complete_per_s));
    AtRate {
        way,
        fraction,
        complete_per_s,
        reached_per_s: median(|point| point.seen.complete_per_s),
        block_bytes: points.first().map_or(0, |point| point.order.block_bytes),
        mean_us: median(|point| point.seen.partial.mean_us),
        p95_us: median(|point| point.seen.partial.p95_us),
        cores_used: median(|point| point.cores_used),
        cpu_ms_per_complete: median(|point| point.cpu_s_per_complete().unwrap_or(0.0) * 1e3),
        kept: kept.count() * 2 > points.len(),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::chunking::order::{Responses, Seen};
    use crate::chunking::queries::tests::order;

    /// A way at a share of 100 complete updates per second.
    pub fn at_rate(way: Way, fraction: f64, mean_us: f64) -> AtRate {
        AtRate {
            way,
            fraction,
            complete_per_s: fraction * 100.0,
            reached_per_s: fraction * 100.0,
            block_bytes: 4096,
            mean_us,
            p95_us: mean_us * 2.0,
            cores_used: 1.0,
            cpu_ms_per_complete: 10.0,
            kept: true,
        }
    }

    /// A point with this rate and latency.
    pub fn point(complete_per_s: f64, mean_us: f64) -> Point {
        Point {
            order: order(Load::Rates {
                complete_per_s,
                partial_per_s: 100.0,
            }),
            seen: Seen {
                complete_per_s,
                partial: Responses {
                    count: 50,
                    mean_us,
                    p95_us: 2.0 * mean_us,
                    ..Responses::default()
                },
                ..Seen::default()
            },
            cores_used: 0.5,
            cores_of_others: 0.0,
        }
    }

    #[test]
    fn a_row_is_the_median_of_its_rounds_and_kept_if_most_of_them_kept_it() {
        let mut points = [point(50.0, 100.0), point(49.0, 900.0), point(10.0, 300.0)];
        let row = summary(Way::ShmSame, 0.5, 50.0, &points);
        assert_eq!(
            (row.mean_us, row.reached_per_s, row.kept),
            (300.0, 49.0, true)
        );
        assert!((row.cpu_ms_per_complete - 500.0 / 49.0).abs() < 1e-9);
        points[0].seen.partial.missing = 1;
        assert!(!summary(Way::ShmSame, 0.5, 50.0, &points).kept);
    }
    #[test]
    fn a_point_without_an_answer_says_nothing() {
        let mut starved = point(0.0, 0.0);
        assert!(starved.says_something());
        starved.seen.partial.count = 0;
        assert!(!starved.says_something());
        starved.order.load = Load::Mixed {
            complete_share: 0.5,
        };
        assert!(!starved.says_something());
        starved.seen.complete.count = 1;
        assert!(starved.says_something());
    }
}
