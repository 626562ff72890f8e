//! What the experiments share: measuring points, and planning block sizes.

use std::time::Duration;

use slackwater_control::latency::chunk::{Demand, LinkPoint, latency_floor, plan_chunk};

use super::effort::Effort;
use super::order::{Load, Order, Point, Transport};
use super::part::{self, Times};
use super::plan::{Plan, REGION_BYTES, REPEATED_SHARE_MAX, RESERVE};

/// The share of a rate that must be reached for the rate to count as kept.
pub const RATE_SHARE_MIN: f64 = 0.95;

/// CPU time of other processes, in cores, from which a point counts as disturbed: the kernel counts in
/// hundredths of a second, so less is not visible in half a second.
pub const DISTURBED_MIN: f64 = 0.1;

/// What distinguishes the points of an effort.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// How blocks travel.
    pub transport: Transport,
    /// Parts that the image is cut into.
    pub partitions: usize,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// The load on the pipeline.
    pub load: Load,
}

/// Measures points and keeps them; measures disturbed ones again, as far as there is time for it.
pub struct Bench<'a> {
    /// The plan of the experiment.
    pub plan: &'a Plan,
    /// Rounds of the busy loop per nanosecond.
    pub rounds_per_ns: f64,
    /// All points, in the order in which they were measured.
    pub points: Vec<Point>,
    /// Number of points that were measured again.
    pub repeated: usize,
}

/// How often a point that says nothing is measured again, twice as long each time: on a busy host it may take
/// 32 times as long until a stage gets to run.
const LONGER_MAX: u32 = 5;

impl Bench<'_> {
    /// Measures a point with a pipeline of its own.
    pub fn measure(&mut self, effort: &Effort, round: u32, asked: Asked) -> Result<Point, String> {
        let Asked {
            transport,
            partitions,
            block_bytes,
            load,
        } = asked;
        let order = Order {
            transport,
            image_bytes: self.plan.image_bytes,
            partitions,
            block_bytes,
            region_bytes: REGION_BYTES,
            rounds_per_byte: effort.ns_per_byte * self.rounds_per_ns,
            load,
            // Each round has other partial updates, and all ways have the same ones.
            seed: self.plan.seed.wrapping_add(u64::from(round)),
        };
        let mut times = effort.times;
        if let Load::Rates { complete_per_s, .. } = load {
            times.time = whole_periods(times.time, complete_per_s);
        }
        let mut point = self.try_once(&order, times)?;
        for _ in 0..LONGER_MAX {
            if point.says_something() {
                break;
            }
            times.time *= 2;
            point = self.try_once(&order, times)?;
        }
        let repeated_max = (self.points.len() + 1) as f64 * REPEATED_SHARE_MAX;
        if point.cores_of_others > DISTURBED_MIN && ((self.repeated + 1) as f64) <= repeated_max {
            self.repeated += 1;
            let again = self.try_once(&order, times)?;
            if again.cores_of_others < point.cores_of_others {
                point = again;
            }
        }
        self.points.push(point);
        Ok(point)
    }

    fn try_once(&self, order: &Order, times: Times) -> Result<Point, String> {
        let point = part::measure(order, self.plan.cores, times);
        point.map_err(|error| {
            let (transport, block_bytes) = (order.transport, order.block_bytes);
            format!("{transport}, blocks of {block_bytes} bytes: {error}")
        })
    }
}

/// The planned block for a bandwidth, from the points measured on a link.
pub fn planned(points: &[LinkPoint], bytes_per_s: f64) -> Option<usize> {
    let sizes = points.iter().map(|point| point.size_bytes);
    let demand = Demand {
        bytes_per_s,
        reserve: RESERVE,
        // The points are of the whole way, including everything that a block costs at either end.
        chunk_cost_ns: 0.0,
        floor_bytes: latency_floor(points).unwrap_or(1),
        ceiling_bytes: sizes.max()?,
    };
    Some(plan_chunk(points, &demand)?.size_bytes)
}

/// A time that contains whole periods of a rate, so that the number of updates in an interval does not
/// depend on where it begins: the next such time, but no more than twice as long.
fn whole_periods(time: Duration, rate_per_s: f64) -> Duration {
    if rate_per_s <= 0.0 {
        return time;
    }
    let seconds = time.as_secs_f64();
    let periods = (seconds * rate_per_s).ceil().max(1.0);
    Duration::from_secs_f64((periods / rate_per_s).min(seconds * 2.0))
}

/// The lowest rate of which a point covers a whole period.
pub fn least_rate(effort: &Effort) -> f64 {
    0.5 / effort.times.time.as_secs_f64()
}

/// Whether a point kept its guarantee: the rate of complete updates, and an answer to each partial one.
pub fn is_kept(point: &Point, complete_per_s: f64) -> bool {
    point.seen.partial.missing == 0 && point.seen.complete_per_s >= complete_per_s * RATE_SHARE_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_contain_whole_periods() {
        let time = Duration::from_millis(500);
        assert_eq!(whole_periods(time, 0.0), time);
        assert_eq!(whole_periods(time, 4.0), time);
        assert_eq!(whole_periods(time, 3.0), Duration::from_secs_f64(2.0 / 3.0));
        assert_eq!(whole_periods(time, 0.1), Duration::from_secs(1));
    }

    #[test]
    fn more_bandwidth_takes_larger_blocks_and_the_floor_is_the_smallest() {
        let point = |size_bytes: usize, latency_us: f64, gb_per_s: f64| LinkPoint {
            size_bytes,
            latency_ns: latency_us * 1e3,
            bytes_per_s: gb_per_s * 1e9,
        };
        let points = [
            point(2 << 10, 150.0, 1.0),
            point(8 << 10, 200.0, 3.0),
            point(32 << 10, 600.0, 4.0),
        ];
        let blocks = [0.0, 2.6e9, 3.3e9].map(|rate| planned(&points, rate).unwrap());
        assert_eq!(blocks[..2], [8 << 10; 2]);
        assert!((8 << 10..32 << 10).contains(&blocks[2]), "{blocks:?}");
        // Above the highest bandwidth: the smallest block that comes within 5 % of it.
        let most = planned(&points, 9e9).unwrap();
        assert!((blocks[2]..32 << 10).contains(&most), "{most}");
        assert_eq!(planned(&[], 1e9), None);
    }
}
