//! The first rows of each partition: `ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= N` (Flink's Top-N,
//! deduplication and window Top-N).
//!
//! Rows that are equal in the order's columns are ordered by all their columns, so which rows are among
//! the first doesn't depend on arrival (I1). If the input only adds rows, only the first `N` are kept; if
//! it retracts rows all are, since any may move up.
//!
//! [`TopN`] emits after each chunk the changes of every partition that it touched; [`WindowTopN`], if a
//! window is part of the partition, emits its first rows once, when the watermark reaches the window's
//! end.

mod state;
mod windowed;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int8Array, RecordBatch, UInt32Array, UInt64Array};
use arrow_schema::SchemaRef;

use super::rows::{Encoded, KeyedRows, OfKey, RowOrder, Touch};
use super::{Retention, retractions};
use crate::chunk::{Chunk, RowKind};
use crate::error::Result;
use crate::key::Key;
use crate::operator::aggregate::WindowKey;
use crate::operator::{Facts, Output, Progress, Stateful, Timer};
use crate::state::{Clock, KeyedState};
use crate::time::EventTime;
pub use windowed::WindowTopN;

/// What a top-N computes.
#[derive(Debug, Clone)]
pub struct TopNSpec {
    /// The columns to partition by, including that of the window.
    pub partition: Vec<usize>,
    /// The window that is part of the partition: its rows are emitted when it closes.
    pub window: Option<WindowKey>,
    /// The columns to order by.
    pub order: RowOrder,
    /// The number of rows of each partition.
    pub limit: usize,
    /// Whether the last column of the output is the rank of each row, from 1.
    pub has_rank: bool,
    /// Whether the input retracts rows.
    pub takes_back: bool,
    /// Whether the old row is emitted before its update.
    pub emits_before: bool,
    /// How long an unchanged partition is kept, in microseconds of event time; `None` for ever.
    pub retention_us: Option<i64>,
    /// The columns of the input.
    pub input: SchemaRef,
    /// The columns of the output.
    pub schema: SchemaRef,
}

impl TopNSpec {
    /// Whether one row of each partition replaces another, so that the partition's columns (with the
    /// rank, if there is one) identify it.
    pub fn is_by_key(&self) -> bool {
        self.has_rank || self.limit == 1
    }

    /// Whether it emits rows that retract others for good.
    pub fn deletes(&self) -> bool {
        self.window.is_none() && (self.takes_back || !self.is_by_key())
    }
}

/// The first rows of each partition.
pub struct TopN {
    spec: TopNSpec,
    rows: KeyedRows,
    retention: Retention,
    clock: Clock,
}

/// The first rows of a partition, encoded, each with its number of copies.
type First = Vec<(Arc<[u8]>, u32)>;

/// Rows to emit.
#[derive(Default)]
struct Changes {
    rows: Vec<Arc<[u8]>>,
    ranks: Vec<u64>,
    kinds: Vec<i8>,
}

impl Changes {
    fn push(&mut self, row: &Arc<[u8]>, rank: usize, kind: RowKind) {
        self.rows.push(row.clone());
        self.ranks.push(rank as u64 + 1);
        self.kinds.push(kind as i8);
    }
}

impl TopN {
    /// A top-N that has seen nothing.
    pub fn new(spec: TopNSpec) -> Result<TopN> {
        let (keys, order) = (spec.partition.clone(), spec.order.clone());
        Ok(TopN {
            rows: KeyedRows::new(spec.input.clone(), keys, order)?,
            retention: Retention::new(spec.retention_us),
            clock: Clock::default(),
            spec,
        })
    }

    /// The mark and time that changes get now.
    fn touch(&self) -> Touch {
        Touch {
            mark: self.clock.mark(),
            at: self.retention.now(),
        }
    }

    /// Called before the watermark moves.
    fn begin_retention(&mut self, watermark: EventTime) {
        if self.retention.begins(watermark) {
            let mark = self.clock.mark();
            self.rows.stamp(Touch {
                mark,
                at: watermark,
            });
        }
    }

    /// Adds a row, or retracts it.
    fn apply(&mut self, encoded: &Encoded, row: usize, retracts: bool) {
        let now = self.touch();
        let (key, bytes) = (encoded.key(row), encoded.row(row));
        if retracts {
            self.rows.remove(key, bytes, now);
            return;
        }
        if !self.spec.takes_back && self.is_behind(encoded, row) {
            return;
        }
        self.rows.add(key, bytes, 0, now);
        if !self.spec.takes_back {
            self.rows.keep_first(key, self.spec.limit, now.mark);
        }
    }

    /// The rows of a chunk that may be among the first of their partitions: most rows are not, and need not
    /// be encoded as a whole.
    fn promising(&self, chunk: Chunk) -> Result<Chunk> {
        let Some(order) = self.rows.encode_order(&chunk)? else {
            return Ok(chunk);
        };
        let is_beyond = |row: usize| {
            let of_key = self.of_key(&order, row);
            of_key.is_some_and(|of_key| of_key.is_beyond(order.row(row), self.spec.limit))
        };
        let rows = 0..chunk.rows() as u32;
        let promising = rows.filter(|&row| !is_beyond(row as usize));
        let promising = promising.collect::<Vec<u32>>();
        match promising.len() == chunk.rows() {
            true => Ok(chunk),
            false => chunk.take(&UInt32Array::from(promising)),
        }
    }

    /// The rows of the partition of row `row`, unless they are too old.
    fn of_key(&self, encoded: &Encoded, row: usize) -> Option<&OfKey> {
        let of_key = self.rows.of_key(encoded.key(row));
        of_key.filter(|of_key| !self.retention.is_over(of_key.touched_at))
    }

    /// Whether a partition is full and the row comes after its last one, so that it can never be among
    /// the first.
    fn is_behind(&self, encoded: &Encoded, row: usize) -> bool {
        let of_key = self.of_key(encoded, row);
        of_key.is_some_and(|of_key| of_key.is_behind(encoded.row(row), self.spec.limit))
    }

    /// The first rows of the partition of row `row`.
    fn first(&self, encoded: &Encoded, row: usize) -> First {
        let of_key = self.of_key(encoded, row);
        of_key.map_or(Vec::new(), |of_key| first_of(of_key, self.spec.limit))
    }

    /// Applies the rows of a chunk; returns the resulting changes in the first rows of the partitions.
    fn changes(&mut self, encoded: &Encoded, chunk: &Chunk) -> Changes {
        let retracts = retractions(chunk);
        // The old first rows of each touched partition, in order of touch.
        let mut before = Vec::<(usize, First)>::new();
        let mut touched = HashSet::<Key<'_>, foldhash::fast::FixedState>::default();
        for row in 0..chunk.rows() {
            let retracts = retracts.as_ref().is_some_and(|of| of[row]);
            if !retracts && !self.spec.takes_back && self.is_behind(encoded, row) {
                continue;
            }
            if touched.insert(encoded.key(row)) {
                self.drop_if_over(encoded, row);
                before.push((row, self.first(encoded, row)));
            }
            self.apply(encoded, row, retracts);
        }
        let mut changes = Changes::default();
        for (row, before) in before {
            self.compare(&before, &self.first(encoded, row), &mut changes);
        }
        changes
    }

    /// Drops a partition that is too old.
    fn drop_if_over(&mut self, encoded: &Encoded, row: usize) {
        let of_key = self.rows.of_key(encoded.key(row));
        if of_key.is_some_and(|of_key| self.retention.is_over(of_key.touched_at)) {
            let (retention, mark) = (self.retention, self.clock.mark());
            self.rows
                .drop_old(mark, |key_at, _| retention.is_over(key_at));
        }
    }

    fn compare(&self, before: &First, after: &First, changes: &mut Changes) {
        if self.spec.is_by_key() {
            let (before, after) = (ranked(before), ranked(after));
            for rank in 0..before.len().max(after.len()) {
                match (before.get(rank), after.get(rank)) {
                    (Some(before), Some(after)) if before != after => {
                        if self.spec.emits_before {
                            changes.push(before, rank, RowKind::UpdateBefore);
                        }
                        changes.push(after, rank, RowKind::Update);
                    }
                    (Some(before), None) => changes.push(before, rank, RowKind::Delete),
                    (None, Some(after)) => changes.push(after, rank, RowKind::Insert),
                    _ => {}
                }
            }
            return;
        }
        // Both are in order: one pass finds what only one of them has.
        let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
        let times = |changes: &mut Changes, row: &Arc<[u8]>, kind: RowKind, times: u32| {
            (0..times).for_each(|_| changes.push(row, 0, kind));
        };
        loop {
            match (before.peek(), after.peek()) {
                (Some((old, count)), Some((new, of_new))) if old == new => {
                    times(changes, old, RowKind::Delete, count.saturating_sub(*of_new));
                    times(changes, new, RowKind::Insert, of_new.saturating_sub(*count));
                    before.next();
                    after.next();
                }
                (Some((old, count)), new) if new.is_none_or(|new| *old < new.0) => {
                    times(changes, old, RowKind::Delete, *count);
                    before.next();
                }
                (_, Some((new, count))) => {
                    times(changes, new, RowKind::Insert, *count);
                    after.next();
                }
                _ => return,
            }
        }
    }
}

impl TopNSpec {
    /// The rows `from..to` of the changes as a chunk.
    fn chunk(
        &self,
        rows: &KeyedRows,
        changes: &Changes,
        range: Range<usize>,
    ) -> Result<RecordBatch> {
        let encodings = changes.rows[range.clone()].iter().map(|row| row.as_ref());
        let mut columns = rows.decode(encodings)?.columns().to_vec();
        if self.has_rank {
            let ranks = changes.ranks[range].iter().copied();
            columns.push(Arc::new(UInt64Array::from_iter_values(ranks)) as ArrayRef);
        }
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }
}

/// The first rows of a partition, at most `limit`.
fn first_of(of_key: &OfKey, limit: usize) -> First {
    let mut left = limit;
    let mut first = Vec::new();
    for (row, kept) in of_key.rows() {
        if left == 0 {
            break;
        }
        let count = (kept.count as usize).min(left);
        first.push((Arc::from(row), count as u32));
        left -= count;
    }
    first
}

/// Each copy of each row, in order.
fn ranked(first: &First) -> Vec<&Arc<[u8]>> {
    let copies = first.iter();
    let copies = copies.flat_map(|(row, count)| std::iter::repeat_n(row, *count as usize));
    copies.collect()
}

impl Stateful for TopN {
    fn facts(&self) -> Facts {
        Facts {
            placed_by: vec![Some(self.spec.partition.clone())],
            is_replicated: false,
            first_input: None,
            delay_us: 0,
            // Rows are kept, and emitted, as copies.
            shares_input: false,
        }
    }

    fn process(&mut self, _input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        let chunk = match self.spec.takes_back {
            true => chunk,
            false => self.promising(chunk)?,
        };
        let encoded = self.rows.encode(&chunk)?;
        let changes = self.changes(&encoded, &chunk);
        let mut from = 0;
        while from < changes.rows.len() {
            let mut to = (from + output.chunk_rows).min(changes.rows.len());
            // A row and its old row stay together.
            if changes.kinds[to - 1] == RowKind::UpdateBefore as i8 {
                to += 1;
            }
            let batch = self.spec.chunk(&self.rows, &changes, from..to)?;
            output.emit(Chunk {
                kinds: Some(Int8Array::from(changes.kinds[from..to].to_vec())),
                ..Chunk::new(batch, chunk.ingest_ns)
            });
            from = to;
        }
        Ok(())
    }

    fn rest(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: EventTime, _output: &mut Output) -> Result<Progress> {
        self.begin_retention(watermark);
        if self.retention.advance(watermark) {
            let (retention, mark) = (self.retention, self.clock.mark());
            self.rows
                .drop_old(mark, |key_at, _| retention.is_over(key_at));
        }
        Ok(Progress::Done)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    fn end_unit(&mut self, _output: &mut Output) -> Result<()> {
        self.rows.clear();
        self.retention.restart();
        self.clock.restart();
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(self)
    }

    fn bytes(&self) -> usize {
        self.rows.bytes()
    }
}

#[cfg(test)]
mod tests;
