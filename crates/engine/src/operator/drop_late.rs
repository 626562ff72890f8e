//! Drops late rows, for operators that decide by a row's own event time.
//!
//! A row is late when its event time is before its own partition's watermark (I2). A row *at* the
//! watermark is not late for the versions of a table, which may have several rows of one time: operators
//! that need all rows up to a time wait until the watermark has passed it. It is late for interval joins
//! and OVER, which take a time for complete when the watermark reaches it. Windows don't need this
//! operator: for them a row is late when all its windows are closed.

use arrow_array::{Array, BooleanArray};

use super::window::{ticks_to_us, timestamp_ticks, timestamp_unit};
use super::{Output, Stateless};
use crate::chunk::Chunk;
use crate::error::{Error, Result};

/// Drops and counts late rows.
pub struct DropLate {
    time_column: usize,
    late: Late,
}

/// Which rows are late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// Rows before their own partition's watermark.
    Before,
    /// Rows at the watermark, too. Sources have to mark them
    /// ([`crate::intake::EventTimeSpec::marks_at_watermark`]).
    At,
}

impl DropLate {
    /// Drops rows that are late by the timestamp column `time_column`.
    pub fn new(time_column: usize, late: Late) -> DropLate {
        DropLate { time_column, late }
    }
}

impl Stateless for DropLate {
    fn process(&mut self, chunk: Chunk, output: &mut Output) -> Result<()> {
        let column = chunk.batch.column(self.time_column);
        let unit = timestamp_unit(column.data_type());
        let (0, Some(unit)) = (column.null_count(), unit) else {
            return Err(Error::new("join", "an event time is NULL after the source")
                .hint("name the column in WATERMARK FOR, unchanged"));
        };
        let watermarks = chunk.origin.as_ref();
        let watermarks = watermarks.and_then(|origin| origin.watermarks.as_ref());
        let mut kept = match watermarks {
            None => chunk,
            Some(watermarks) => {
                let ticks = timestamp_ticks(column)?.iter();
                let rows = ticks.zip(watermarks.values());
                let keep = rows.map(|(&tick, &watermark)| match self.late {
                    Late::Before => ticks_to_us(tick, unit) >= watermark,
                    Late::At => ticks_to_us(tick, unit) > watermark,
                });
                let keep = keep.map(Some).collect::<BooleanArray>();
                output.count_late((keep.len() - keep.true_count()) as u64);
                chunk.filter(&keep)?
            }
        };
        // Lateness is judged only once.
        if let Some(origin) = &mut kept.origin {
            origin.watermarks = None;
        }
        output.emit(kept);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, TimestampMillisecondArray};

    use super::*;
    use crate::chunk::{Origin, Partitions, Positions};
    use crate::testing::{batch, rows};

    fn chunk(times_ms: Vec<Option<i64>>, watermarks_us: Option<Vec<i64>>) -> Chunk {
        let times = Arc::new(TimestampMillisecondArray::from(times_ms));
        let mut chunk = Chunk::new(batch(vec![("ts", times)]), 0);
        chunk.origin = Some(Origin {
            partitions: Partitions::One(0),
            positions: Positions::Run { first: 5 },
            watermarks: watermarks_us.map(Int64Array::from),
        });
        chunk
    }

    #[test]
    fn a_row_behind_its_partitions_watermark_is_late() {
        let mut output = Output::new(100);
        let times = vec![Some(1), Some(2), Some(3)];
        let watermarks = Some(vec![1_001, 2_000, 3_001]);
        DropLate::new(0, Late::Before)
            .process(chunk(times, watermarks), &mut output)
            .unwrap();
        assert_eq!(output.rows_late(), 2);
        let chunks = output.take_chunks();
        assert_eq!(rows(&chunks), ["ts=1970-01-01T00:00:00.002"]);
        let origin = chunks[0].origin.as_ref().unwrap();
        assert_eq!(origin.positions.at(0), 6);
        assert!(origin.watermarks.is_none());
    }

    #[test]
    fn where_a_time_is_complete_at_the_watermark_a_row_at_it_is_late() {
        let mut output = Output::new(100);
        let times = vec![Some(1), Some(2), Some(3)];
        let watermarks = Some(vec![1_001, 2_000, 2_999]);
        DropLate::new(0, Late::At)
            .process(chunk(times, watermarks), &mut output)
            .unwrap();
        assert_eq!(output.rows_late(), 2);
        let chunks = output.take_chunks();
        assert_eq!(rows(&chunks), ["ts=1970-01-01T00:00:00.003"]);
    }

    #[test]
    fn without_watermarks_nothing_is_late_and_a_missing_time_is_a_mistake_of_the_query() {
        let mut output = Output::new(100);
        let mut operator = DropLate::new(0, Late::Before);
        let in_time = chunk(vec![Some(1), Some(-7)], None);
        operator.process(in_time, &mut output).unwrap();
        assert_eq!(output.take_chunks()[0].rows(), 2);
        let broken = operator.process(chunk(vec![None], None), &mut output);
        assert!(broken.unwrap_err().to_string().contains("WATERMARK FOR"));
    }
}
