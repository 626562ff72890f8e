//! Measures links: two threads or processes on two cores, connected by one kind of link.
//!
//! ```text
//! whoever measures ── orders, samples (JSON lines) ── leader ══ the link that is measured ══ follower
//!  bench link, calibrate                              core A └─── control socket ──────────┘ core B
//! ```
//!
//! Every kind runs the same loops (`patterns.rs`) over the same few calls ([`side::Side`]), and so do the
//! peers in `crates/bench/peers`, which compile these files, too: so this module uses nothing else from this
//! crate. A leader and its follower stay alive and sleep between two orders, so rounds can measure all kinds
//! in turn.
//!
//! # What the figures contain
//!
//! - A **message** of 64 bytes to 4 MiB carries its number in its first word; who receives it checks
//!   the number and reads a byte of every cache line.
//! - **One way latency** is half of the round trip of a message that the follower sends back. Each
//!   round trip is timed separately, and about one reading of the clock ([`floor::clock_ns`]) lies
//!   within it: nothing is subtracted. `batched_ns` is the median over batches of round trips of
//!   half of the mean, with nothing between them.
//! - **Throughput**: the leader sends as fast as the link takes messages, for a while, and then
//!   waits until the follower says that it has read them all. Small messages are pushed (or written)
//!   by the batch, at most 64 of them and 16 KiB, whatever the kind.
//! - Links inside a process carry ownership and no bytes. Their messages of 64 bytes go by value,
//!   larger ones are buffers that the leader fills and the follower gives back.
//! - **CPU time** is that of each side's thread (`CLOCK_THREAD_CPUTIME_ID`), over the same messages.
//!
//! Shutdown: the end of the leader's standard input ends the leader, and the end of the control socket ends
//! the follower. A side that fails, or waits for a minute, ends with an error.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub mod floor;

pub mod control;
pub mod order;
pub mod patterns;
pub mod side;

pub mod frames;
pub mod queues;

pub mod leader;
pub mod program;

pub use order::{Latency, Order, Pattern, Sample, Waiting};

/// Sizes of messages from 64 B to 4 MiB.
pub const SIZES: [usize; 9] = [
    64,
    256,
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
];

/// The largest message.
pub const SIZE_MAX: usize = 4 << 20;

/// Bytes of a shared-memory lane, as a deployment gives to one link; also what buffers of a link
/// inside a process have together.
pub const RING_BYTES: usize = 8 << 20;

/// How long an end waits for the other one before it gives up: far longer than any point takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What connects the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A link between two threads of one process.
    InProcess,
    /// Shared memory; frames are read where they lie.
    ShmLent,
    /// Shared memory; frames are copied out of the ring first.
    ShmCopied,
    /// The TCP link over the loopback interface.
    TcpLink,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 4] = [
        Kind::InProcess,
        Kind::ShmLent,
        Kind::ShmCopied,
        Kind::TcpLink,
    ];

    /// The kind's name on the command line, in tables and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::InProcess => "in-process",
            Kind::ShmLent => "shm-lent",
            Kind::ShmCopied => "shm-copied",
            Kind::TcpLink => "tcp-link",
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The two cores that the sides are pinned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cores {
    /// The core of the leader, which sends.
    pub leader: usize,
    /// The core of the follower, which receives.
    pub follower: usize,
}

/// Pins the calling thread to a core.
pub fn pin(core: usize) -> Result<(), String> {
    slackwater_link::pin_to_core(core).map_err(|error| error.to_string())
}

/// The CPU time of the calling thread.
pub fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    // The kernel counts up from zero: neither is negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Median, smallest and largest of some values.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of some values; zeros without any.
    pub fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
            return Spread::default();
        };
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Spread {
            median: low.midpoint(high),
            min,
            max,
        }
    }
}

/// The median of some values; 0 without any.
pub fn median(values: Vec<f64>) -> f64 {
    Spread::of(values).median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_in_the_middle() {
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![9.0, 1.0, 2.0, 4.0]), 3.0);
        assert_eq!(median(Vec::new()), 0.0);
        let spread = Spread::of(vec![5.0, 3.0]);
        assert_eq!((spread.min, spread.max), (3.0, 5.0));
    }

    #[test]
    fn kinds_are_found_by_their_names() {
        for kind in Kind::ALL {
            assert_eq!(Kind::named(kind.name()), Some(kind));
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{kind}\""));
        }
        assert_eq!(Kind::named("shm"), None);
    }
}
