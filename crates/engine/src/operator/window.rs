//! Window assignment: gives each row its tumbling or sliding (hop) windows by event time.
//!
//! This is where lateness is decided (I2): a row is late for a window whose end is not after the
//! row's *own* watermark, the one of its source partition at that row. A row that is late for all
//! its windows is dropped and counted once; a row that is late for some joins the others. After
//! this operator no row is late any more, because every later operator's watermark is a minimum
//! over partitions and so never ahead of the row's.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, UInt32Array};
use arrow_schema::{DataType, SchemaRef, TimeUnit};

use super::{Operator, Output};
use crate::chunk::{Chunk, Origin};
use crate::error::{Error, Result};
use crate::expression::reject;
use crate::time::EventTime;

/// Windows of `size` that begin at every multiple of `slide` since 1970-01-01T00:00:00Z, half
/// open: `[start, start + size)`. Tumbling when `slide == size`. All in ticks of `unit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Windows {
    /// Length of a window, in ticks; positive.
    pub size: i64,
    /// Distance of two windows' starts, in ticks; positive.
    pub slide: i64,
    /// What a tick is; the columns `window_start` and `window_end` have it too.
    pub unit: TimeUnit,
}

/// Windows that a row may belong to at most. 10,000 copies of a row of 100 bytes are a megabyte;
/// beyond that the slide is a mistake.
pub const WINDOWS_PER_ROW_MAX: i64 = 10_000;

/// Event times must be within this many microseconds of 1970 (about 73,000 years), so that no sum
/// of an event time, a delay and a window overflows.
pub const EVENT_TIME_MAX_US: i64 = i64::MAX / 4;

impl Windows {
    /// Checks sizes: positive, whole microseconds, not more than [`WINDOWS_PER_ROW_MAX`] per row.
    pub fn new(size: i64, slide: i64, unit: TimeUnit) -> std::result::Result<Windows, String> {
        if size <= 0 || slide <= 0 {
            return Err("a window's size and slide must be positive".to_string());
        }
        if size / slide > WINDOWS_PER_ROW_MAX {
            return Err(format!(
                "each row would belong to {} windows, at most {WINDOWS_PER_ROW_MAX} are allowed",
                size / slide
            ));
        }
        if unit == TimeUnit::Nanosecond && (size % 1000 != 0 || slide % 1000 != 0) {
            return Err("a window's size and slide must be whole microseconds".to_string());
        }
        if ticks_to_us_checked(size, unit).is_none_or(|us| us > EVENT_TIME_MAX_US) {
            return Err("the window is longer than event time can be".to_string());
        }
        Ok(Windows { size, slide, unit })
    }

    /// Type of the columns `window_start` and `window_end`.
    pub fn data_type(&self) -> DataType {
        DataType::Timestamp(self.unit, None)
    }

    /// The end of a window, in event time.
    pub fn to_event_time(&self, ticks: i64) -> EventTime {
        ticks_to_us(ticks, self.unit)
    }
}

fn ticks_to_us_checked(ticks: i64, unit: TimeUnit) -> Option<i64> {
    match unit {
        TimeUnit::Second => ticks.checked_mul(1_000_000),
        TimeUnit::Millisecond => ticks.checked_mul(1000),
        TimeUnit::Microsecond => Some(ticks),
        TimeUnit::Nanosecond => Some(ticks.div_euclid(1000)),
    }
}

/// Ticks as microseconds; saturates instead of wrapping.
#[inline]
pub fn ticks_to_us(ticks: i64, unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => ticks.saturating_mul(1_000_000),
        TimeUnit::Millisecond => ticks.saturating_mul(1000),
        TimeUnit::Microsecond => ticks,
        TimeUnit::Nanosecond => ticks.div_euclid(1000),
    }
}

/// The ticks of a timestamp column without looking at its validity.
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

/// Appends the columns `window_start` and `window_end`; a row with `n` windows comes out `n` times.
pub struct AssignWindows {
    time_column: usize,
    windows: Windows,
    schema: SchemaRef,
    starts: Vec<i64>,
    rows: Vec<u32>,
}

impl AssignWindows {
    /// Windows over the timestamp column `time_column`, whose unit is that of `windows` or coarser.
    /// `schema` is the input's with the two timestamp columns appended.
    pub fn new(time_column: usize, windows: Windows, schema: SchemaRef) -> AssignWindows {
        AssignWindows {
            time_column,
            windows,
            schema,
            starts: Vec::new(),
            rows: Vec::new(),
        }
    }

    fn emit(&mut self, chunk: &Chunk, every_row: bool, output: &mut Output) -> Result<()> {
        let size = self.windows.size;
        let mut chunk = if every_row {
            chunk.clone()
        } else {
            chunk.take(&UInt32Array::from(std::mem::take(&mut self.rows)))?
        };
        let ends = self
            .starts
            .iter()
            .map(|start| start + size)
            .collect::<Vec<i64>>();
        let mut columns = chunk.batch.columns().to_vec();
        columns.push(timestamp_column(
            std::mem::take(&mut self.starts),
            self.windows.unit,
        ));
        columns.push(timestamp_column(ends, self.windows.unit));
        chunk = chunk.with_columns(self.schema.clone(), columns)?;
        if let Some(origin) = &mut chunk.origin {
            origin.watermarks = None;
        }
        output.emit(chunk);
        Ok(())
    }
}

/// Ticks of one unit per tick of a coarser one.
fn scale(from: TimeUnit, to: TimeUnit) -> i64 {
    let per_second = |unit| match unit {
        TimeUnit::Second => 1i64,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    per_second(to) / per_second(from)
}

impl AssignWindows {
    /// Takes out rows whose windows don't fit into 64 bits. Only nanoseconds get there: event time
    /// is checked in microseconds, and 2^63 ns is the year 2262.
    fn refuse_overflow(&self, chunk: Chunk, factor: i64, output: &mut Output) -> Result<Chunk> {
        let largest = (i64::MAX - self.windows.size.max(self.windows.slide)) / factor;
        let ticks = timestamp_ticks(chunk.batch.column(self.time_column))?;
        let fits = |tick: &i64| (-largest..=largest).contains(tick);
        if ticks.iter().all(fits) {
            return Ok(chunk);
        }
        let keep = ticks.iter().map(fits).collect::<Vec<bool>>();
        for row in (0..keep.len()).filter(|&row| !keep[row]) {
            let reason = "the window of its event time is beyond what nanoseconds can hold";
            output.reject(reject(&chunk, row, reason.to_string()));
        }
        chunk.filter(&BooleanArray::from(keep))
    }
}

impl Operator for AssignWindows {
    fn is_stateless(&self) -> bool {
        true
    }

    fn process(&mut self, _input: usize, mut chunk: Chunk, output: &mut Output) -> Result<()> {
        if chunk.batch.column(self.time_column).null_count() > 0 {
            return Err(
                Error::new("window", "an event time is NULL behind the source")
                    .mend("windows need the column that WATERMARK FOR names, unchanged"),
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
        let Windows { size, slide, .. } = self.windows;
        let watermarks = chunk
            .origin
            .as_ref()
            .and_then(|origin: &Origin| origin.watermarks.clone());

        if size == slide && watermarks.is_none() {
            // Most rows fall into the window of the row before them: one comparison, no division.
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
            let mut start = tick - tick.rem_euclid(slide);
            let (mut windows, mut open) = (0, 0);
            while start > tick - size {
                windows += 1;
                let end = self.windows.to_event_time(start + size);
                if watermark.is_none_or(|watermark| end > watermark) {
                    open += 1;
                    self.rows.push(row as u32);
                    self.starts.push(start);
                }
                start -= slide;
            }
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
mod tests {
    use super::*;
    use crate::chunk::Positions;
    use arrow_array::{Int64Array, RecordBatch, TimestampMillisecondArray};
    use arrow_schema::{Field, Schema};

    fn assign(
        windows: Windows,
        times: Vec<i64>,
        watermarks: Option<Vec<i64>>,
    ) -> (Vec<(i64, i64)>, u64) {
        let unit = DataType::Timestamp(TimeUnit::Millisecond, None);
        let schema = Arc::new(Schema::new(vec![Field::new("ts", unit.clone(), false)]));
        let out = Arc::new(Schema::new(vec![
            Field::new("ts", unit.clone(), false),
            Field::new("window_start", unit.clone(), false),
            Field::new("window_end", unit, false),
        ]));
        let batch = RecordBatch::try_new(
            schema,
            vec![Arc::new(TimestampMillisecondArray::from(times))],
        );
        let mut chunk = Chunk::new(batch.unwrap(), 0);
        chunk.origin = Some(Origin {
            partition: 0,
            positions: Positions::Run { first: 0 },
            watermarks: watermarks
                .map(|ms| Int64Array::from_iter_values(ms.iter().map(|w| w * 1000))),
        });
        let mut output = Output::new(1000);
        AssignWindows::new(0, windows, out)
            .process(0, chunk, &mut output)
            .unwrap();
        let mut rows = Vec::new();
        for chunk in output.take_chunks() {
            let column = |index: usize| {
                chunk
                    .batch
                    .column(index)
                    .as_primitive::<TimestampMillisecondType>()
                    .clone()
            };
            assert_eq!(column(2).value(0) - column(1).value(0), windows.size);
            assert!(chunk.origin.unwrap().watermarks.is_none());
            rows.extend(
                (0..column(0).len()).map(|row| (column(0).value(row), column(1).value(row))),
            );
        }
        (rows, output.rows_late())
    }

    #[test]
    fn tumbling_windows_are_aligned_to_the_epoch_also_before_it() {
        let windows = Windows::new(10, 10, TimeUnit::Millisecond).unwrap();
        let (rows, late) = assign(windows, vec![0, 9, 10, -1, -10, 25], None);
        assert_eq!(
            rows,
            [(0, 0), (9, 0), (10, 10), (-1, -10), (-10, -10), (25, 20)]
        );
        assert_eq!(late, 0);
    }

    #[test]
    fn a_window_whose_end_is_the_watermark_is_closed() {
        let windows = Windows::new(10, 10, TimeUnit::Millisecond).unwrap();
        let (rows, late) = assign(windows, vec![9, 9], Some(vec![9, 10]));
        assert_eq!((rows.as_slice(), late), (&[(9, 0)][..], 1));
    }

    #[test]
    fn a_row_late_for_some_of_its_windows_joins_the_others_and_is_not_counted() {
        let windows = Windows::new(20, 10, TimeUnit::Millisecond).unwrap();
        let (rows, late) = assign(windows, vec![15, 15], Some(vec![25, 30]));
        assert_eq!((rows.as_slice(), late), (&[(15, 10)][..], 1));
    }

    #[test]
    fn a_row_in_the_gap_between_windows_is_in_none_and_not_late() {
        let windows = Windows::new(5, 10, TimeUnit::Millisecond).unwrap();
        let (rows, late) = assign(windows, vec![4, 7], Some(vec![0, 0]));
        assert_eq!((rows.as_slice(), late), (&[(4, 0)][..], 0));
    }

    #[test]
    fn regression_windows_beyond_64_bits_of_nanoseconds_refuse_their_row() {
        let windows = Windows::new(1_000_000, 1_000_000, TimeUnit::Nanosecond).unwrap();
        let unit = DataType::Timestamp(TimeUnit::Nanosecond, None);
        for times in [
            timestamp_column(vec![5, i64::MAX, i64::MIN, 1_999_999], TimeUnit::Nanosecond),
            timestamp_column(
                vec![0, i64::MAX / 1000, i64::MIN / 1000, 1],
                TimeUnit::Millisecond,
            ),
        ] {
            let input = crate::testing::batch(vec![("ts", times.clone())]);
            let schema = crate::testing::schema(&[
                ("ts", times.data_type().clone()),
                ("window_start", unit.clone()),
                ("window_end", unit.clone()),
            ]);
            let mut output = Output::new(100);
            AssignWindows::new(0, windows, schema)
                .process(0, Chunk::new(input, 0), &mut output)
                .unwrap();
            assert_eq!(output.rejected().len(), 2);
            let starts = output.take_chunks()[0].batch.column(1).clone();
            assert_eq!(timestamp_ticks(&starts).unwrap(), [0, 1_000_000]);
        }
    }

    #[test]
    fn nonsense_windows_are_refused() {
        assert!(Windows::new(0, 1, TimeUnit::Millisecond).is_err());
        assert!(Windows::new(1, -1, TimeUnit::Millisecond).is_err());
        assert!(Windows::new(1_000_000, 1, TimeUnit::Millisecond).is_err());
        assert!(Windows::new(i64::MAX, i64::MAX, TimeUnit::Second).is_err());
        assert!(Windows::new(1500, 1500, TimeUnit::Nanosecond).is_err());
    }
}
