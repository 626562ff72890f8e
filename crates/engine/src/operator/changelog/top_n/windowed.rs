//! Top-N in windows: rows are emitted once, when their window closes, and nothing is retracted.

use std::collections::BTreeMap;

use arrow_array::Array;
use arrow_array::{ArrayRef, RecordBatch};

use super::{Changes, TopNSpec, first_of, ranked};
use crate::chunk::{Chunk, RowKind};
use crate::error::{Error, Result};
use crate::operator::aggregate::WindowKey;
use crate::operator::changelog::rows::{KeyedRows, Touch};
use crate::operator::window::timestamp_ticks;
use crate::operator::{Facts, Output, Progress, Stateful, Timer};
use crate::state::{BucketSet, Clock, KeyedState, Mark, Sliced, snapshot};
use crate::time::EventTime;

/// The first rows of each partition of each window.
pub struct WindowTopN {
    spec: TopNSpec,
    window: WindowKey,
    /// The open windows by their end.
    windows: BTreeMap<EventTime, KeyedRows>,
    /// The window that is being emitted, its rows, and the next of these.
    firing: Option<(KeyedRows, Changes, usize)>,
    /// What an open snapshot wants of windows that were emitted meanwhile.
    early: Vec<RecordBatch>,
    clock: Clock,
}

impl WindowTopN {
    /// A top-N that has seen nothing. `spec` must have a window.
    pub fn new(spec: TopNSpec) -> Result<WindowTopN> {
        let window = spec.window;
        let window = window.ok_or_else(|| Error::new("top-N", "it has no window"))?;
        Ok(WindowTopN {
            spec,
            window,
            windows: BTreeMap::new(),
            firing: None,
            early: Vec::new(),
            clock: Clock::default(),
        })
    }

    /// When the windows of rows close, in event time.
    fn ends(&self, column: &ArrayRef) -> Result<Vec<EventTime>> {
        let windows = &self.window.windows;
        let offset = if self.window.is_start {
            windows.size
        } else {
            0
        };
        let ticks = timestamp_ticks(column)?.iter();
        Ok(ticks
            .map(|&tick| windows.to_event_time(tick.saturating_add(offset)))
            .collect())
    }

    fn rows_of(&mut self, end: EventTime) -> Result<&mut KeyedRows> {
        if !self.windows.contains_key(&end) {
            let spec = &self.spec;
            let (keys, order) = (spec.partition.clone(), spec.order.clone());
            let rows = KeyedRows::new(spec.input.clone(), keys, order)?;
            self.windows.insert(end, rows);
        }
        Ok(self.windows.get_mut(&end).expect("inserted just above"))
    }

    /// Adds rows of one window.
    fn add(&mut self, end: EventTime, chunk: &Chunk) -> Result<()> {
        let limit = self.spec.limit;
        let mark = self.clock.mark();
        let rows = self.rows_of(end)?;
        let encoded = rows.encode(chunk)?;
        for row in 0..chunk.rows() {
            let (key, bytes) = (encoded.key(row), encoded.row(row));
            let of_key = rows.of_key(key);
            if !of_key.is_some_and(|of_key| of_key.is_behind(bytes, limit)) {
                rows.add(key, bytes, 0, Touch { mark, at: end });
                rows.keep_first(key, limit, mark);
            }
        }
        Ok(())
    }

    /// Starts to emit the first window that is closed, if there is one.
    fn close(&mut self) -> Result<()> {
        let closed = self.windows.first_key_value().map(|(&end, _)| end);
        let Some(end) = closed.filter(|&end| end <= self.clock.watermark()) else {
            return Ok(());
        };
        let Some(mut rows) = self.windows.remove(&end) else {
            return Ok(());
        };
        while let Some(slice) = rows.next_slice(usize::MAX)? {
            self.early.extend(slice);
        }
        let mut changes = Changes::default();
        for of_key in rows.keys() {
            let first = first_of(of_key, self.spec.limit);
            for (rank, row) in ranked(&first).into_iter().enumerate() {
                changes.push(row, rank, RowKind::Insert);
            }
        }
        self.firing = Some((rows, changes, 0));
        Ok(())
    }
}

impl Stateful for WindowTopN {
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
        let column = chunk.batch.column(self.window.column);
        let ends = self.ends(column)?;
        let mut rows_of = BTreeMap::<EventTime, Vec<u32>>::new();
        // An outer join before this operator pads window columns with NULL: such a row is in no window.
        for row in (0..chunk.rows()).filter(|&row| column.is_valid(row)) {
            rows_of.entry(ends[row]).or_default().push(row as u32);
        }
        for (end, rows) in rows_of {
            // Only rows of a partition that appeared or resumed while the query ran (I2).
            if end <= self.clock.watermark() {
                output.count_late(rows.len() as u64);
                continue;
            }
            self.add(end, &chunk.take(&rows.into())?)?;
        }
        Ok(())
    }

    fn rest(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: EventTime, output: &mut Output) -> Result<Progress> {
        self.clock.advance(watermark);
        if self.firing.is_none() {
            self.close()?;
        }
        let Some((rows, changes, from)) = self.firing.take() else {
            return Ok(Progress::Done);
        };
        let to = (from + output.chunk_rows).min(changes.rows.len());
        output.emit_batch(self.spec.chunk(&rows, &changes, from..to)?);
        if to < changes.rows.len() {
            self.firing = Some((rows, changes, to));
        }
        Ok(Progress::More)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    fn end_unit(&mut self, _output: &mut Output) -> Result<()> {
        self.windows.clear();
        self.clock.restart();
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(self)
    }

    fn bytes(&self) -> usize {
        let firing = self.firing.iter().map(|(rows, ..)| rows.bytes());
        let windows = self.windows.values().map(|rows| rows.bytes());
        windows.chain(firing).sum()
    }
}

impl KeyedState for WindowTopN {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        snapshot::assert_between_inputs(self.firing.is_some());
        let mut batches = Vec::new();
        for rows in self.windows.values_mut() {
            batches.extend(rows.snapshot(buckets, since)?);
        }
        Ok(batches)
    }

    fn sliced(&mut self) -> Option<&mut dyn Sliced> {
        Some(self)
    }

    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let column = batch
            .columns()
            .get(KeyedRows::OWN_COLUMNS + self.window.column);
        let column = column.ok_or_else(KeyedRows::wrong_snapshot)?;
        // A batch belongs to one window.
        let end = self.ends(column)?[0];
        let mark = self.clock.mark();
        self.rows_of(end)?.restore(batch, Touch { mark, at: end })
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        let windows = self.windows.values_mut();
        windows.for_each(|rows| rows.discard(buckets));
        Ok(())
    }

    fn drop_emitted(&mut self, watermark: EventTime) -> Result<()> {
        self.windows.retain(|&end, _| end > watermark);
        Ok(())
    }

    fn publish(&mut self, _cut: u64) -> bool {
        false
    }
}

impl Sliced for WindowTopN {
    fn begin(&mut self, since: Mark) -> Mark {
        snapshot::assert_between_inputs(self.firing.is_some());
        let until = self.clock.end_interval();
        self.early.clear();
        let windows = self.windows.values_mut();
        windows.for_each(|rows| rows.begin_slices(since, until));
        until
    }

    fn next(&mut self, entries: usize) -> Result<Option<Vec<RecordBatch>>> {
        let mut slice = std::mem::take(&mut self.early);
        for rows in self.windows.values_mut() {
            if let Some(more) = rows.next_slice(entries)? {
                slice.extend(more);
                return Ok(Some(slice));
            }
        }
        Ok((!slice.is_empty()).then_some(slice))
    }

    fn give_up(&mut self) {
        self.early.clear();
        let windows = self.windows.values_mut();
        windows.for_each(KeyedRows::give_up_slices);
    }

    fn layouts(&self) -> usize {
        1
    }
}
