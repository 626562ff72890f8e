//! Counters in fixed slots: the hot path adds, nobody else writes, anybody may read (I8).

use std::sync::atomic::{AtomicU64, Ordering};

use slackwater_link::IdleCounters;

use crate::hash::{BUCKETS, bucket};
use crate::latency::LatencySlots;

/// Sources whose late rows are told apart: 32 slots are 256 bytes an instance, and more than a query has tables.
/// The late rows of further ones count only in all.
pub const SOURCES_COUNTED: usize = 32;

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
    /// Those of them whose source is known, by its number among the sources of the query.
    pub late_by_source: [AtomicU64; SOURCES_COUNTED],
    /// Records and rows refused.
    pub rows_bad: AtomicU64,
    /// Connections of its source that were lost.
    pub connections_lost: AtomicU64,
    /// Chunks taken from the source or from links.
    pub chunks: AtomicU64,
    /// Latency of the chunk that reached a sink last, in nanoseconds.
    pub latency_recent_ns: AtomicU64,
    /// Bytes that its head operator held when they were looked at last.
    pub state_bytes: AtomicU64,
    /// At most.
    pub state_bytes_max: AtomicU64,
    /// The source: reading and decoding.
    pub source: StepCounters,
    /// Its operators, routes and sinks, by step.
    pub steps: Vec<StepCounters>,
}

/// What an operator, a route, a source or a sink counts.
#[derive(Debug, Default)]
pub struct StepCounters {
    /// Time spent in it and not in what follows it, in nanoseconds: CPU time unless the thread was
    /// preempted meanwhile.
    pub busy_ns: AtomicU64,
    /// Chunks that it took.
    pub chunks: AtomicU64,
    /// Rows that it took.
    pub rows: AtomicU64,
    /// Of a sink with a latency target: how late its rows left.
    pub latency: Option<LatencySlots>,
    /// Of a route that splits by key: about how many rows each bucket had.
    pub buckets: Option<Box<[AtomicU64]>>,
}

impl StepCounters {
    pub(crate) fn add(&self, busy_ns: u64, rows: u64) {
        self.add_busy(busy_ns);
        InstanceCounters::add(&self.chunks, 1);
        InstanceCounters::add(&self.rows, rows);
    }

    /// Counts rows by the buckets of their hashes, each as `weight`.
    pub(crate) fn count_buckets(&self, hashes: &[u64], weight: u64) {
        let Some(buckets) = &self.buckets else {
            return;
        };
        for &hash in hashes {
            let slot = &buckets[bucket(hash)];
            // A store, since only the worker writes: an addition would lock the bus.
            slot.store(slot.load(Ordering::Relaxed) + weight, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_busy(&self, busy_ns: u64) {
        InstanceCounters::add(&self.busy_ns, busy_ns);
    }
}

/// What one worker counts.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// Its thread's number, for the system's own count of its CPU time.
    pub thread: AtomicU64,
    /// Time between waits, in nanoseconds.
    pub busy_ns: AtomicU64,
    /// Waits behind which there was something to do.
    pub activations: AtomicU64,
    /// Timed sleeps.
    pub sleeps: AtomicU64,
    /// Timed sleeps that a ring ended before their time.
    pub sleeps_ended_early: AtomicU64,
    /// Waits without a time-out of the mode's own.
    pub parks: AtomicU64,
    /// What the sleeps were to last, in all.
    pub asked_ns: AtomicU64,
    /// What they lasted.
    pub slept_ns: AtomicU64,
    /// How often `auto` went from one mode to the other.
    pub changes: AtomicU64,
}

impl WorkerCounters {
    pub(crate) fn waited(&self, busy_ns: u64, worked: bool, idle: IdleCounters) {
        // Stores, since only the worker writes: an addition would lock the bus.
        let add = |slot: &AtomicU64, amount: u64| {
            slot.store(slot.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
        };
        add(&self.busy_ns, busy_ns);
        add(&self.activations, u64::from(worked));
        self.sleeps.store(idle.sleeps, Ordering::Relaxed);
        self.sleeps_ended_early
            .store(idle.sleeps_ended_early, Ordering::Relaxed);
        self.parks.store(idle.parks, Ordering::Relaxed);
        self.asked_ns.store(idle.asked_ns, Ordering::Relaxed);
        self.slept_ns.store(idle.slept_ns, Ordering::Relaxed);
        self.changes.store(idle.changes, Ordering::Relaxed);
    }
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
    /// Slots for an instance of so many steps; `sinks` are those whose latency is watched, `keyed` the
    /// routes that split by key.
    pub fn new(steps: usize, sinks: &[usize], keyed: &[usize]) -> InstanceCounters {
        let buckets = || (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        let steps = (0..steps).map(|step| StepCounters {
            latency: sinks.contains(&step).then(LatencySlots::default),
            buckets: keyed.contains(&step).then(buckets),
            ..StepCounters::default()
        });
        InstanceCounters {
            steps: steps.collect(),
            ..InstanceCounters::default()
        }
    }

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
