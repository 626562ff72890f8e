//! The rows of a materialized view: kept by key, readable from other threads while the query runs.
//!
//! A reader sees the view at a *cut*: a barrier that asks every instance of the view for its rows
//! ([`crate::barrier::Purpose::Publish`]). So a read has the rows that a prefix of each source's input has
//! made, and never half of an update.
//!
//! Rows lie in buckets, which are shared with cuts. A bucket that changes while a cut has it is copied
//! first ([`Arc::make_mut`]): a cut costs a pointer for each bucket, and later one copy of each bucket that
//! changes. Without readers nothing is copied, and a reader never stops the query.
//!
//! Changes go on unchanged, to what follows the view and to subscribers ([`Changes`]): from the cut on at
//! which a subscriber has begun. A row that expires goes on as a deletion. No cut has it any more as soon as
//! the watermark says so, also if the view removes it later.
//!
//! Shutdown: when its input ends, the view publishes its rows for the last time.

mod bucket;
mod changes;
mod cut;
mod cuts;
mod expiry;
mod sink;
mod slices;

use std::sync::{Arc, Weak};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Int8Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::SchemaRef;

use self::bucket::{Bucket, Stamp};
pub use self::changes::{CHANGES_BYTES_MAX, CHANGES_MAX, Changes, Ending, Next};
pub use self::cut::Cut;
use self::cut::Part;
use self::cuts::Place;
pub use self::cuts::{CUT_KEPT, Cuts, NoCut, SUBSCRIBERS_MAX, ViewCuts};
pub use self::sink::ViewSink;
use super::rows::Encoder;
use crate::chunk::{Chunk, RowKind};
use crate::error::{Error, Result};
use crate::hash::{BUCKETS, bucket};
use crate::key::Key;
use crate::operator::{Facts, Output, Progress, Stateful, Timer};
use crate::state::{BucketSet, Clock, KeyedState, Mark, Sliced, snapshot};
use crate::time::{EventTime, MAX_WATERMARK, MIN_WATERMARK};

/// What a view keeps.
#[derive(Debug, Clone)]
pub struct ViewSpec {
    /// The columns.
    pub schema: SchemaRef,
    /// The columns by which a row replaces another; `None` for a view that keeps every row, and copies of
    /// equal rows.
    pub key: Option<Vec<usize>>,
    /// How long rows are kept; `None` for ever.
    pub retention: Option<ViewRetention>,
}

/// How long the rows of a view are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewRetention {
    /// The column with the time that counts. A row without a time is kept for ever.
    pub column: usize,
    /// A row is kept until the watermark is this far after its time, in microseconds.
    pub us: i64,
}

/// Keeps the rows of a view.
pub struct View {
    spec: ViewSpec,
    encoder: Arc<Encoder>,
    buckets: Vec<Arc<Bucket>>,
    /// Rows that were removed since the last stored snapshot, which may still hold them.
    gone: Vec<Gone>,
    clock: Clock,
    /// The part of the buckets that was looked through last. Parts are numbered on and on by the watermark
    /// (modulo [`PARTS`]), so a restored view goes on as the one before it would have.
    last_part: EventTime,
    /// The largest watermark but the end of the input: rows that expire by then have expired.
    expired_to: EventTime,
    /// A snapshot that is being taken in slices.
    open: Option<slices::Open>,
    cuts: ViewCuts,
    place: Place,
    /// Those who get all changes, as long as they want them.
    subscribers: Vec<Weak<Changes>>,
    /// The bytes of the buckets.
    bytes: usize,
    /// The bytes of the removed rows.
    gone_bytes: usize,
}

/// A removed row.
struct Gone {
    hash: u64,
    key: Box<[u8]>,
    row: Box<[u8]>,
    mark: Mark,
}

impl Gone {
    fn bytes(&self) -> usize {
        self.key.len() + self.row.len() + size_of::<Gone>()
    }
}

impl View {
    /// A view without rows, which publishes to `cuts`.
    ///
    /// # Errors
    ///
    /// When rows of this type can't be kept.
    pub fn new(spec: ViewSpec, cuts: ViewCuts) -> Result<View> {
        let key = spec.key.clone();
        let key = key.unwrap_or_else(|| (0..spec.schema.fields().len()).collect());
        Ok(View {
            encoder: Arc::new(Encoder::packed(spec.schema.clone(), key)?),
            buckets: (0..BUCKETS).map(|_| Arc::default()).collect(),
            gone: Vec::new(),
            clock: Clock::default(),
            last_part: EventTime::MIN,
            expired_to: MIN_WATERMARK,
            open: None,
            place: cuts.join(),
            cuts,
            subscribers: Vec::new(),
            bytes: 0,
            gone_bytes: 0,
            spec,
        })
    }

    /// Changes the bucket of a key.
    fn change<T>(&mut self, key: Key<'_>, change: impl FnOnce(&mut Bucket) -> T) -> T {
        let bucket = &mut self.buckets[bucket(key.hash())];
        // A copy may have less room than what it was copied from.
        let before = bucket.bytes();
        let bucket = Arc::make_mut(bucket);
        let changed = change(bucket);
        self.bytes = (self.bytes + bucket.bytes()).saturating_sub(before);
        changed
    }

    fn add(&mut self, key: Key<'_>, row: &[u8], expires: EventTime) -> Result<()> {
        let mark = self.clock.mark();
        let is_keyed = self.spec.key.is_some();
        self.change(key, |bucket| {
            let copies = match bucket.get(key) {
                Some(there) if !is_keyed => there.stamp.count,
                _ => 0,
            };
            let Some(count) = copies.checked_add(1) else {
                let error = "there are 4 billion copies of one row";
                return Err(Error::new("materialized view", error)
                    .hint("declare a PRIMARY KEY, or count the rows with GROUP BY"));
            };
            let stamp = Stamp {
                count,
                mark,
                expires,
            };
            match copies {
                0 => bucket.put(key, row, stamp),
                _ => {
                    bucket.set(key, stamp);
                    Ok(())
                }
            }
        })
    }

    /// Takes one copy of a row back.
    fn take_back(&mut self, key: Key<'_>) {
        let mark = self.clock.mark();
        let there = self.buckets[bucket(key.hash())].get(key);
        match there.map(|there| there.stamp) {
            // It has expired.
            None => {}
            Some(stamp) if stamp.count > 1 => self.change(key, |bucket| {
                let count = stamp.count - 1;
                bucket.set(
                    key,
                    Stamp {
                        count,
                        mark,
                        ..stamp
                    },
                );
            }),
            Some(_) => self.remove(key),
        }
    }

    /// Removes a row with all its copies.
    fn remove(&mut self, key: Key<'_>) {
        let mark = self.clock.mark();
        let Some(there) = self.buckets[bucket(key.hash())].get(key) else {
            return;
        };
        // Before the first mark has ended, no snapshot can hold the row.
        if !mark.is_first() {
            let gone = Gone {
                hash: key.hash(),
                key: key.bytes().into(),
                row: there.row.into(),
                mark,
            };
            self.gone_bytes += gone.bytes();
            self.gone.push(gone);
        }
        self.change(key, |bucket| bucket.remove(key, mark));
    }

    /// Forgets the removed rows that no snapshot after `since` needs.
    fn forget_gone(&mut self, since: Mark) {
        self.gone.retain(|gone| gone.mark > since);
        self.gone_bytes = self.gone.iter().map(Gone::bytes).sum();
    }

    /// Hands changes to the subscribers.
    fn tell(&mut self, chunk: &Chunk) {
        let wants_more =
            |changes: &Weak<Changes>| changes.upgrade().is_some_and(|changes| changes.push(chunk));
        self.subscribers.retain(wants_more);
    }

    /// A batch of a snapshot: the number of copies, then the row; 0 copies of rows that are gone.
    fn stored<'r>(&self, rows: impl Iterator<Item = (u32, &'r [u8])>) -> Result<RecordBatch> {
        let (counts, rows): (Vec<u32>, Vec<&[u8]>) = rows.unzip();
        let rows = self.encoder.decode(rows.into_iter())?;
        let counts = Arc::new(UInt32Array::from(counts));
        snapshot::with_own([("count", counts, false)], &rows)
    }

    /// The removed rows of `buckets` since `since` that have not come back.
    fn gone<'v>(
        &'v self,
        buckets: &'v BucketSet,
        since: Mark,
    ) -> impl Iterator<Item = (u32, &'v [u8])> + 'v {
        let gone = self.gone.iter().filter(move |gone| {
            let there = self.buckets[bucket(gone.hash)].get(Key::stored(gone.hash, &gone.key));
            gone.mark > since && there.is_none() && buckets.contains_hash(gone.hash)
        });
        gone.map(|gone| (0, &*gone.row))
    }

    /// The rows of a batch of a snapshot, of a view with these columns, and the number of copies of each; 0
    /// for a row that is gone.
    ///
    /// # Errors
    ///
    /// If it is not a snapshot of such a view.
    pub fn restored(schema: &SchemaRef, batch: &RecordBatch) -> Result<(UInt32Array, RecordBatch)> {
        let wrong = || {
            let reason = "its columns are not those of the view";
            snapshot::wrong("a materialized view", reason)
        };
        let types = batch.columns().iter().skip(1);
        let types = types.map(|column| column.data_type());
        let expected = schema.fields().iter().map(|field| field.data_type());
        if !types.eq(expected) {
            return Err(wrong());
        }
        let counts = batch.column(0).as_primitive_opt::<UInt32Type>();
        let counts = counts.ok_or_else(wrong)?.clone();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns()[1..].to_vec();
        let rows = RecordBatch::try_new_with_options(schema.clone(), columns, &options)?;
        Ok((counts, rows))
    }
}

impl Stateful for View {
    fn facts(&self) -> Facts {
        let all = || (0..self.spec.schema.fields().len()).collect();
        Facts {
            placed_by: vec![Some(self.spec.key.clone().unwrap_or_else(all))],
            is_replicated: false,
            first_input: None,
            delay_us: 0,
            // What goes on shares it.
            shares_input: true,
        }
    }

    fn process(&mut self, _input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        let encoded = self.encoder.encode(&chunk)?;
        let expiries = self.expiries(&chunk.batch)?;
        let is_keyed = self.spec.key.is_some();
        for row in 0..chunk.rows() {
            let kind = chunk.kinds.as_ref().map_or(0, |kinds| kinds.value(row));
            let key = encoded.key(row);
            match RowKind::is_retraction(kind) {
                // The new value follows, and replaces the old one.
                true if is_keyed && kind == RowKind::UpdateBefore as i8 => {}
                true => self.take_back(key),
                false => {
                    let expires = expiries
                        .as_ref()
                        .map_or(MAX_WATERMARK, |expiries| expiries[row]);
                    self.add(key, encoded.row(row), expires)?;
                }
            }
        }
        self.tell(&chunk);
        output.emit(chunk);
        Ok(())
    }

    fn rest(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: EventTime, output: &mut Output) -> Result<Progress> {
        self.clock.advance(watermark);
        if let Some(ViewRetention { us, .. }) = self.spec.retention
            && let Some(old) = self.expire(us)?
        {
            let kinds = Int8Array::from(vec![RowKind::Delete as i8; old.num_rows()]);
            let expired = Chunk {
                kinds: Some(kinds),
                ..Chunk::new(old, output.ingest_ns)
            };
            self.tell(&expired);
            output.emit(expired);
        }
        Ok(Progress::Done)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    fn end_unit(&mut self, _output: &mut Output) -> Result<()> {
        self.clock.restart();
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(self)
    }

    fn bytes(&self) -> usize {
        self.bytes + self.gone_bytes
    }
}

impl KeyedState for View {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        self.forget_gone(since);
        let gone = self.gone(buckets, since);
        let gone = gone.filter(|_| since > Mark::default());
        let kept = self.buckets.iter().enumerate();
        let kept =
            kept.filter(|(number, bucket)| bucket.changed > since && buckets.contains(*number));
        let kept = kept.flat_map(|(_, bucket)| bucket.rows());
        let kept = kept.filter(|row| row.stamp.mark > since);
        let kept = kept.map(|row| (row.stamp.count, row.row));
        let batch = self.stored(gone.chain(kept))?;
        Ok(Some(batch)
            .filter(|batch| batch.num_rows() > 0)
            .into_iter()
            .collect())
    }

    fn sliced(&mut self) -> Option<&mut dyn Sliced> {
        Some(self)
    }

    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        let (counts, rows) = View::restored(&self.spec.schema, batch)?;
        let encoded = self.encoder.encode_batch(&rows)?;
        let expiries = self.expiries(&rows)?;
        let mark = self.clock.mark();
        for row in 0..rows.num_rows() {
            #[cfg(test)]
            crate::state::work::note(1);
            let key = encoded.key(row);
            let count = counts.value(row);
            let expires = expiries
                .as_ref()
                .map_or(MAX_WATERMARK, |expiries| expiries[row]);
            let stamp = Stamp {
                count,
                mark,
                expires,
            };
            match count {
                0 => self.remove(key),
                _ => self.change(key, |bucket| bucket.put(key, encoded.row(row), stamp))?,
            }
        }
        Ok(())
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        for (number, bucket) in self.buckets.iter_mut().enumerate() {
            if buckets.contains(number) {
                self.bytes = self.bytes.saturating_sub(bucket.bytes());
                *bucket = Arc::default();
            }
        }
        self.gone.retain(|gone| !buckets.contains_hash(gone.hash));
        self.forget_gone(Mark::default());
        Ok(())
    }

    fn drop_emitted(&mut self, watermark: EventTime) -> Result<()> {
        // What has expired since goes with the next watermarks, as deletions.
        if let Some(ViewRetention { us, .. }) = self.spec.retention
            && !matches!(watermark, MIN_WATERMARK | MAX_WATERMARK)
        {
            self.last_part = View::part(self.clock.watermark(), us);
            self.expired_to = self.expired_to.max(watermark);
        }
        Ok(())
    }

    fn publish(&mut self, cut: u64) -> bool {
        let part = Part {
            number: cut,
            watermark: self.clock.watermark(),
            expired_to: self.expired_to,
            encoder: Arc::clone(&self.encoder),
            buckets: self.buckets.as_slice().into(),
        };
        let begins = self.cuts.publish(&mut self.place, part);
        self.subscribers.extend(begins);
        true
    }
}

#[cfg(test)]
mod tests;
