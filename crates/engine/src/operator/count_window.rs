//! Count windows: a number of rows of a key, in order of event time.
//!
//! Rows wait until the watermark has passed their time, and are then numbered in the order of event time,
//! partition and position, not in the order of arrival, which differs from run to run. Rows before their
//! own partition's watermark are dropped earlier ([`super::drop_late`]). A window is emitted when its
//! last row is numbered; a window that is not full stays open, also at the end of the input.

mod state;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow_array::{Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef, TimeUnit};

use super::aggregate::Keys;
use super::event_times::only_in_time;
use super::kept::{KeptRow, RowKeeper, origin};
use super::window::{
    Windows, scale, ticks_to_us, timestamp_column, timestamp_ticks, timestamp_unit,
};
use super::{Facts, Output, Progress, Stateful, Timer};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::key::KeyColumns;
use crate::state::{Clock, KeyedState, Touched};
use crate::time::{EventTime, MAX_WATERMARK};

/// What a count window does.
#[derive(Debug, Clone)]
pub struct CountWindowSpec {
    /// The columns of the input whose values have windows of their own.
    pub keys: Vec<usize>,
    /// The event-time column.
    pub time_column: usize,
    /// The number of rows of a window, and how many rows later the next one begins.
    pub windows: Windows,
    /// The columns of the input.
    pub input: SchemaRef,
    /// The columns of the output: those of the input, `window_start`, `window_end` and `window_number`.
    pub schema: SchemaRef,
}

/// Count windows of all keys.
pub struct CountWindow {
    spec: CountWindowSpec,
    key_types: Vec<DataType>,
    keys: Keys,
    /// The counters by key number.
    counters: Vec<Counter>,
    /// When each counter last changed.
    touched: Touched,
    /// Rows that aren't numbered yet, with their keys, and the number of copies of each.
    pending: BTreeMap<(KeptRow, u32), u32>,
    keeper: RowKeeper,
    /// The rows of full windows.
    full: VecDeque<WindowRow>,
    bytes: usize,
    clock: Clock,
}

/// The state of a key.
#[derive(Default)]
struct Counter {
    /// The number of rows that have a number.
    seen: i64,
    /// The rows needed by windows that are not full, with their numbers.
    rows: VecDeque<(i64, KeptRow)>,
}

/// A row of a window: its start and end in ticks, and its number among those of its key.
struct WindowRow {
    start: i64,
    end: i64,
    number: i64,
    row: KeptRow,
}

impl CountWindow {
    /// An operator without rows.
    pub fn new(spec: CountWindowSpec) -> Result<CountWindow> {
        let key_types = spec.keys.iter();
        let key_types = key_types.map(|&key| spec.input.field(key).data_type().clone());
        let key_types = key_types.collect::<Vec<_>>();
        Ok(CountWindow {
            keys: Keys::new(&key_types)?,
            key_types,
            counters: Vec::new(),
            touched: Touched::default(),
            pending: BTreeMap::new(),
            keeper: RowKeeper::new(&spec.input)?,
            full: VecDeque::new(),
            bytes: 0,
            clock: Clock::default(),
            spec,
        })
    }

    /// The key numbers of rows.
    fn key_numbers(&mut self, keys: &KeyColumns) -> Result<Vec<u32>> {
        let mut numbers = Vec::new();
        self.keys.groups(keys, &mut numbers)?;
        let known = self.keys.len();
        self.counters.resize_with(known, Counter::default);
        self.touched.grow(known);
        Ok(numbers)
    }

    /// Drops rows behind the watermark; returns the others with their times in ticks.
    fn in_time(&self, chunk: Chunk, output: &mut Output) -> Result<(Chunk, Vec<i64>)> {
        let column = chunk.batch.column(self.spec.time_column);
        if column.null_count() > 0 {
            return Err(Error::new("count window", "an event time is NULL"));
        }
        let unit = self.spec.windows.unit;
        let factor = scale(timestamp_unit(column.data_type()).unwrap_or(unit), unit);
        let ticks = timestamp_ticks(column)?.iter();
        let times = ticks.map(|&tick| tick.saturating_mul(factor));
        let times = times.collect::<Vec<i64>>();
        let watermark = self.clock.watermark();
        only_in_time(chunk, times, output, |time| {
            ticks_to_us(time, unit) >= watermark
        })
    }

    fn wait(&mut self, key: u32, row: KeptRow) {
        self.bytes += row.bytes();
        self.touched.touch(key, self.clock.mark());
        *self.pending.entry((row, key)).or_default() += 1;
    }

    /// Numbers the next row of a key, and emits the windows that it fills.
    fn number(&mut self, key: u32, row: KeptRow) {
        let Windows {
            size, slide, unit, ..
        } = self.spec.windows;
        self.touched.touch(key, self.clock.mark());
        let counter = &mut self.counters[key as usize];
        let number = counter.seen;
        counter.seen += 1;
        // With a slide longer than the size some rows are in no window.
        if number % slide < size {
            self.bytes += row.bytes();
            counter.rows.push_back((number, row));
        }
        let begun = counter.seen - size;
        if begun < 0 || begun % slide != 0 {
            return;
        }
        let rows = counter.rows.iter().filter(|(of, _)| *of >= begun);
        let rows = rows.map(|(_, row)| row.clone());
        let rows = rows.collect::<Vec<KeptRow>>();
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return;
        };
        let (start, end) = (first.order.0, last.order.0.saturating_add(tick(unit)));
        self.full.extend(rows.into_iter().map(|row| WindowRow {
            start,
            end,
            number: begun / slide + 1,
            row,
        }));
        while let Some((of, _)) = counter.rows.front()
            && *of < begun + slide
        {
            let gone = counter.rows.pop_front();
            self.bytes -= gone.map_or(0, |(_, row)| row.bytes());
        }
    }

    fn emit(&mut self, output: &mut Output) -> Result<()> {
        let rows = output.chunk_rows.min(self.full.len());
        let rows = self.full.drain(..rows).collect::<Vec<_>>();
        let mut columns = self.keeper.columns(rows.iter().map(|of| &of.row))?;
        let unit = self.spec.windows.unit;
        let starts = rows.iter().map(|of| of.start).collect();
        let ends = rows.iter().map(|of| of.end).collect();
        let numbers = rows.iter().map(|of| of.number);
        columns.push(timestamp_column(starts, unit));
        columns.push(timestamp_column(ends, unit));
        columns.push(Arc::new(Int64Array::from_iter_values(numbers)));
        let batch = RecordBatch::try_new(self.spec.schema.clone(), columns)?;
        output.emit(Chunk {
            origin: origin(rows.iter().map(|of| &of.row)),
            ..Chunk::new(batch, output.ingest_ns)
        });
        Ok(())
    }

    fn forget(&mut self) {
        self.keys.clear();
        self.counters.clear();
        self.touched.clear();
        self.pending.clear();
        self.bytes = 0;
    }
}

/// The difference between `window_end` and `window_time`, so that the latter is the time of the window's
/// last row.
fn tick(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Nanosecond => 1000,
        _ => 1,
    }
}

impl Stateful for CountWindow {
    fn facts(&self) -> Facts {
        Facts {
            placed_by: vec![Some(self.spec.keys.clone())],
            is_replicated: false,
            first_input: None,
            delay_us: 0,
            // Rows are copied when they are kept.
            shares_input: false,
        }
    }

    fn process(&mut self, _input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        let (chunk, times) = self.in_time(chunk, output)?;
        if times.is_empty() {
            return Ok(());
        }
        let keys = KeyColumns::of_chunk(&chunk, &self.spec.keys)?;
        let numbers = self.key_numbers(&keys)?;
        let rows = self.keeper.keep(chunk.batch.columns(), &chunk, &times)?;
        for (key, row) in numbers.into_iter().zip(rows) {
            self.wait(key, row);
        }
        Ok(())
    }

    fn rest(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: EventTime, output: &mut Output) -> Result<Progress> {
        let unit = self.spec.windows.unit;
        // A row at the watermark waits: more rows of its time may come.
        let is_ready =
            |time: i64| ticks_to_us(time, unit) < watermark || watermark == MAX_WATERMARK;
        while self.full.len() < output.chunk_rows
            && let Some(((row, _), _)) = self.pending.first_key_value()
            && is_ready(row.order.0)
            && let Some(((row, key), times)) = self.pending.pop_first()
        {
            for _ in 0..times {
                self.bytes -= row.bytes();
                self.number(key, row.clone());
            }
        }
        if !self.full.is_empty() {
            self.emit(output)?;
            return Ok(Progress::More);
        }
        self.clock.advance(watermark);
        Ok(Progress::Done)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    fn end_unit(&mut self, _output: &mut Output) -> Result<()> {
        self.forget();
        self.clock.restart();
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(self)
    }

    fn bytes(&self) -> usize {
        let counters = self.counters.capacity() * size_of::<Counter>() + self.touched.bytes();
        // A waiting row has a place in a tree, two thirds full.
        self.keys.bytes() + counters + self.bytes + self.pending.len() * 24
    }
}

#[cfg(test)]
mod tests;
