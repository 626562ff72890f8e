//! The columns of a source's chunks: computed ones, and the event time, which must be valid.

use std::sync::Arc;

use arrow_array::{Array, BooleanArray};
use arrow_schema::TimeUnit;

use super::observe::{extremes, place};
use super::{EventTimeSpec, Intake};
use crate::chunk::Chunk;
use crate::error::Result;
use crate::expression::{evaluate, reject};
use crate::operator::window::{EVENT_TIME_MAX_US, ticks_to_us, timestamp_ticks, timestamp_unit};

impl Intake {
    /// The chunk with the table's columns.
    pub(super) fn compute(&mut self, chunk: Chunk) -> Result<Chunk> {
        if self.is_as_read(&chunk) {
            return Ok(chunk);
        }
        let evaluated = evaluate(&self.spec.columns, chunk)?;
        self.counts.rows_bad += evaluated.rejected.len() as u64;
        for rejected in evaluated.rejected {
            self.dead_letters.reject(&rejected)?;
        }
        evaluated
            .chunk
            .with_columns(self.spec.schema.clone(), evaluated.columns)
    }

    /// Whether the table's columns are those that the source reads, in the same order, under the same names.
    fn is_as_read(&mut self, chunk: &Chunk) -> bool {
        let read = chunk.batch.schema_ref();
        if let Some((known, is_as_read)) = &self.as_read
            && Arc::ptr_eq(known, read)
        {
            return *is_as_read;
        }
        let columns = self.spec.columns.iter().enumerate();
        let mut same = columns.map(|(index, column)| column.column() == Some(index));
        let is_as_read = same.all(|same| same) && **read == *self.spec.schema;
        self.as_read = Some((Arc::clone(read), is_as_read));
        is_as_read
    }

    /// Takes out rows whose event time is NULL or out of range.
    pub(super) fn check_event_time(
        &mut self,
        event_time: EventTimeSpec,
        chunk: Chunk,
    ) -> Result<Chunk> {
        let column = chunk.batch.column(event_time.column);
        let ticks = timestamp_ticks(column)?;
        let unit = timestamp_unit(column.data_type()).expect("`timestamp_ticks` has checked it");
        let in_range = |ticks: i64| {
            let time = ticks_to_us(ticks, unit);
            (-EVENT_TIME_MAX_US..=EVENT_TIME_MAX_US).contains(&time)
        };
        let (least, most) = extremes(ticks);
        if column.null_count() == 0 && in_range(least) && in_range(most) {
            self.look_at_times(&chunk, unit, ticks, (least, most));
            return Ok(chunk);
        }
        let name = self.spec.schema.field(event_time.column).name().clone();
        let mut keep = Vec::with_capacity(chunk.rows());
        for (row, &ticks) in ticks.iter().enumerate() {
            let reason = if column.is_null(row) {
                format!("event time {name} is NULL")
            } else if !in_range(ticks) {
                format!("event time {name} is out of range")
            } else {
                keep.push(true);
                continue;
            };
            keep.push(false);
            self.counts.rows_bad += 1;
            self.dead_letters.reject(&reject(&chunk, row, reason))?;
        }
        let chunk = chunk.filter(&BooleanArray::from(keep))?;
        let ticks = timestamp_ticks(chunk.batch.column(event_time.column))?;
        self.look_at_times(&chunk, unit, ticks, extremes(ticks));
        Ok(chunk)
    }

    /// Reports the first event time that is most likely wrong.
    fn look_at_times(
        &mut self,
        chunk: &Chunk,
        unit: TimeUnit,
        ticks: &[i64],
        (least, most): (i64, i64),
    ) {
        let (Some(looking), Some(origin), Some(&first)) =
            (&mut self.looking, &chunk.origin, ticks.first())
        else {
            return;
        };
        let [first, least, most] = [first, least, most].map(|ticks| ticks_to_us(ticks, unit));
        if !looking.is_odd(first, least, most) {
            return;
        }
        let times = ticks.iter().map(|&ticks| ticks_to_us(ticks, unit));
        let mut odd = times
            .enumerate()
            .filter(|(_, time)| looking.finds_odd(*time));
        let odd = odd.next();
        if let Some((row, time)) = odd {
            looking.odd_time(place(origin, row), time);
        }
    }
}
