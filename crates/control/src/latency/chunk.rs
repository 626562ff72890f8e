//! The size of chunks: the smallest one that gives the required bandwidth.
//!
//! Every chunk costs a link a fixed time besides that of its bytes, so bandwidth grows with the size of
//! chunks, and so does the time for which a chunk delays whatever follows it. A faster link reaches the
//! same bandwidth with smaller chunks: cutting the data again for it saves far more latency than the link
//! alone does (Balaji et al., "Impact of High Performance Sockets on Data Intensive Applications", 2003:
//! re-partitioning).
//!
//! Below some size, smaller chunks no longer lower the latency, because they keep the link busy for
//! longer: that is the floor of a plan ([`latency_floor`]).
//!
//! The measured points become a curve: the time of a chunk is linear between two neighboring sizes,
//! constant below the smallest size, and in proportion to the bytes above the largest.

/// Chunks are multiples of a cache line.
pub const LINE_BYTES: usize = 64;

/// If a link can't give the required bandwidth, this share of its maximum is enough: the last few percent
/// cost chunks of many times the size.
const ALMOST: f64 = 0.95;

/// A wait within this factor of the least expected wait is as good: among such sizes the smallest is
/// taken.
const NEARLY_LEAST: f64 = 1.1;

/// The relative error of a sum of floating-point numbers that counts as zero.
const ROUNDING: f64 = 1e-9;

/// A link, or a path of several links, as measured with messages of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkPoint {
    /// The bytes of a message.
    pub size_bytes: usize,
    /// How long a message took.
    pub latency_ns: f64,
    /// The throughput without other traffic, in bytes per second.
    pub bytes_per_s: f64,
}

/// The requirements on a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// The required bytes per second.
    pub bytes_per_s: f64,
    /// The share of the bandwidth that must stay free: a fully used link has queues of any length. From 0
    /// to less than 1.
    pub reserve: f64,
    /// The cost of each chunk besides the link, in nanoseconds: the work of its ends. Zero if the points
    /// include it.
    pub chunk_cost_ns: f64,
    /// The smallest chunk: a row, what the format allows, or [`latency_floor`].
    pub floor_bytes: usize,
    /// The largest chunk, unless the floor is larger.
    pub ceiling_bytes: usize,
}

/// A size of chunks, and what to expect of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChunkPlan {
    /// The bytes of a chunk: a multiple of [`LINE_BYTES`].
    pub size_bytes: usize,
    /// The bandwidth with it, in bytes per second.
    pub bytes_per_s: f64,
    /// How long a chunk takes, in nanoseconds.
    pub latency_ns: f64,
    /// Whether the bandwidth meets the requirement, including the reserve. If not, the size is the
    /// smallest that comes within 5 % of the link's maximum.
    pub reaches: bool,
}

/// The smallest chunk with which a link that was measured at these points meets the requirements. Points
/// may come in any order; invalid ones (no bytes, no bandwidth, not a number) are ignored, and if none is
/// left there is no plan.
pub fn plan_chunk(points: &[LinkPoint], demand: &Demand) -> Option<ChunkPlan> {
    let curve = Curve::new(points, demand)?;
    let free = 1.0 - finite(demand.reserve).min(0.99);
    let needed = finite(demand.bytes_per_s) / 1e9 / free;
    if let Some(size_bytes) = curve.smallest(needed) {
        return Some(curve.plan(size_bytes, true));
    }
    let most = curve
        .knots
        .iter()
        .map(|&size| curve.bytes_per_ns(size))
        .fold(0.0, f64::max);
    let size_bytes = curve.smallest(most * ALMOST).unwrap_or(curve.ceiling);
    Some(curve.plan(size_bytes, false))
}

/// The measured size below which smaller chunks only cost: a link that carries a given number of bytes
/// per second is busy for that number divided by its bandwidth, and what comes meanwhile waits for about
/// the latency. So the expected wait is in proportion to latency divided by bandwidth, whatever the load,
/// and smallest where that ratio is. `latency_ns` is best measured while the link is full.
pub fn latency_floor(points: &[LinkPoint]) -> Option<usize> {
    let wait = |point: &LinkPoint| point.latency_ns / point.bytes_per_s;
    let sound = points.iter().filter(|point| {
        let numbers = point.latency_ns > 0.0 && point.bytes_per_s > 0.0;
        numbers && wait(point).is_finite() && point.size_bytes > 0
    });
    let least = sound.clone().map(wait).min_by(f64::total_cmp)?;
    let good = sound.filter(|point| wait(point) <= least * NEARLY_LEAST);
    good.map(|point| point.size_bytes).min()
}

/// The value, or zero if it is negative or not a number.
fn finite(value: f64) -> f64 {
    if value.is_finite() {
        value.max(0.0)
    } else {
        0.0
    }
}

/// A measured size.
#[derive(Clone, Copy)]
struct Measured {
    size: f64,
    /// The time from one message to the next.
    time_ns: f64,
    latency_ns: f64,
}

/// The time of a chunk as a function of its size.
struct Curve {
    /// The measurements in ascending order of size, each size once.
    measured: Vec<Measured>,
    chunk_cost_ns: f64,
    /// The floor, as a multiple of a line.
    floor: usize,
    ceiling: usize,
    /// The floor, the measured sizes between it and the ceiling, and the ceiling: between two neighbors
    /// everything is linear.
    knots: Vec<usize>,
}

impl Curve {
    fn new(points: &[LinkPoint], demand: &Demand) -> Option<Curve> {
        let sound = points.iter().filter(|point| {
            point.size_bytes > 0 && point.bytes_per_s.is_finite() && point.bytes_per_s > 0.0
        });
        let mut measured = sound
            .map(|point| Measured {
                size: point.size_bytes as f64,
                time_ns: point.size_bytes as f64 / point.bytes_per_s * 1e9,
                latency_ns: finite(point.latency_ns),
            })
            .filter(|point| point.time_ns.is_finite() && point.time_ns > 0.0)
            .collect::<Vec<_>>();
        // If a size was measured several times, the slowest measurement counts.
        measured.sort_by(|one, other| {
            let by_size = one.size.total_cmp(&other.size);
            by_size.then(other.time_ns.total_cmp(&one.time_ns))
        });
        measured.dedup_by(|later, kept| later.size == kept.size);
        if measured.is_empty() {
            return None;
        }
        // A size beyond 2^52 has no neighbours among floating-point numbers, and no use.
        let floor = demand.floor_bytes.clamp(1, 1 << 52);
        let floor = floor.next_multiple_of(LINE_BYTES);
        let ceiling = demand.ceiling_bytes.min(1 << 52) / LINE_BYTES * LINE_BYTES;
        let ceiling = ceiling.max(floor);
        let between = measured.iter().map(|point| point.size as usize);
        let between = between.filter(|size| (floor + 1..ceiling).contains(size));
        let mut knots = vec![floor];
        knots.extend(between);
        knots.push(ceiling);
        Some(Curve {
            measured,
            chunk_cost_ns: finite(demand.chunk_cost_ns),
            floor,
            ceiling,
            knots,
        })
    }

    /// A quantity of the points, interpolated at any size; `beyond` gives it for larger sizes.
    fn at(&self, size: f64, value: fn(&Measured) -> f64) -> f64 {
        let behind = self.measured.partition_point(|point| point.size < size);
        let last = self.measured.len() - 1;
        if behind == 0 {
            return value(&self.measured[0]);
        }
        if behind > last {
            return value(&self.measured[last]) * size / self.measured[last].size;
        }
        let (low, high) = (&self.measured[behind - 1], &self.measured[behind]);
        let share = (size - low.size) / (high.size - low.size);
        value(low) + (value(high) - value(low)) * share
    }

    fn bytes_per_ns(&self, size_bytes: usize) -> f64 {
        let size = size_bytes as f64;
        size / (self.at(size, |point| point.time_ns) + self.chunk_cost_ns)
    }

    /// How many bytes more than required a chunk carries in its time: linear between knots, and at least
    /// 0 if the bandwidth suffices.
    fn surplus(&self, size_bytes: usize, needed_per_ns: f64) -> f64 {
        let size = size_bytes as f64;
        let time_ns = self.at(size, |point| point.time_ns) + self.chunk_cost_ns;
        size * (1.0 + ROUNDING) - needed_per_ns * time_ns
    }

    /// The smallest multiple of a line that gives this bandwidth.
    fn smallest(&self, needed_per_ns: f64) -> Option<usize> {
        let surplus = |size| self.surplus(size, needed_per_ns);
        for pair in self.knots.windows(2) {
            let (low, high) = (pair[0], pair[1]);
            let (at_low, at_high) = (surplus(low), surplus(high));
            let from = if at_low >= 0.0 {
                low
            } else if at_high >= 0.0 {
                let share = -at_low / (at_high - at_low);
                // Rounded down, so that the search below skips no line.
                low + ((high - low) as f64 * share) as usize
            } else {
                continue;
            };
            // At most the line at which the surplus begins, and the next one.
            let first = from / LINE_BYTES * LINE_BYTES;
            let lines = [first, first + LINE_BYTES, first + 2 * LINE_BYTES];
            let within = |line: &usize| (low..=high).contains(line) && surplus(*line) >= 0.0;
            if let Some(line) = lines.into_iter().find(within) {
                return Some(line);
            }
        }
        None
    }

    fn plan(&self, size_bytes: usize, reaches: bool) -> ChunkPlan {
        debug_assert!((self.floor..=self.ceiling).contains(&size_bytes));
        ChunkPlan {
            size_bytes,
            bytes_per_s: self.bytes_per_ns(size_bytes) * 1e9,
            latency_ns: self.at(size_bytes as f64, |point| point.latency_ns),
            reaches,
        }
    }
}

#[cfg(test)]
mod tests;
