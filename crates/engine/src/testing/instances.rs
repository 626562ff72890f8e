//! Instances of a keyed operator as a query has them: checkpointed, restarted with another number of
//! instances, and moving buckets between each other while they run.

use arrow_array::RecordBatch;

use crate::hash::{BUCKETS, bucket};
use crate::operator::Output;
use crate::state::{BucketSet, KeyedState, Mark, expire};
use crate::time::EventTime;

/// An instance, with its stored snapshots.
pub struct Instance<O> {
    pub operator: O,
    pub output: Output,
    since: Mark,
    stored: Vec<RecordBatch>,
}

/// Instances that share the buckets.
pub struct Instances<O> {
    pub all: Vec<Instance<O>>,
    /// The instance of each bucket.
    owners: Vec<usize>,
    chunk_rows: usize,
    new: Box<dyn Fn() -> O>,
}

impl<O: KeyedState> Instances<O> {
    /// A single instance of the operator that `new` makes.
    pub fn one(chunk_rows: usize, new: impl Fn() -> O + 'static) -> Instances<O> {
        let mut instances = Instances {
            all: Vec::new(),
            owners: vec![0; BUCKETS],
            chunk_rows,
            new: Box::new(new),
        };
        instances.all.push(instances.fresh());
        instances
    }

    fn fresh(&self) -> Instance<O> {
        Instance {
            operator: (self.new)(),
            output: Output::new(self.chunk_rows),
            since: Mark::default(),
            stored: Vec::new(),
        }
    }

    /// Whether rows whose key has this hash belong to the instance.
    pub fn is_of(&self, hash: u64, instance: usize) -> bool {
        self.owners[bucket(hash)] == instance
    }

    /// Stores what has changed in each instance.
    pub fn snapshot(&mut self) {
        for instance in &mut self.all {
            let operator = &mut instance.operator;
            let snapshot = operator.snapshot(&BucketSet::all(), instance.since);
            instance.stored.extend(snapshot.unwrap());
            instance.since = operator.clock().end_interval();
        }
    }

    /// Restarts from the stored snapshots ([`crate::checkpoint::restore`]) with `count` instances.
    pub fn restart(&mut self, count: usize, watermark: EventTime) {
        self.snapshot();
        let all = Mark::default();
        let owner = |bucket| bucket * count / BUCKETS;
        let new = (0..count).map(|index| {
            let mut new = self.fresh();
            let own = BucketSet::of(|bucket| owner(bucket) == index);
            for old in &self.all {
                let mut alone = (self.new)();
                for batch in &old.stored {
                    alone.restore(batch).unwrap();
                }
                expire(&mut alone, watermark).unwrap();
                for batch in alone.snapshot(&own, all).unwrap() {
                    new.operator.restore(&batch).unwrap();
                }
            }
            expire(&mut new.operator, watermark).unwrap();
            new
        });
        self.all = new.collect();
        self.owners = (0..BUCKETS).map(owner).collect();
    }

    /// Moves some buckets to the next instance while the query runs.
    pub fn move_buckets(&mut self, seed: usize) {
        let count = self.all.len();
        let goes = |bucket: usize| (bucket ^ seed).wrapping_mul(0x9E37_79B9) >> 13 & 1 == 1;
        let mut moved = Vec::new();
        for (giver, instance) in self.all.iter_mut().enumerate() {
            let buckets = BucketSet::of(|bucket| self.owners[bucket] == giver && goes(bucket));
            let operator = &mut instance.operator;
            moved.push(operator.snapshot(&buckets, Mark::default()).unwrap());
            operator.discard(&buckets).unwrap();
            // The next snapshot is a full one.
            (instance.since, instance.stored) = (Mark::default(), Vec::new());
        }
        for (giver, batches) in moved.into_iter().enumerate() {
            let taker = &mut self.all[(giver + 1) % count].operator;
            batches
                .iter()
                .for_each(|batch| taker.restore(batch).unwrap());
        }
        for bucket in (0..BUCKETS).filter(|&bucket| goes(bucket)) {
            self.owners[bucket] = (self.owners[bucket] + 1) % count;
        }
    }
}
