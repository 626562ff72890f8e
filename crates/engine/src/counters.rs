//! Counters in fixed slots: the hot path adds, nobody else writes, anybody may read (I8).

pub mod clock;
mod cut;

use std::sync::atomic::{AtomicU64, Ordering};

use slackwater_link::IdleCounters;

use crate::hash::{BUCKETS, bucket};
use crate::latency::LatencySlots;
use crate::time::{EventTime, MIN_WATERMARK};
pub use cut::CutCounts;

/// The most sources whose late rows are counted separately: 32 slots are 256 bytes an instance, and more
/// than a query has tables. Late rows of further sources count only in the total.
pub const SOURCES_COUNTED: usize = 32;

/// The counters of one instance. Only its worker writes them; a reader sees values that are slightly old,
/// never torn.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct InstanceCounters {
    /// Records read from the source, bad ones included.
    pub rows_in: AtomicU64,
    /// Rows handed to sinks.
    pub rows_out: AtomicU64,
    /// Rows dropped because all their windows were closed.
    pub rows_late: AtomicU64,
    /// The late rows whose source is known, by its number among the sources of the query.
    pub late_by_source: [AtomicU64; SOURCES_COUNTED],
    /// Records and rows rejected.
    pub rows_bad: AtomicU64,
    /// Lost connections of the source.
    pub connections_lost: AtomicU64,
    /// Chunks taken from the source or from links.
    pub chunks: AtomicU64,
    /// The latency of the last chunk that reached a sink, in nanoseconds.
    pub latency_recent_ns: AtomicU64,
    /// The threads that have parsed for the source, besides its worker.
    pub parsers: AtomicU64,
    /// The time that they have spent, in nanoseconds; also part of the source's.
    pub parsers_busy_ns: AtomicU64,
    /// The bytes that the head operator held when last measured.
    pub state_bytes: AtomicU64,
    /// The most bytes that the head operator has held.
    pub state_bytes_max: AtomicU64,
    /// The watermark of the last input, as [`InstanceCounters::watermark_us`] reads it; 0 before the first.
    pub watermark: AtomicU64,
    /// 1 while all inputs are idle or have ended, so that they hold no watermark back.
    pub silent: AtomicU64,
    /// The source's counters: reading and decoding.
    pub source: StepCounters,
    /// The counters of the operators, routes and sinks, by step.
    pub steps: Vec<StepCounters>,
}

/// The counters of an operator, a route, a source or a sink.
#[derive(Debug, Default)]
pub struct StepCounters {
    /// Time spent in the step and not in those after it, in nanoseconds: CPU time unless the thread was
    /// preempted.
    pub busy_ns: AtomicU64,
    /// Chunks that the step took.
    pub chunks: AtomicU64,
    /// Rows that the step took.
    pub rows: AtomicU64,
    /// For a sink with a latency target: how long more than one row in a hundred was late, in nanoseconds,
    /// without the second that has not ended.
    pub violated_ns: AtomicU64,
    /// Set from outside, for a sink: the latency that 99 of 100 rows are to stay below, in nanoseconds; 0 if
    /// it has no target.
    pub target_ns: AtomicU64,
    /// Set from outside, for a sink with a latency target: by how much the latencies of its rows may be
    /// wrong, in nanoseconds. A row counts as late that may have been.
    pub latency_error_ns: AtomicU64,
    /// For a sink: the latencies of its rows.
    pub latency: Option<LatencySlots>,
    /// For a route that splits by key: about how many rows each bucket had.
    pub buckets: Option<Box<[AtomicU64]>>,
}

impl InstanceCounters {
    /// Counts what other threads have done for the source.
    pub(crate) fn helped(&self, threads: usize, busy_ns: u64) {
        if busy_ns > 0 {
            self.source.add_busy(busy_ns);
            InstanceCounters::add(&self.parsers_busy_ns, busy_ns);
            self.parsers.store(threads as u64, Ordering::Relaxed);
        }
    }
}

impl StepCounters {
    /// Sets the latency target of the rows that follow.
    pub fn set_target(&self, target_ns: Option<u64>) {
        // Relaxed: the number publishes nothing but itself.
        self.target_ns
            .store(target_ns.unwrap_or(0), Ordering::Relaxed);
    }

    /// Sets by how much the latencies of the rows that follow may be wrong.
    pub fn set_latency_error(&self, error_ns: u64) {
        self.latency_error_ns.store(error_ns, Ordering::Relaxed);
    }

    /// The longest latency that is certainly within the target of a sink, if it has one.
    pub(crate) fn certain_ns(&self) -> Option<u64> {
        let target_ns = InstanceCounters::read(&self.target_ns);
        let error_ns = InstanceCounters::read(&self.latency_error_ns);
        (target_ns > 0).then(|| target_ns.saturating_sub(error_ns))
    }

    pub(crate) fn add(&self, busy_ns: u64, rows: u64) {
        self.add_busy(busy_ns);
        InstanceCounters::add(&self.chunks, 1);
        InstanceCounters::add(&self.rows, rows);
    }

    /// Counts rows by the buckets of their hashes, each with `weight`.
    pub(crate) fn count_buckets(&self, hashes: &[u64], weight: u64) {
        let Some(buckets) = &self.buckets else {
            return;
        };
        for &hash in hashes {
            let slot = &buckets[bucket(hash)];
            // A store, since only the worker writes: an atomic addition would lock the bus.
            slot.store(slot.load(Ordering::Relaxed) + weight, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_busy(&self, busy_ns: u64) {
        InstanceCounters::add(&self.busy_ns, busy_ns);
    }
}

/// The counters of one worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// The thread's number, for the system's own measure of its CPU time.
    pub thread: AtomicU64,
    /// Time between waits, in nanoseconds.
    pub busy_ns: AtomicU64,
    /// Waits after which there was something to do.
    pub activations: AtomicU64,
    /// Timed sleeps.
    pub sleeps: AtomicU64,
    /// Timed sleeps that were woken before their time.
    pub sleeps_ended_early: AtomicU64,
    /// Waits without a time-out of the mode's own.
    pub parks: AtomicU64,
    /// The total time that sleeps were meant to last.
    pub asked_ns: AtomicU64,
    /// The total time that sleeps lasted.
    pub slept_ns: AtomicU64,
    /// By how much sleeps exceeded their time that were held up.
    pub overslept_ns: AtomicU64,
    /// The largest of these since a reader has set it to zero. A maximum that was just exchanged for zero may
    /// hide a smaller one of the same moment.
    pub overslept_longest_ns: AtomicU64,
    /// How often `auto` switched modes.
    pub changes: AtomicU64,
}

impl WorkerCounters {
    pub(crate) fn waited(&self, busy_ns: u64, worked: bool, idle: IdleCounters) {
        // Stores, since only the worker writes: an atomic addition would lock the bus.
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
        let before_ns = self.overslept_ns.load(Ordering::Relaxed);
        if idle.overslept_ns > before_ns {
            let longest_ns = self.overslept_longest_ns.load(Ordering::Relaxed);
            let longest_ns = longest_ns.max(idle.overslept_ns - before_ns);
            self.overslept_longest_ns
                .store(longest_ns, Ordering::Relaxed);
            self.overslept_ns
                .store(idle.overslept_ns, Ordering::Relaxed);
        }
        self.changes.store(idle.changes, Ordering::Relaxed);
    }
}

/// The counters of one side of a link between processes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LinkCounters {
    /// Messages sent or received.
    pub messages: AtomicU64,
    /// The rows in them.
    pub rows: AtomicU64,
    /// The bytes of their frames.
    pub bytes: AtomicU64,
    /// Time spent sending (encode, copy, wake) or receiving (find, decode, check), in nanoseconds: CPU
    /// time unless the thread was preempted, for neither side blocks.
    pub busy_ns: AtomicU64,
    /// Set from outside, for the sending side: the bytes of a message at most, as far as rows allow. Chunks
    /// of more are sent in parts; 0 if they are always sent whole.
    pub message_bytes: AtomicU64,
}

impl LinkCounters {
    /// Sets the bytes of the messages that follow; `None` to send chunks whole.
    pub fn resize(&self, message_bytes: Option<usize>) {
        // Relaxed: the number publishes nothing but itself.
        let bytes = message_bytes.map_or(0, |bytes| bytes.max(1) as u64);
        self.message_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The bytes of a message at most; `None` if chunks are sent whole.
    pub fn message_bytes(&self) -> Option<usize> {
        let bytes = self.message_bytes.load(Ordering::Relaxed);
        (bytes > 0).then_some(bytes as usize)
    }

    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        InstanceCounters::add(counter, amount);
    }
}

/// The place of the sign: with it flipped, later times are larger, and the earliest is 0.
const SIGN: u64 = 1 << 63;

impl InstanceCounters {
    pub(crate) fn set_watermark(&self, time: EventTime) {
        // Relaxed: a time publishes nothing but itself.
        self.watermark.store(time as u64 ^ SIGN, Ordering::Relaxed);
    }

    pub(crate) fn set_silent(&self, is_silent: bool) {
        self.silent.store(u64::from(is_silent), Ordering::Relaxed);
    }

    /// The watermark of the inputs in microseconds; `None` before the first.
    pub fn watermark_us(&self) -> Option<EventTime> {
        let time = (InstanceCounters::read(&self.watermark) ^ SIGN) as EventTime;
        (time > MIN_WATERMARK).then_some(time)
    }

    /// Counters for an instance of `steps` steps; `sinks` are those whose latency is measured, `keyed`
    /// the routes that split by key.
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

    /// Adds to a counter that only the calling thread writes.
    #[inline]
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        // Relaxed: a count publishes nothing but itself. A store, since only the worker writes: an atomic
        // addition would lock the bus.
        counter.store(
            counter.load(Ordering::Relaxed).wrapping_add(amount),
            Ordering::Relaxed,
        );
    }

    /// Reads a counter.
    pub fn read(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}
