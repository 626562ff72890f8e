//! The state of operators, behind one interface.
//!
//! State is keyed: every entry belongs to the bucket of its key ([`crate::hash::bucket`]), so that it can
//! move between instances and be restored at another parallelism. Taking a snapshot changes nothing (a
//! running query continues where it was), and can be restricted to the entries that were touched since an
//! earlier one. A snapshot is taken between inputs: never while an operator still has rows of a closed
//! window to emit ([`crate::operator::Progress::More`]).

pub mod snapshot;
mod touched;

use arrow_array::RecordBatch;

use crate::error::Result;
use crate::hash::{BUCKETS, bucket};
use crate::time::{EventTime, MAX_WATERMARK, MIN_WATERMARK};
#[cfg(test)]
pub(crate) use touched::work;
pub use touched::{Changes, Touched};

/// A point between two changes of an operator's state. The marks of one operator increase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mark(pub u32);

impl Mark {
    /// Whether no interval has ended before this mark: then no snapshot can hold what is dropped now.
    pub fn is_first(self) -> bool {
        self <= Mark(1)
    }
}

/// The clock of an operator with keyed state: the mark that changes get, and how far event time has come.
///
/// An operator owns one clock and gives access to it ([`KeyedState::clock`]). Checkpoints end its
/// intervals and, when state is restored, move its watermark. The operator stamps changes with
/// [`Clock::mark`], moves the watermark in [`crate::operator::Stateful::advance`], and restarts the clock
/// in [`crate::operator::Stateful::end_unit`].
#[derive(Debug, Clone)]
pub struct Clock {
    mark: Mark,
    watermark: EventTime,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock {
            mark: Mark(1),
            watermark: MIN_WATERMARK,
        }
    }
}

impl Clock {
    /// The mark that changes get now.
    #[inline]
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// Ends the current interval of changes and begins the next: later changes count as changed *since*
    /// the returned mark.
    pub fn end_interval(&mut self) -> Mark {
        let ended = self.mark;
        self.mark = Mark(ended.0 + 1);
        ended
    }

    /// The largest watermark that the operator has seen in this unit of work, including before it was
    /// restored.
    #[inline]
    pub fn watermark(&self) -> EventTime {
        self.watermark
    }

    /// Moves the watermark. An earlier watermark than the last changes nothing.
    pub fn advance(&mut self, watermark: EventTime) {
        self.watermark = self.watermark.max(watermark);
    }

    /// The event time up to which all rows have come, if rows may come this far behind the watermark.
    pub fn complete(&self, behind_us: EventTime) -> EventTime {
        match self.watermark {
            MAX_WATERMARK => MAX_WATERMARK,
            watermark => watermark.saturating_sub(behind_us),
        }
    }

    /// Starts the next unit of work: no watermark has come. Marks continue.
    pub fn restart(&mut self) {
        self.watermark = MIN_WATERMARK;
    }
}

/// Keyed state of one operator in one instance.
pub trait KeyedState {
    /// The clock that stamps entries.
    fn clock(&mut self) -> &mut Clock;

    /// The entries of `buckets` that changed since `since` ([`Mark::default`] for all), in batches of the
    /// operator's own layout. Dropped entries are only those behind the watermark.
    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>>;

    /// The state as one that can be copied in slices; `None` if only [`KeyedState::snapshot`] copies it.
    fn sliced(&mut self) -> Option<&mut dyn Sliced>;

    /// Restores the entries of one batch of a snapshot. An existing entry with the same key is replaced,
    /// so the batches of later, incremental snapshots are restored after those of earlier ones.
    fn restore(&mut self, batch: &RecordBatch) -> Result<()>;

    /// Drops the entries of `buckets` (they have moved to another instance).
    fn discard(&mut self, buckets: &BucketSet) -> Result<()>;

    /// Drops what was emitted by `watermark`, which an earlier snapshot may still hold. Called by
    /// [`expire`], which has moved the clock.
    fn drop_emitted(&mut self, watermark: EventTime) -> Result<()>;

    /// Publishes the state at a cut for readers, with the number of its barrier, or with [`u64::MAX`] when
    /// the input has ended. Returns whether the state has readers, so that checkpoints keep it after the
    /// end of the input, too: only that of a materialized view ([`crate::operator::changelog::view`]).
    fn publish(&mut self, cut: u64) -> bool;
}

/// Keyed state that is copied in slices, between which its operator continues. The slices together are
/// what one snapshot at the beginning would have been.
pub trait Sliced {
    /// Begins a snapshot of what changed since `since`, and ends the current interval; returns its mark
    /// ([`Clock::end_interval`]). A snapshot that was not completed is given up.
    fn begin(&mut self, since: Mark) -> Mark;

    /// The next slice, for which about `entries` entries are looked at, with what was copied since the one
    /// before because it was about to change. It may be empty; `None` after the last one.
    fn next(&mut self, entries: usize) -> Result<Option<Vec<RecordBatch>>>;

    /// Gives an incomplete snapshot up. Called before entries are restored or discarded.
    fn give_up(&mut self);

    /// How many kinds of batches there are at most, with different columns.
    fn layouts(&self) -> usize;
}

/// Called after the last batch of one instance's snapshots: drops what that instance had emitted by
/// `watermark`, and continues as if it had seen this watermark. Watermarks before the last one change
/// nothing.
pub fn expire<S: KeyedState + ?Sized>(state: &mut S, watermark: EventTime) -> Result<()> {
    state.clock().advance(watermark);
    state.drop_emitted(watermark)
}

/// A set of buckets.
#[derive(Debug, Clone)]
pub struct BucketSet {
    bits: Vec<u64>,
}

impl BucketSet {
    /// All buckets.
    pub fn all() -> BucketSet {
        BucketSet {
            bits: vec![u64::MAX; BUCKETS / 64],
        }
    }

    /// The buckets for which `contains` is true.
    pub fn of(contains: impl Fn(usize) -> bool) -> BucketSet {
        (0..BUCKETS).filter(|&index| contains(index)).collect()
    }

    /// Whether the bucket belongs to the set.
    pub fn contains(&self, bucket: usize) -> bool {
        self.bits[bucket / 64] >> (bucket % 64) & 1 == 1
    }

    /// Whether the key with this hash belongs to the set.
    pub fn contains_hash(&self, hash: u64) -> bool {
        self.contains(bucket(hash))
    }
}

impl FromIterator<usize> for BucketSet {
    fn from_iter<T: IntoIterator<Item = usize>>(buckets: T) -> BucketSet {
        let mut bits = vec![0; BUCKETS / 64];
        for bucket in buckets {
            bits[bucket / 64] |= 1 << (bucket % 64);
        }
        BucketSet { bits }
    }
}
