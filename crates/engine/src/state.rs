//! State of operators, behind one interface.
//!
//! State is keyed: every entry belongs to the bucket of its key ([`crate::hash::bucket`]), so that
//! it can move between instances and be restored at another parallelism. Taking a snapshot changes
//! nothing (a running query goes on from where it was), and can be restricted to the entries that
//! were touched since an earlier one. It is taken between inputs: never while an operator still has
//! rows of a closed window to emit ([`crate::operator::Progress::More`]).

use arrow_array::RecordBatch;

use crate::error::Result;
use crate::hash::{BUCKETS, bucket};
use crate::time::EventTime;

/// A point between two changes of an operator's state. Marks of one operator increase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mark(pub u32);

/// Keyed state of one operator in one instance.
pub trait KeyedState {
    /// Ends the current interval of changes and begins the next: what changes from now on has
    /// changed *since* the returned mark.
    fn mark(&mut self) -> Mark;

    /// The entries of `buckets` that changed since `since` ([`Mark::default`] for all), in batches
    /// of the operator's own layout. Entries that were dropped are those behind the watermark.
    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>>;

    /// Takes the entries of one batch of a snapshot in. One that is there already under the same
    /// key gives way, so that the batches of later, incremental snapshots are restored after those
    /// of earlier ones.
    fn restore(&mut self, batch: &RecordBatch) -> Result<()>;

    /// Drops the entries of `buckets` (they have moved to another instance).
    fn discard(&mut self, buckets: &BucketSet) -> Result<()>;

    /// After the last batch of one instance's snapshots: drops what that instance had emitted by
    /// `watermark`, which an earlier snapshot may still hold, and continues as if it had seen this
    /// watermark. Watermarks before the last one change nothing.
    fn expire(&mut self, watermark: EventTime) -> Result<()>;
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
