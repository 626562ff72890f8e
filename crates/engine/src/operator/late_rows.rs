//! Passes on late rows, and no others: those that window assignment and [`super::drop_late`] drop from
//! the same input, for a table that keeps them.
//!
//! The operator reads the same node as the one that drops them, so no operator has two outputs. It counts
//! nothing: the other operator does.

use arrow_array::{Array, BooleanArray};
use arrow_schema::TimeUnit;

use super::window::{WindowKind, Windows, scale, ticks_to_us, timestamp_ticks, timestamp_unit};
use super::{Output, Stateless};
use crate::chunk::{Chunk, Origin};
use crate::error::{Error, Result};
use crate::time::EventTime;

/// When a row is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lateness {
    /// All its windows are closed, and have been for this many microseconds.
    Windows(Windows, EventTime),
    /// Its own time is behind the watermark.
    Time,
    /// Its own time is behind the watermark or at it.
    AtTime,
}

impl Lateness {
    /// For the ticks of a row's time, the least watermark at which the row is late; `None` if it never is.
    /// It does not fall with the time.
    pub fn closes(self, unit: TimeUnit) -> impl Fn(i64) -> Option<EventTime> {
        let factor = match self {
            Lateness::Windows(windows, _) => scale(unit, windows.unit),
            Lateness::Time | Lateness::AtTime => 1,
        };
        move |ticks| match self {
            Lateness::Time => Some(ticks_to_us(ticks, unit).saturating_add(1)),
            Lateness::AtTime => Some(ticks_to_us(ticks, unit)),
            Lateness::Windows(windows, lateness_us) => {
                // A time beyond 64 bits is rejected elsewhere, and not late.
                let end = windows.last_end(ticks.checked_mul(factor)?)?;
                let end = windows.to_event_time(end);
                Some(end.saturating_add(lateness_us))
            }
        }
    }

    /// The name under which checkpoints keep what was counted, in microseconds.
    pub fn key(self) -> String {
        let Lateness::Windows(windows, lateness_us) = self else {
            let name = if self == Lateness::Time {
                "time"
            } else {
                "at time"
            };
            return name.to_string();
        };
        let kind = match windows.kind {
            WindowKind::Aligned => "aligned",
            WindowKind::Cumulating => "cumulating",
            WindowKind::Session => "session",
            WindowKind::Count => "count",
        };
        let [size, slide] = [windows.size, windows.slide].map(|ticks| windows.to_event_time(ticks));
        format!("{kind} {size} {slide} {lateness_us}")
    }
}

/// Passes late rows on.
pub struct LateRows {
    time_column: usize,
    lateness: Lateness,
}

impl LateRows {
    /// Judges lateness by the timestamp column `time_column`.
    pub fn new(time_column: usize, lateness: Lateness) -> LateRows {
        LateRows {
            time_column,
            lateness,
        }
    }

    fn are_late(&self, chunk: &Chunk, watermarks: &[EventTime]) -> Result<BooleanArray> {
        let column = chunk.batch.column(self.time_column);
        let (0, Some(unit)) = (column.null_count(), timestamp_unit(column.data_type())) else {
            return Err(
                Error::new("late rows", "an event time is NULL after the source")
                    .hint("windows need the column in WATERMARK FOR, unchanged"),
            );
        };
        let closes = self.lateness.closes(unit);
        let rows = timestamp_ticks(column)?.iter().zip(watermarks);
        let late = rows.map(|(&ticks, &watermark)| {
            Some(closes(ticks).is_some_and(|closed| closed <= watermark))
        });
        Ok(late.collect())
    }
}

impl Stateless for LateRows {
    fn process(&mut self, chunk: Chunk, output: &mut Output) -> Result<()> {
        let origin = chunk.origin.as_ref();
        // If no row is earlier than its watermark, none is late.
        let Some(watermarks) = origin.and_then(|origin| origin.watermarks.clone()) else {
            return Ok(());
        };
        let late = self.are_late(&chunk, watermarks.values())?;
        if late.true_count() == 0 {
            return Ok(());
        }
        let mut late = chunk.filter(&late)?;
        late.origin = late.origin.map(|origin| Origin {
            watermarks: None,
            ..origin
        });
        output.emit(late);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, TimestampMillisecondArray};
    use arrow_schema::DataType;
    use proptest::prelude::*;

    use super::*;
    use crate::chunk::Positions;
    use crate::operator::drop_late::DropLate;
    use crate::operator::window::AssignWindows;
    use crate::testing::{batch, rows, schema};

    const MS: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

    fn chunk(times: &[(i64, i64)]) -> Chunk {
        let times_ms = times.iter().map(|(time, _)| *time);
        let watermarks = times.iter().map(|(_, watermark)| watermark * 1000);
        let times: ArrayRef = Arc::new(TimestampMillisecondArray::from_iter_values(times_ms));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..times.len() as i64));
        let mut chunk = Chunk::new(batch(vec![("ts", times), ("n", numbers)]), 0);
        chunk.origin = Some(Origin {
            partitions: crate::chunk::Partitions::One(0),
            positions: Positions::Run { first: 0 },
            watermarks: Some(Int64Array::from_iter_values(watermarks)),
        });
        chunk
    }

    fn numbers(chunks: &[Chunk]) -> Vec<String> {
        let number = |row: String| {
            row.split(", ")
                .find(|cell| cell.starts_with("n="))
                .map(String::from)
        };
        let mut numbers = rows(chunks)
            .into_iter()
            .filter_map(number)
            .collect::<Vec<_>>();
        numbers.sort();
        numbers.dedup();
        numbers
    }

    proptest! {
        #[test]
        fn late_rows_are_those_that_are_left_out(
            times in prop::collection::vec((-50i64..50, -60i64..60), 0..40),
            slide in 1i64..12,
            slides in 1i64..4,
            lateness in 0i64..20,
            kind in 0usize..5,
        ) {
            let unit = TimeUnit::Millisecond;
            let windows = match kind {
                // With gaps between windows.
                0 => Windows::new(slide, slide * slides, unit),
                1 => Windows::new(slide * slides, slide, unit),
                2 => Windows::cumulating(slide * slides, slide, unit),
                _ => Windows::sessions(slide, unit),
            }.unwrap();
            let (mut out, mut late) = (Output::new(1000), Output::new(1000));
            let schema = match kind {
                3 => schema(&[("ts", MS), ("n", DataType::Int64), ("reach", MS)]),
                _ => schema(&[("ts", MS), ("n", DataType::Int64), ("ws", MS), ("we", MS)]),
            };
            let lateness_us = lateness * 1000;
            let rule = match kind {
                4 => Lateness::Time,
                _ => Lateness::Windows(windows, lateness_us),
            };
            match kind {
                4 => DropLate::new(0, crate::operator::drop_late::Late::Before).process(chunk(&times), &mut out).unwrap(),
                _ => AssignWindows::new(0, windows, schema).with_lateness(lateness_us)
                    .process(chunk(&times), &mut out).unwrap(),
            }
            LateRows::new(0, rule).process(chunk(&times), &mut late).unwrap();
            let late = late.take_chunks();
            prop_assert_eq!(out.rows_late(), late.iter().map(Chunk::rows).sum::<usize>() as u64);
            let mut all = numbers(&out.take_chunks());
            all.extend(numbers(&late));
            let one_each = all.len();
            all.sort();
            all.dedup();
            prop_assert_eq!(one_each, all.len(), "a row is late or not");
            if kind != 0 {
                prop_assert_eq!(all.len(), times.len());
            }
        }
    }
}
