//! Latency and bandwidth of each kind of link, by size of message.

use serde::{Deserialize, Serialize};

use super::{link_leader, point_time};
use crate::measure::leader::Leader;
use crate::measure::order::Answer;
use crate::measure::{Cores, Kind, Order, Pattern, SIZES, Waiting};

/// The kinds that a plan may choose from.
const KINDS: [Kind; 3] = [Kind::InProcess, Kind::ShmLent, Kind::TcpLink];

/// The sizes that `--quick` measures.
const SIZES_QUICK: [usize; 4] = [64, 4 << 10, 64 << 10, 1 << 20];

/// The cost of a link between two cores, both ends polling.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkCost {
    /// The link's kind.
    pub kind: Kind,
    /// The bytes of a message.
    pub size_bytes: usize,
    /// The one-way latency, in the median.
    pub latency_p50_ns: f64,
    /// The 99th percentile of the one-way latency.
    pub latency_p99_ns: f64,
    /// Messages per second, one way.
    pub messages_per_s: f64,
    /// Billions of bytes per second, one way.
    pub gb_per_s: f64,
}

/// Measures all kinds and sizes.
pub fn links(cores: Cores, quick: bool) -> Result<Vec<LinkCost>, String> {
    let sizes: &[usize] = if quick { &SIZES_QUICK } else { &SIZES };
    let mut costs = Vec::new();
    for kind in KINDS {
        let mut leader = Leader::start(kind.name(), link_leader(kind, cores)?)?;
        for &size_bytes in sizes {
            let mut sample = |pattern| {
                let order = Order {
                    pattern,
                    waiting: Waiting::Poll,
                    size_bytes,
                    time_ms: point_time(quick).as_millis() as u64,
                };
                match leader.measure(&order)? {
                    Answer::Sample(sample) => Ok(sample),
                    Answer::Unsupported(reason) => Err(format!("{kind}: {reason}")),
                }
            };
            let latency = sample(Pattern::PingPong)?.latency.unwrap_or_default();
            let stream = sample(Pattern::Stream)?;
            costs.push(LinkCost {
                kind,
                size_bytes,
                latency_p50_ns: latency.p50_ns,
                latency_p99_ns: latency.p99_ns,
                messages_per_s: stream.messages_per_s(),
                gb_per_s: stream.gb_per_s(size_bytes),
            });
        }
    }
    Ok(costs)
}
