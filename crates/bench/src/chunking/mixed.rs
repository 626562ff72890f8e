//! Response times of mixed queries: complete updates, and queries for one of the parts that the image is
//! divided into. Queries follow each other.

use serde::Serialize;

use super::bench::{Asked, Bench};
use super::effort::Effort;
use super::order::{Load, Point};
use super::sweep::Sweep;
use super::way::Way;
use slackwater::measure::median;

/// A way with a mix of queries: medians over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mix {
    /// The way that was measured.
    pub way: Way,
    /// Number of parts of the image.
    pub partitions: usize,
    /// The share of complete updates among the queries.
    pub complete_share: f64,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// The mean response time of all queries.
    pub mean_us: f64,
    /// The mean response time of complete updates.
    pub complete_us: f64,
    /// The mean response time of the other queries.
    pub partial_us: f64,
}

/// Measures all mixes.
pub fn measure(bench: &mut Bench<'_>, effort: &Effort, sweep: &Sweep) -> Result<Vec<Mix>, String> {
    let mut cells: Vec<(Way, usize, f64, Vec<Point>)> = Vec::new();
    for &partitions in &effort.partitions {
        for &share in &effort.shares {
            let of_way = |&way: &Way| (way, partitions, share, Vec::new());
            cells.extend(Way::COMPARED.iter().map(of_way));
        }
    }
    for round in 0..effort.short_rounds {
        let places = (0..cells.len()).collect::<Vec<_>>();
        for place in Effort::in_turn(round, &places) {
            let (way, partitions, complete_share, points) = &mut cells[place];
            let asked = Asked {
                transport: way.transport(),
                partitions: *partitions,
                // The bandwidth needed is the highest there is: a query ends when all of its answer has
                // arrived.
                block_bytes: sweep.block(bench.plan.image_bytes, *way, sweep.highest_per_s(*way)),
                load: Load::Mixed {
                    complete_share: *complete_share,
                },
            };
            points.push(bench.measure(effort, round, asked)?);
        }
    }
    let rows = cells.into_iter();
    let rows = rows.map(|(way, parts, share, points)| summary(way, parts, share, &points));
    Ok(rows.collect())
}

fn summary(way: Way, partitions: usize, complete_share: f64, points: &[Point]) -> Mix {
    let median = |value: &dyn Fn(&Point) -> f64| median(points.iter().map(value).collect());
    // Weighted by the requested shares: an interval may end between two queries.
    let mean_us = |point: &Point| {
        let seen = &point.seen;
        complete_share * seen.complete.mean_us + (1.0 - complete_share) * seen.partial.mean_us
    };
    Mix {
        way,
        partitions,
        complete_share,
        block_bytes: points.first().map_or(0, |point| point.order.block_bytes),
        mean_us: median(&mean_us),
        complete_us: median(&|point| point.seen.complete.mean_us),
        partial_us: median(&|point| point.seen.partial.mean_us),
    }
}

/// The share of complete updates at which a way takes this long, interpolated linearly between the
/// measured shares. 1 if it never takes so long, 0 if it always does.
pub fn share_at(mixes: &[Mix], way: Way, partitions: usize, mean_us: f64) -> Option<f64> {
    let of_it = mixes
        .iter()
        .filter(|mix| mix.way == way && mix.partitions == partitions);
    let mut of_it = of_it.collect::<Vec<_>>();
    of_it.sort_by(|one, other| one.complete_share.total_cmp(&other.complete_share));
    let (first, last) = (of_it.first()?, of_it.last()?);
    if first.mean_us > mean_us {
        return Some(0.0);
    }
    for pair in of_it.windows(2) {
        let (low, high) = (pair[0], pair[1]);
        if high.mean_us > mean_us {
            let within = (mean_us - low.mean_us) / (high.mean_us - low.mean_us);
            return Some(low.complete_share + within * (high.complete_share - low.complete_share));
        }
    }
    // Outside the measured shares, extrapolated along the last line, but at most 1.
    let slope = (last.mean_us - first.mean_us) / (last.complete_share - first.complete_share);
    let beyond = last.complete_share + (mean_us - last.mean_us) / slope;
    Some(if slope > 0.0 { beyond.min(1.0) } else { 1.0 })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::chunking::latency::tests::point;

    /// A way with a mix over 64 parts.
    pub fn mix(way: Way, complete_share: f64, mean_us: f64) -> Mix {
        Mix {
            way,
            partitions: 64,
            complete_share,
            block_bytes: 4096,
            mean_us,
            complete_us: 10_000.0,
            partial_us: 1_000.0,
        }
    }

    #[test]
    fn the_mean_is_weighted_by_the_requested_shares() {
        let mut seen = point(0.0, 100.0);
        seen.seen.complete.mean_us = 1_100.0;
        let row = summary(Way::TcpFixed, 8, 0.3, &[seen]);
        assert!((row.mean_us - 400.0).abs() < 1e-9);
        assert_eq!((row.complete_us, row.partial_us), (1_100.0, 100.0));
    }

    #[test]
    fn shares_are_interpolated_between_those_measured() {
        let way = Way::TcpFixed;
        let mixes = [
            mix(way, 0.0, 100.0),
            mix(way, 0.6, 700.0),
            mix(Way::ShmSame, 0.0, 1.0),
        ];
        let at = |mean_us| share_at(&mixes, way, 64, mean_us).unwrap();
        assert!((at(400.0) - 0.3).abs() < 1e-9);
        assert_eq!(at(50.0), 0.0);
        assert!((at(900.0) - 0.8).abs() < 1e-9);
        assert_eq!(at(5_000.0), 1.0);
        assert_eq!(share_at(&mixes, way, 8, 400.0), None);
        assert_eq!(share_at(&mixes, Way::ShmSame, 64, 400.0), Some(1.0));
    }
}
