//! Window assignment: gives each row its tumbling, sliding (hop) or cumulating windows by event time.
//! (Sessions depend on other rows: [`super::session`].)
//!
//! Lateness is decided here (I2): a row is late for a window whose end is not after the row's *own*
//! watermark, that of its source partition at that row. A row that is late for all its windows is dropped
//! and counted once; a row that is late for some of them joins the others. After this operator no row is
//! late any more, because every later operator's watermark is a minimum over partitions and so never
//! ahead of the row's.

mod kinds;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, UInt32Array};
use arrow_schema::{DataType, SchemaRef, TimeUnit};

use super::{Output, Stateless};
use crate::chunk::{Chunk, Origin};
use crate::error::{Error, Result};
use crate::expression::reject;
use crate::time::EventTime;
pub use kinds::{COUNT_MAX, EVENT_TIME_MAX_US, WINDOWS_PER_ROW_MAX, WindowKind, Windows};

/// Ticks as microseconds, saturating.
#[inline]
pub fn ticks_to_us(ticks: i64, unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => ticks.saturating_mul(1_000_000),
        TimeUnit::Millisecond => ticks.saturating_mul(1000),
        TimeUnit::Microsecond => ticks,
        TimeUnit::Nanosecond => ticks.div_euclid(1000),
    }
}

/// Microseconds as ticks of a unit, rounded down.
pub fn us_to_ticks(us: i64, unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => us.div_euclid(1_000_000),
        TimeUnit::Millisecond => us.div_euclid(1000),
        TimeUnit::Microsecond => us,
        TimeUnit::Nanosecond => us.saturating_mul(1000),
    }
}

/// The ticks of a timestamp column, ignoring its validity.
pub fn timestamp_ticks(column: &ArrayRef) -> Result<&[i64]> {
    Ok(match column.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => {
            column.as_primitive::<TimestampSecondType>().values()
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            column.as_primitive::<TimestampMillisecondType>().values()
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            column.as_primitive::<TimestampMicrosecondType>().values()
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            column.as_primitive::<TimestampNanosecondType>().values()
        }
        other => {
            return Err(Error::new(
                "event time",
                format!("{other} is not a timestamp"),
            ));
        }
    })
}

/// The unit of a timestamp type.
pub fn timestamp_unit(data_type: &DataType) -> Option<TimeUnit> {
    match data_type {
        DataType::Timestamp(unit, _) => Some(*unit),
        _ => None,
    }
}

/// A timestamp column of `unit` from ticks.
pub fn timestamp_column(ticks: Vec<i64>, unit: TimeUnit) -> ArrayRef {
    match unit {
        TimeUnit::Second => Arc::new(PrimitiveArray::<TimestampSecondType>::from(ticks)),
        TimeUnit::Millisecond => Arc::new(PrimitiveArray::<TimestampMillisecondType>::from(ticks)),
        TimeUnit::Microsecond => Arc::new(PrimitiveArray::<TimestampMicrosecondType>::from(ticks)),
        TimeUnit::Nanosecond => Arc::new(PrimitiveArray::<TimestampNanosecondType>::from(ticks)),
    }
}

/// Adds the columns `window_start` and `window_end`; a row with `n` windows is emitted `n` times. For
/// sessions it only adds one column, how far a row reaches back ([`super::session`]).
pub struct AssignWindows {
    time_column: usize,
    windows: Windows,
    /// How long after its end a window still accepts rows.
    lateness_us: EventTime,
    schema: SchemaRef,
    starts: Vec<i64>,
    /// The ends, if they don't follow from the starts.
    ends: Vec<i64>,
    rows: Vec<u32>,
}

impl AssignWindows {
    /// Windows over the timestamp column `time_column`, whose unit is that of `windows` or coarser.
    /// `schema` is the input's with the two timestamp columns added.
    pub fn new(time_column: usize, windows: Windows, schema: SchemaRef) -> AssignWindows {
        AssignWindows {
            time_column,
            windows,
            lateness_us: 0,
            schema,
            starts: Vec::new(),
            ends: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Makes windows accept rows until their own partition's watermark is this many microseconds after
    /// the end.
    pub fn with_lateness(self, lateness_us: EventTime) -> AssignWindows {
        AssignWindows {
            lateness_us,
            ..self
        }
    }

    fn emit(&mut self, chunk: &Chunk, every_row: bool, output: &mut Output) -> Result<()> {
        let size = self.windows.size;
        let mut chunk = if every_row {
            chunk.clone()
        } else {
            chunk.take(&UInt32Array::from(std::mem::take(&mut self.rows)))?
        };
        let starts = std::mem::take(&mut self.starts);
        let ends = match self.windows.kind {
            WindowKind::Cumulating => Some(std::mem::take(&mut self.ends)),
            WindowKind::Session => None,
            _ => Some(starts.iter().map(|start| start + size).collect()),
        };
        let mut columns = chunk.batch.columns().to_vec();
        let edges = [Some(starts), ends].into_iter().flatten();
        columns.extend(edges.map(|ticks| timestamp_column(ticks, self.windows.unit)));
        chunk = chunk.with_columns(self.schema.clone(), columns)?;
        if let Some(origin) = &mut chunk.origin {
            origin.watermarks = None;
        }
        output.emit(chunk);
        Ok(())
    }
}

/// The number of ticks of one unit per tick of a coarser one.
pub(super) fn scale(from: TimeUnit, to: TimeUnit) -> i64 {
    let per_second = |unit| match unit {
        TimeUnit::Second => 1i64,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    per_second(to) / per_second(from)
}

impl AssignWindows {
    fn is_open(&self, end: i64, watermark: Option<EventTime>) -> bool {
        let kept_until = || {
            self.windows
                .to_event_time(end)
                .saturating_add(self.lateness_us)
        };
        watermark.is_none_or(|watermark| kept_until() > watermark)
    }

    /// Gives a row its sliding windows. Returns the number of windows, and how many of them are open.
    fn slide(&mut self, row: usize, tick: i64, watermark: Option<EventTime>) -> (usize, usize) {
        let Windows { size, slide, .. } = self.windows;
        let mut start = tick - tick.rem_euclid(slide);
        let (mut windows, mut open) = (0, 0);
        while start > tick - size {
            windows += 1;
            if self.is_open(start + size, watermark) {
                open += 1;
                self.rows.push(row as u32);
                self.starts.push(start);
            }
            start -= slide;
        }
        (windows, open)
    }

    /// Gives a row its cumulating windows, with the same result.
    fn cumulate(&mut self, row: usize, tick: i64, watermark: Option<EventTime>) -> (usize, usize) {
        let Windows { size, slide, .. } = self.windows;
        let start = tick - tick.rem_euclid(size);
        let mut end = start + ((tick - start) / slide + 1) * slide;
        let (mut windows, mut open) = (0, 0);
        while end <= start + size {
            windows += 1;
            if self.is_open(end, watermark) {
                open += 1;
                self.rows.push(row as u32);
                self.starts.push(start);
                self.ends.push(end);
            }
            end += slide;
        }
        (windows, open)
    }

    /// Computes how far back a row may join sessions: to those that its own watermark has not closed.
    fn reach(&mut self, row: usize, tick: i64, watermark: Option<EventTime>) -> (usize, usize) {
        if !self.is_open(tick + self.windows.size, watermark) {
            return (1, 0);
        }
        let watermark = watermark.map(|watermark| self.windows.watermark_ticks(watermark));
        self.rows.push(row as u32);
        self.starts
            .push(watermark.map_or(tick, |watermark| watermark.max(tick)));
        (1, 1)
    }

    /// Takes out rows whose windows don't fit into 64 bits. This only happens with nanoseconds: event
    /// time is checked in microseconds, and 2^63 ns is the year 2262.
    fn refuse_overflow(&self, chunk: Chunk, factor: i64, output: &mut Output) -> Result<Chunk> {
        let longest = self.windows.size.saturating_add(self.windows.slide);
        let largest = (i64::MAX - longest) / factor;
        let ticks = timestamp_ticks(chunk.batch.column(self.time_column))?;
        let fits = |tick: &i64| (-largest..=largest).contains(tick);
        if ticks.iter().all(fits) {
            return Ok(chunk);
        }
        let keep = ticks.iter().map(fits).collect::<Vec<bool>>();
        for row in (0..keep.len()).filter(|&row| !keep[row]) {
            let reason = "the window of its event time does not fit into nanoseconds";
            output.reject(reject(&chunk, row, reason.to_string()));
        }
        chunk.filter(&BooleanArray::from(keep))
    }
}

impl Stateless for AssignWindows {
    fn process(&mut self, mut chunk: Chunk, output: &mut Output) -> Result<()> {
        if chunk.batch.column(self.time_column).null_count() > 0 {
            return Err(
                Error::new("window", "an event time is NULL after the source")
                    .hint("windows need the column in WATERMARK FOR, unchanged"),
            );
        }
        let data_type = chunk.batch.column(self.time_column).data_type();
        let unit = timestamp_unit(data_type).unwrap_or(self.windows.unit);
        let factor = scale(unit, self.windows.unit);
        if self.windows.unit == TimeUnit::Nanosecond {
            chunk = self.refuse_overflow(chunk, factor, output)?;
        }
        let column = chunk.batch.column(self.time_column).clone();
        let ticks = timestamp_ticks(&column)?;
        let Windows {
            kind, size, slide, ..
        } = self.windows;
        let watermarks = chunk
            .origin
            .as_ref()
            .and_then(|origin: &Origin| origin.watermarks.clone());

        if kind == WindowKind::Aligned && size == slide && watermarks.is_none() {
            // Most rows belong to the window of the row before them: one comparison, no division.
            self.starts.reserve(ticks.len());
            let mut start = i64::MIN;
            for &tick in ticks {
                let tick = tick * factor;
                if tick.wrapping_sub(start) as u64 >= size as u64 {
                    start = tick - tick.rem_euclid(size);
                }
                self.starts.push(start);
            }
            return self.emit(&chunk, true, output);
        }
        let mut late = 0;
        for (row, &tick) in ticks.iter().enumerate() {
            let tick = tick * factor;
            let watermark = watermarks.as_ref().map(|watermarks| watermarks.value(row));
            let (windows, open) = match kind {
                WindowKind::Cumulating => self.cumulate(row, tick, watermark),
                WindowKind::Session => self.reach(row, tick, watermark),
                WindowKind::Aligned | WindowKind::Count => self.slide(row, tick, watermark),
            };
            late += u64::from(windows > 0 && open == 0);
            if self.rows.len() >= output.chunk_rows {
                self.emit(&chunk, false, output)?;
            }
        }
        output.count_late(late);
        self.emit(&chunk, false, output)
    }
}

#[cfg(test)]
mod tests;
