//! Block sizes, tried on each link: finds TCP's best one, and the points to plan with.

use serde::Serialize;
use slackwater_control::latency::chunk::LinkPoint;

use super::bench::{Asked, Bench, planned};
use super::effort::Effort;
use super::order::{Load, Transport};
use super::plan::UNDER_WAY;
use super::way::Way;
use slackwater::measure::median;

/// How close to the highest rate a block has to come to count as equally good: the smallest of these is
/// chosen, because it delays partial updates least.
const ALMOST: f64 = 0.95;

/// A block size on a link, with as many complete updates as possible: medians over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Size {
    /// The link.
    pub transport: Transport,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Complete updates per second.
    pub complete_per_s: f64,
    /// The mean latency of partial updates at the same time.
    pub partial_us: f64,
    /// The median latency of partial updates, which a disturbance affects less.
    pub partial_p50_us: f64,
    /// CPU time of all stages per complete update.
    pub cpu_ms_per_complete: f64,
    /// CPU time of all stages, in cores.
    pub cores_used: f64,
}

/// The result of the search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    /// All sizes, TCP's first, from the smallest to the largest.
    pub sizes: Vec<Size>,
    /// TCP's best block.
    pub block_bytes: usize,
    /// The rate that TCP reaches with its best block, in complete updates per second.
    pub best_per_s: f64,
    /// The mean latency of partial updates over TCP with this block and no complete updates.
    pub alone_us: f64,
}

impl Sweep {
    /// Measures all block sizes.
    pub fn measure(bench: &mut Bench<'_>, effort: &Effort) -> Result<Sweep, String> {
        let transports = [Transport::Tcp, Transport::Shm];
        let mut points = Vec::new();
        for round in 0..effort.short_rounds {
            for block_bytes in Effort::in_turn(round, &effort.sizes) {
                for transport in Effort::in_turn(round, &transports) {
                    let load = Load::Full {
                        under_way: UNDER_WAY,
                        partial_per_s: effort.partial_per_s,
                    };
                    let asked = Asked {
                        transport,
                        partitions: 1,
                        block_bytes,
                        load,
                    };
                    points.push(bench.measure(effort, round, asked)?);
                }
            }
        }
        let mut sizes = Vec::new();
        for transport in transports {
            for &block_bytes in &effort.sizes {
                let of_it = points.iter().filter(|point| {
                    point.order.transport == transport && point.order.block_bytes == block_bytes
                });
                let of_it = of_it.collect::<Vec<_>>();
                let median = |value: fn(&super::order::Point) -> f64| {
                    median(of_it.iter().map(|point| value(point)).collect())
                };
                sizes.push(Size {
                    transport,
                    block_bytes,
                    complete_per_s: median(|point| point.seen.complete_per_s),
                    partial_us: median(|point| point.seen.partial.mean_us),
                    partial_p50_us: median(|point| point.seen.partial.p50_us),
                    cpu_ms_per_complete: median(|point| {
                        point.cpu_s_per_complete().unwrap_or(f64::INFINITY) * 1e3
                    }),
                    cores_used: median(|point| point.cores_used),
                });
            }
        }
        let best = best(&sizes).ok_or("no complete update was answered over TCP")?;
        let mut alone = Vec::new();
        for round in 0..effort.short_rounds {
            let asked = Asked {
                transport: Transport::Tcp,
                partitions: 1,
                block_bytes: best.block_bytes,
                load: Load::Rates {
                    complete_per_s: 0.0,
                    partial_per_s: effort.partial_per_s,
                },
            };
            let point = bench.measure(effort, round, asked)?;
            alone.push(point.seen.partial.mean_us);
        }
        Ok(Sweep {
            block_bytes: best.block_bytes,
            best_per_s: best.complete_per_s,
            alone_us: median(alone),
            sizes,
        })
    }

    /// The highest rate of a way, in complete updates per second.
    pub fn highest_per_s(&self, way: Way) -> f64 {
        let of_it = self.sizes.iter().filter(|size| {
            size.transport == way.transport()
                && (way.is_planned() || size.block_bytes == self.block_bytes)
        });
        of_it.map(|size| size.complete_per_s).fold(0.0, f64::max)
    }

    /// The block that a way uses for this rate of complete updates.
    pub fn block(&self, image_bytes: usize, way: Way, complete_per_s: f64) -> usize {
        if !way.is_planned() {
            return self.block_bytes;
        }
        let points = self.points(way.transport(), image_bytes);
        let bytes_per_s = complete_per_s * image_bytes as f64;
        planned(&points, bytes_per_s).unwrap_or(self.block_bytes)
    }

    /// The points of a link, for planning: the whole way from the source to the viewer, and the latency
    /// under full load.
    pub fn points(&self, transport: Transport, image_bytes: usize) -> Vec<LinkPoint> {
        let of_it = self.sizes.iter().filter(|size| size.transport == transport);
        let point = |size: &Size| LinkPoint {
            size_bytes: size.block_bytes,
            latency_ns: size.partial_p50_us * 1e3,
            bytes_per_s: size.complete_per_s * image_bytes as f64,
        };
        of_it.map(point).collect()
    }
}

/// The best size for TCP.
fn best(sizes: &[Size]) -> Option<Size> {
    let of_tcp = sizes.iter().filter(|size| size.transport == Transport::Tcp);
    let highest = of_tcp
        .clone()
        .map(|size| size.complete_per_s)
        .fold(0.0, f64::max);
    let mut good = of_tcp.filter(|size| size.complete_per_s >= highest * ALMOST);
    good.next().filter(|_| highest > 0.0).copied()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A block size of a link that reaches this rate.
    pub fn size(transport: Transport, block_bytes: usize, complete_per_s: f64) -> Size {
        Size {
            transport,
            block_bytes,
            complete_per_s,
            partial_us: 500.0,
            partial_p50_us: 400.0,
            cpu_ms_per_complete: 20.0,
            cores_used: 2.0,
        }
    }

    /// A sweep in which TCP's best block of 128 KiB reaches 96 complete updates per second.
    pub fn sweep() -> Sweep {
        let sizes = vec![
            size(Transport::Tcp, 8 << 10, 20.0),
            size(Transport::Tcp, 128 << 10, 96.0),
            size(Transport::Tcp, 256 << 10, 100.0),
            size(Transport::Shm, 8 << 10, 150.0),
            size(Transport::Shm, 128 << 10, 300.0),
            size(Transport::Shm, 256 << 10, 400.0),
        ];
        let best = best(&sizes).unwrap();
        Sweep {
            block_bytes: best.block_bytes,
            best_per_s: best.complete_per_s,
            alone_us: 600.0,
            sizes,
        }
    }

    #[test]
    fn the_best_block_is_the_smallest_that_comes_close_to_the_highest_rate() {
        let sweep = sweep();
        assert_eq!((sweep.block_bytes, sweep.best_per_s), (128 << 10, 96.0));
        assert_eq!(best(&[size(Transport::Tcp, 64, 0.0)]), None);
        assert_eq!(best(&[size(Transport::Shm, 64, 1.0)]), None);
    }

    #[test]
    fn ways_reach_what_their_blocks_reach() {
        let sweep = sweep();
        let highest = Way::ALL.map(|way| sweep.highest_per_s(way));
        assert_eq!(highest, [96.0, 300.0, 400.0, 100.0]);
        let points = sweep.points(Transport::Shm, 1 << 20);
        assert_eq!(points.len(), 3);
        assert_eq!(points[0].bytes_per_s, 150.0 * 1048576.0);
    }
}
