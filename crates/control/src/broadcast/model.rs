//! The cost of a broadcast, and the cheapest way to send it.
//!
//! The inputs come from the host's calibration: what a message of a size costs a link's busier side, how
//! long it takes, and what a wake-up costs. From these the model computes, for a tree,
//!
//! - its **latency**: each sender sends to its receivers one after the other, a sleeping receiver is
//!   woken, and a relay starts when it has the message; but not less than all the work takes on the cores
//!   available;
//! - its **period**, from one message to the next when they follow each other without a gap: the work of
//!   the busiest participant, when nobody sleeps; but again not less than all the work divided by the
//!   cores.
//!
//! A message that is cut into segments travels like a train: its first segment takes the tree's latency,
//! each further one a period, and a wake-up, since receivers fall asleep between two. So relays forward
//! one segment while the next is on its way. Cutting makes no byte cheaper: small messages gain on links
//! by fitting into caches, but a train of them doesn't.
//!
//! With fewer cores than processes the amount of work decides, and the way with the least work is best
//! for both: the ordering of Kamburugamuve et al. (2016), ring for throughput and tree for latency, is
//! for hosts with cores and network cards of their own.

use super::{Algorithm, Place, Tree};
use crate::latency::chunk::LinkPoint;

/// The smallest segments: below this, a message's fixed cost is most of its cost on every link that we
/// have measured.
pub const SEGMENT_BYTES_MIN: usize = 16 << 10;

/// Larger messages that follow each other are cut if a relay forwards them. A relay holds several at
/// once; so many of that size leave the caches and need fresh pages each time, which costs more than the
/// messages (`docs/benchmarks/broadcast.md`).
pub const RELAYED_BYTES_MAX: usize = 256 << 10;

/// The share of the busiest participant's work that the others wait for if they share cores: of two ways
/// with about equal work, the one that spreads it is faster. A tenth is enough to decide between those;
/// measured, the origin of a flat tree, which makes all system calls, makes it slower by up to a half.
const BUSIEST_SHARE: f64 = 0.1;

/// The costs that make up a broadcast.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// Links between processes, measured with messages of several sizes, in any order.
    pub between_processes: Vec<LinkPoint>,
    /// Links between hosts, likewise.
    pub between_hosts: Vec<LinkPoint>,
    /// The CPU time, in nanoseconds, of encoding a message, once, and of decoding it, for each receiver
    /// in another process than its parent. It doesn't depend on the size: bytes are passed by reference.
    pub codec_ns: f64,
    /// The CPU time, in nanoseconds, of passing a message to another instance of the process and of
    /// taking it there. Nothing is copied.
    pub hand_over_ns: f64,
    /// The cost of waking a receiver in another process. Receivers within a process mostly share its
    /// workers.
    pub wake: Wake,
    /// Whether a message to several processes of the sender's host is written once for all of them.
    pub written_once: bool,
    /// The cores that all participants share.
    pub cores: usize,
}

/// A wake-up, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wake {
    /// The CPU time of the side that wakes.
    pub ring_ns: f64,
    /// The CPU time of both sides together.
    pub work_ns: f64,
    /// The time from the wake-up until the sleeper looks.
    pub until_look_ns: f64,
}

/// What to minimize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// The time until the last receiver has a message.
    Latency,
    /// The time from one message to the next.
    Throughput,
}

/// An estimate of a broadcast's times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The time until the last receiver has the message, in nanoseconds.
    pub latency_ns: f64,
    /// The time from one message to the next, in nanoseconds.
    pub period_ns: f64,
}

/// A way to broadcast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The size of segments; `None` for whole messages.
    pub segment_bytes: Option<usize>,
    /// The estimate for this choice.
    pub estimate: Estimate,
}

/// The cheapest way for messages of this many bytes. Between equals, the simpler one wins.
pub fn choose(
    costs: &Costs,
    origin: Place,
    receivers: &[Place],
    message_bytes: usize,
    aim: Aim,
) -> Choice {
    let choices = Algorithm::ALL.into_iter();
    let choices = choices
        .map(|algorithm| with_segments(costs, algorithm, origin, receivers, message_bytes, aim));
    let cheapest = choices.reduce(|best, other| {
        if is_cheaper(&other.estimate, &best.estimate, aim) {
            other
        } else {
            best
        }
    });
    cheapest.expect("there are algorithms")
}

/// The best segments for an algorithm.
pub fn with_segments(
    costs: &Costs,
    algorithm: Algorithm,
    origin: Place,
    receivers: &[Place],
    message_bytes: usize,
    aim: Aim,
) -> Choice {
    let tree = &Tree::new(algorithm, origin, receivers);
    let mut best = Choice {
        algorithm,
        segment_bytes: None,
        estimate: passage(costs, tree, origin, receivers, message_bytes, message_bytes)
            .estimate(1, costs),
    };
    let relayed = tree.children.iter().any(|below| !below.is_empty());
    let mut segment_bytes = message_bytes.next_power_of_two() / 2;
    while segment_bytes >= SEGMENT_BYTES_MIN {
        let segments = message_bytes.div_ceil(segment_bytes);
        let one = passage(costs, tree, origin, receivers, segment_bytes, message_bytes);
        let estimate = one.estimate(segments, costs);
        let must_be_cut =
            relayed && best.segment_bytes.unwrap_or(message_bytes) > RELAYED_BYTES_MAX;
        if must_be_cut || is_cheaper(&estimate, &best.estimate, aim) {
            best.segment_bytes = Some(segment_bytes);
            best.estimate = estimate;
        }
        segment_bytes /= 2;
    }
    best
}

fn is_cheaper(one: &Estimate, other: &Estimate, aim: Aim) -> bool {
    let figures = |estimate: &Estimate| match aim {
        Aim::Latency => (estimate.latency_ns, estimate.period_ns),
        Aim::Throughput => (estimate.period_ns, estimate.latency_ns),
    };
    let (one, other) = (figures(one), figures(other));
    one.0
        .total_cmp(&other.0)
        .then(one.1.total_cmp(&other.1))
        .is_lt()
}

/// One message through a tree.
struct Passage {
    /// The time until the last receiver has the message, if all were asleep before, on cores of their
    /// own.
    path_ns: f64,
    /// The work of all participants, without wake-ups.
    work_ns: f64,
    wakes_ns: f64,
    /// The work of the busiest participant, without wake-ups.
    busiest_ns: f64,
}

impl Passage {
    /// The estimate for this many messages.
    fn estimate(&self, messages: usize, costs: &Costs) -> Estimate {
        let (messages, cores) = (messages as f64, costs.cores.max(1) as f64);
        let shared_ns = self.work_ns / cores + BUSIEST_SHARE * self.busiest_ns;
        let period_ns = self.busiest_ns.max(shared_ns);
        let path_ns = self.path_ns + (messages - 1.0) * (period_ns + costs.wake.ring_ns);
        let work_ns = (messages * self.work_ns + self.wakes_ns) / cores;
        Estimate {
            latency_ns: path_ns.max(work_ns),
            period_ns: messages * period_ns,
        }
    }
}

/// What `bytes` bytes of a message of `message_bytes` cost.
fn passage(
    costs: &Costs,
    tree: &Tree,
    origin: Place,
    receivers: &[Place],
    bytes: usize,
    message_bytes: usize,
) -> Passage {
    let share = bytes as f64 / message_bytes.max(1) as f64;
    // What a link costs each of its sides, and what the message is on its way besides.
    let of_links = [&costs.between_processes, &costs.between_hosts].map(|points| {
        let (alone_ns, latency_ns) = of_link(points, bytes);
        let link_ns = alone_ns.max(share * of_link(points, message_bytes).0);
        (link_ns, (latency_ns - link_ns).max(0.0))
    });
    let mut passage = Passage {
        path_ns: 0.0,
        work_ns: 0.0,
        wakes_ns: 0.0,
        busiest_ns: 0.0,
    };
    // The senders: where they are, to whom they send, when they have the message, and what receiving it
    // took.
    let mut roots = tree.roots.iter();
    let leaves = roots.any(|&receiver| receivers[receiver].process != origin.process);
    let encode_ns = if leaves { costs.codec_ns } else { 0.0 };
    passage.work_ns += encode_ns;
    let mut senders = vec![(origin, &tree.roots, encode_ns, encode_ns)];
    while let Some((place, below, mut time_ns, mut busy_ns)) = senders.pop() {
        let mut written = false;
        let (near, far): (Vec<usize>, Vec<usize>) = below
            .iter()
            .copied()
            .partition(|&receiver| receivers[receiver].process == place.process);
        for receiver in far {
            let crosses = receivers[receiver].host != place.host;
            let (link_ns, on_the_way_ns) = of_links[usize::from(crosses)];
            let place = receivers[receiver];
            let send_ns = if written && costs.written_once && !crosses {
                0.0
            } else {
                link_ns
            };
            written |= !crosses;
            let below = &tree.children[receiver];
            let receive_ns = link_ns + costs.codec_ns;
            busy_ns += send_ns;
            time_ns += send_ns;
            let arrival_ns = time_ns + on_the_way_ns + costs.wake.until_look_ns + costs.codec_ns;
            time_ns += costs.wake.ring_ns;
            passage.work_ns += send_ns + receive_ns;
            passage.wakes_ns += costs.wake.work_ns;
            passage.path_ns = passage.path_ns.max(arrival_ns);
            senders.push((place, below, arrival_ns, receive_ns));
        }
        for receiver in near {
            busy_ns += costs.hand_over_ns;
            time_ns += costs.hand_over_ns;
            passage.work_ns += costs.hand_over_ns;
            passage.path_ns = passage.path_ns.max(time_ns);
            // Receivers in the same process forward what they have, on the same workers.
            senders.push((place, &tree.children[receiver], time_ns, 0.0));
        }
        passage.busiest_ns = passage.busiest_ns.max(busy_ns);
    }
    passage
}

/// The cost of the message's bytes to each side of a link with these points, and how long they take:
/// linear between the measured sizes, constant below the smallest, and in proportion to the bytes
/// above the largest. Zero without measurements.
fn of_link(points: &[LinkPoint], message_bytes: usize) -> (f64, f64) {
    let mut points = points.to_vec();
    points.retain(|point| point.bytes_per_s > 0.0 && point.size_bytes > 0);
    points.sort_by_key(|point| point.size_bytes);
    let figures = |point: &LinkPoint| {
        let send_ns = point.size_bytes as f64 / point.bytes_per_s * 1e9;
        (send_ns, point.latency_ns)
    };
    let behind = points.partition_point(|point| point.size_bytes < message_bytes);
    match (
        behind.checked_sub(1).map(|last| &points[last]),
        points.get(behind),
    ) {
        (None, None) => (0.0, 0.0),
        (None, Some(first)) => figures(first),
        (Some(last), None) => {
            let factor = message_bytes as f64 / last.size_bytes as f64;
            let (send_ns, latency_ns) = figures(last);
            (send_ns * factor, latency_ns * factor)
        }
        (Some(low), Some(high)) => {
            let share =
                (message_bytes - low.size_bytes) as f64 / (high.size_bytes - low.size_bytes) as f64;
            let (low, high) = (figures(low), figures(high));
            let between = |low: f64, high: f64| low + (high - low) * share;
            (between(low.0, high.0), between(low.1, high.1))
        }
    }
}
#[cfg(test)]
mod tests;
