//! Snapshots of a running top-N: those of its rows ([`super::KeyedRows`]).

use arrow_array::RecordBatch;

use super::{TopN, Touch};
use crate::error::Result;
use crate::state::{BucketSet, Clock, KeyedState, Mark, Sliced};
use crate::time::EventTime;

impl KeyedState for TopN {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        Ok(self.rows.snapshot(buckets, since)?.into_iter().collect())
    }

    fn sliced(&mut self) -> Option<&mut dyn Sliced> {
        Some(self)
    }

    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        let (mark, at) = (self.clock.mark(), self.retention.early());
        self.rows.restore(batch, Touch { mark, at })
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        self.rows.discard(buckets);
        Ok(())
    }

    fn drop_emitted(&mut self, watermark: EventTime) -> Result<()> {
        self.begin_retention(watermark);
        self.retention.advance(watermark);
        Ok(())
    }

    fn publish(&mut self, _cut: u64) -> bool {
        false
    }
}

impl Sliced for TopN {
    fn begin(&mut self, since: Mark) -> Mark {
        let until = self.clock.end_interval();
        self.rows.begin_slices(since, until);
        until
    }

    fn next(&mut self, entries: usize) -> Result<Option<Vec<RecordBatch>>> {
        self.rows.next_slice(entries)
    }

    fn give_up(&mut self) {
        self.rows.give_up_slices();
    }

    fn layouts(&self) -> usize {
        1
    }
}
