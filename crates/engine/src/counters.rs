//! Counters in fixed slots: the hot path adds, nobody else writes, anybody may read (I8).

use std::sync::atomic::{AtomicU64, Ordering};

/// What one instance counts. Written by its worker only; a reader sees values that are a little
/// old, never torn.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct InstanceCounters {
    /// Records read from the source, bad ones included.
    pub rows_in: AtomicU64,
    /// Rows handed to sinks.
    pub rows_out: AtomicU64,
    /// Rows dropped because all their windows were closed.
    pub rows_late: AtomicU64,
    /// Records and rows refused.
    pub rows_bad: AtomicU64,
    /// Chunks taken from the source or from links.
    pub chunks: AtomicU64,
    /// Latency of the chunk that reached a sink last, in nanoseconds.
    pub latency_recent_ns: AtomicU64,
}

/// What one side of a link between processes counts; each side has its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LinkCounters {
    /// Messages sent, or received.
    pub messages: AtomicU64,
    /// Bytes of their frames.
    pub bytes: AtomicU64,
    /// Time spent on sending (encode, copy, ring) or receiving (find, decode, check), in
    /// nanoseconds: CPU time unless the thread was preempted meanwhile, for neither side blocks.
    pub busy_ns: AtomicU64,
}

impl LinkCounters {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        InstanceCounters::add(counter, amount);
    }
}

impl InstanceCounters {
    /// Adds to a counter.
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        if amount > 0 {
            // Relaxed: a count publishes nothing but itself.
            counter.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Reads a counter.
    pub fn read(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}
