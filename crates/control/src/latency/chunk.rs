//! The size of chunks: the smallest one that brings the bandwidth that is needed.
//!
//! Every chunk costs a link a fixed time beside that of its bytes, so bandwidth grows with the size
//! of chunks, and so does the time for which a chunk keeps whatever comes behind it waiting. A
//! faster link reaches the same bandwidth with smaller chunks: cutting the data anew for it saves
//! far more latency than the link does by itself (Balaji et al., "Impact of High Performance
//! Sockets on Data Intensive Applications", 2003: re-partitioning).
//!
//! Below some size smaller chunks lower no latency any more, because they keep the link busy for
//! longer: that is the floor of a plan ([`latency_floor`]).
//!
//! The measured points become a curve: the time that a chunk takes is a straight line between two
//! neighbouring sizes, the same as the smallest size's below it, and in proportion to the bytes
//! above the largest.

/// Chunks are multiples of a cache line.
pub const LINE_BYTES: usize = 64;

/// How close to the most that a link can do counts as all of it, where it can't do what is needed:
/// the last few per cent of bandwidth cost chunks of many times the size.
const ALMOST: f64 = 0.95;

/// How close to the least expected wait is as good: of such sizes the smallest counts.
const NEARLY_LEAST: f64 = 1.1;

/// Relative error of a sum of floating-point numbers that is taken for none.
const ROUNDING: f64 = 1e-9;

/// A link, or a path of several, as it was measured with messages of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkPoint {
    /// Bytes of a message.
    pub size_bytes: usize,
    /// How long a message took.
    pub latency_ns: f64,
    /// What went through when nothing else did, in bytes per second.
    pub bytes_per_s: f64,
}

/// What is needed of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// The share of the bandwidth that is to stay free: a link in use to the full has queues of any
    /// length. From 0 to less than 1.
    pub reserve: f64,
    /// What each chunk costs beside the link: the work of its ends, in nanoseconds. Zero where the
    /// points contain it.
    pub chunk_cost_ns: f64,
    /// No chunk is smaller: a row, what the format allows, or [`latency_floor`].
    pub floor_bytes: usize,
    /// None is larger, unless the floor is.
    pub ceiling_bytes: usize,
}

/// The size to use, and what to expect of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChunkPlan {
    /// Bytes of a chunk: a multiple of [`LINE_BYTES`].
    pub size_bytes: usize,
    /// The bandwidth with it, in bytes per second.
    pub bytes_per_s: f64,
    /// How long a chunk of it takes.
    pub latency_ns: f64,
    /// Whether that is what is needed, reserve included. Otherwise the size is the smallest that
    /// comes within 5 % of the most that the link can do.
    pub reaches: bool,
}

/// The smallest chunk with which a link that was measured at these points brings what is needed.
/// Points may come in any order; those that can't be (no bytes, no bandwidth, no number) count for
/// nothing, and with none left there is no plan.
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

/// The measured size below which chunks only cost: a link that carries so many bytes per second is
/// busy for that number by its bandwidth of the time, and what comes then waits for about the
/// latency. So the wait to be expected is in proportion to latency by bandwidth, whatever the load,
/// and smallest at the size where that is. `latency_ns` is best measured while the link is full.
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

/// Zero for what is negative or no number.
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
    /// From one message to the next.
    time_ns: f64,
    latency_ns: f64,
}

/// The time of a chunk by its size.
struct Curve {
    /// In rising order of size, each size once.
    measured: Vec<Measured>,
    chunk_cost_ns: f64,
    /// In multiples of a line.
    floor: usize,
    ceiling: usize,
    /// The floor, the measured sizes between it and the ceiling, and the ceiling: between two
    /// neighbours all is linear.
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
        // Of several measurements of a size the slowest one is believed.
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

    /// A value of the points at any size between them; `beyond` gives it for larger ones.
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

    /// By how many bytes a chunk is larger than what is needed in its time: linear between knots,
    /// and at least 0 where the bandwidth suffices.
    fn surplus(&self, size_bytes: usize, needed_per_ns: f64) -> f64 {
        let size = size_bytes as f64;
        let time_ns = self.at(size, |point| point.time_ns) + self.chunk_cost_ns;
        size * (1.0 + ROUNDING) - needed_per_ns * time_ns
    }

    /// The smallest multiple of a line that brings so much.
    fn smallest(&self, needed_per_ns: f64) -> Option<usize> {
        let surplus = |size| self.surplus(size, needed_per_ns);
        for pair in self.knots.windows(2) {
            let (low, high) = (pair[0], pair[1]);
            let (at_low, at_high) = (surplus(low), surplus(high));
            let from = if at_low >= 0.0 {
                low
            } else if at_high >= 0.0 {
                let share = -at_low / (at_high - at_low);
                // Rounded down, so that the search below passes no line.
                low + ((high - low) as f64 * share) as usize
            } else {
                continue;
            };
            // At most the line at which the surplus begins, and the one behind it.
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
