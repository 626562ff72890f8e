//! Temporal join: a stream, and a table that changes slowly.
//!
//! A row of the table is a version of its key from its event time on, until that of the next. A row of
//! the stream is joined with the version at its own event time (SQL:2011's `FOR SYSTEM_TIME AS OF`, with
//! event time for system time). It waits until the watermark of both inputs says that the version is
//! known, so the result does not depend on when either came.
//!
//! Every instance gets all versions by broadcast; rows of the stream stay where they are. Late rows of
//! either side are left out before ([`super::drop_late`]).

mod versions;

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow_row::RowConverter;

use super::table_join::index::{converter, encode};
use super::table_join::{STREAM, TABLE, TableJoinSpec, copied, holding};
use super::window::{ticks_to_us, timestamp_ticks, timestamp_unit};
use super::{Operator, Output, Progress};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::time::{EventTime, MIN_WATERMARK};
use versions::Versions;

/// What a temporal join does.
#[derive(Debug, Clone)]
pub struct TemporalJoinSpec {
    /// What is joined. Versions are those of the table's key columns.
    pub join: TableJoinSpec,
    /// The event-time columns of the stream and of the table.
    pub times: [usize; 2],
}

/// Versions are kept for so long behind the watermark: rows that a window has made have event times up
/// to a millisecond before its end, and come when the watermark is there.
const KEPT_BEHIND_US: EventTime = 1_000;

/// Temporal join.
pub struct TemporalJoin {
    spec: TemporalJoinSpec,
    converter: RowConverter,
    versions: Versions,
    /// Rows of the stream whose version may not be known yet, in the order in which they came.
    waiting: VecDeque<Waiting>,
    /// Rows of the stream that can be joined.
    ready: VecDeque<Chunk>,
    /// The earliest time whose versions are all kept.
    kept_from: EventTime,
}

struct Waiting {
    chunk: Chunk,
    /// Event times in microseconds.
    times: Vec<EventTime>,
}

impl TemporalJoin {
    /// A join that knows no version yet.
    pub fn new(spec: TemporalJoinSpec) -> Result<TemporalJoin> {
        Ok(TemporalJoin {
            converter: converter(&spec.join.table, &spec.join.keys[TABLE])?,
            versions: Versions::new(spec.join.table.clone()),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            kept_from: MIN_WATERMARK,
            spec,
        })
    }

    /// The chunk in memory of its own, with the event times of its rows.
    fn timed(&self, input: usize, mut chunk: Chunk) -> Result<Waiting> {
        let column = chunk.batch.column(self.spec.times[input]);
        let unit = timestamp_unit(column.data_type());
        let (0, Some(unit)) = (column.null_count(), unit) else {
            return Err(Error::new("temporal join", "an event time is NULL"));
        };
        let ticks = timestamp_ticks(column)?.iter();
        let times = ticks.map(|&tick| ticks_to_us(tick, unit)).collect();
        chunk.batch = copied(chunk.batch)?;
        Ok(Waiting { chunk, times })
    }

    /// Without the rows whose version may be forgotten. There are none but after idleness: a partition
    /// that is heard again may be behind what others have moved the watermark to meanwhile.
    fn in_time(&self, timed: Waiting, output: &mut Output) -> Result<Waiting> {
        let is_kept = |time: &EventTime| *time >= self.kept_from;
        if timed.times.iter().all(is_kept) {
            return Ok(timed);
        }
        let keep = timed.times.iter().map(is_kept).collect::<BooleanArray>();
        output.count_late((keep.len() - keep.true_count()) as u64);
        Ok(Waiting {
            chunk: timed.chunk.filter(&keep)?,
            times: timed.times.into_iter().filter(is_kept).collect(),
        })
    }

    /// Moves the rows before `watermark` from those that wait to those that are ready: at the watermark
    /// there may be more versions to come.
    fn release(&mut self, watermark: EventTime) -> Result<()> {
        for waiting in std::mem::take(&mut self.waiting) {
            let is_ready = waiting.times.iter().map(|&time| time < watermark);
            let is_ready = is_ready.collect::<Vec<bool>>();
            if is_ready.iter().all(|&ready| ready) {
                self.ready.push_back(waiting.chunk);
            } else if is_ready.iter().all(|&ready| !ready) {
                self.waiting.push_back(waiting);
            } else {
                let later = is_ready.iter().map(|ready| !ready).collect::<Vec<bool>>();
                let times = waiting.times.iter().zip(&later);
                let times = times.filter(|(_, later)| **later).map(|(&time, _)| time);
                self.waiting.push_back(Waiting {
                    times: times.collect(),
                    chunk: waiting.chunk.filter(&BooleanArray::from(later))?,
                });
                let ready = waiting.chunk.filter(&BooleanArray::from(is_ready))?;
                self.ready.push_back(ready);
            }
        }
        Ok(())
    }

    fn join(&self, chunk: &Chunk, output: &mut Output) -> Result<()> {
        let column = chunk.batch.column(self.spec.times[STREAM]);
        let unit = timestamp_unit(column.data_type()).expect("looked at when it came");
        let ticks = timestamp_ticks(column)?;
        let keys = self.keys(STREAM, &chunk.batch);
        let search = encode(&self.converter, keys, chunk.rows())?;
        let partner = |row: usize| {
            if search.is_null[row] {
                return None;
            }
            let (hash, key) = (search.hashes[row], search.keys.row(row));
            let time = ticks_to_us(ticks[row], unit);
            self.versions.at(hash, key.data(), time)
        };
        let partners = (0..chunk.rows()).map(partner);
        let mut partners = partners.collect::<Vec<Option<(u32, u32)>>>();
        let matched = (0..chunk.rows() as u32).filter(|&row| partners[row as usize].is_some());
        let mut rows = matched.collect::<Vec<u32>>();
        let mut failed = Vec::new();
        if let Some(condition) = &self.spec.join.condition {
            let candidates = self.joined(chunk, &rows, &partners)?;
            let (kept, of_rows) = holding(condition, candidates, chunk, &rows, output)?;
            failed = of_rows;
            rows = kept.into_iter().map(|candidate| rows[candidate]).collect();
        }
        if self.spec.join.keeps_unmatched {
            let mut kept = vec![None; partners.len()];
            for &row in &rows {
                kept[row as usize] = partners[row as usize];
            }
            partners = kept;
            let all = 0..chunk.rows() as u32;
            rows = all
                .filter(|row| failed.binary_search(row).is_err())
                .collect();
        }
        if !rows.is_empty() {
            let mut joined = self.joined(chunk, &rows, &partners)?;
            // It was the watermark that brought them out.
            joined.ingest_ns = output.ingest_ns;
            output.emit(joined);
        }
        Ok(())
    }

    /// The rows `rows` of the stream beside their partners.
    fn joined(
        &self,
        chunk: &Chunk,
        rows: &[u32],
        partners: &[Option<(u32, u32)>],
    ) -> Result<Chunk> {
        let taken = match rows.len() == chunk.rows() {
            true => chunk.clone(),
            false => chunk.take(&UInt32Array::from(rows.to_vec()))?,
        };
        let partners = rows.iter().map(|&row| partners[row as usize]);
        let mut columns = taken.batch.columns().to_vec();
        columns.extend(self.versions.columns(&partners.collect::<Vec<_>>())?);
        taken.with_columns(self.spec.join.schema.clone(), columns)
    }

    fn keys(&self, input: usize, batch: &RecordBatch) -> Vec<ArrayRef> {
        let keys = self.spec.join.keys[input].iter();
        keys.map(|&key| Arc::clone(batch.column(key))).collect()
    }
}

impl Operator for TemporalJoin {
    fn process(&mut self, input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        let timed = self.timed(input, chunk)?;
        if input == STREAM {
            let timed = self.in_time(timed, output)?;
            self.waiting.push_back(timed);
            return Ok(());
        }
        let keys = self.keys(TABLE, &timed.chunk.batch);
        let keys = encode(&self.converter, keys, timed.times.len())?;
        self.versions.add(timed.chunk, &timed.times, &keys)
    }

    fn advance(&mut self, watermark: EventTime, output: &mut Output) -> Result<Progress> {
        if self.ready.is_empty() {
            self.release(watermark)?;
        }
        if let Some(chunk) = self.ready.pop_front() {
            self.join(&chunk, output)?;
        }
        if !self.ready.is_empty() {
            return Ok(Progress::More);
        }
        self.kept_from = watermark.saturating_sub(KEPT_BEHIND_US);
        self.versions.forget(self.kept_from)?;
        Ok(Progress::Done)
    }

    fn finalise(&mut self, _output: &mut Output) -> Result<()> {
        self.versions = Versions::new(self.spec.join.table.clone());
        self.kept_from = MIN_WATERMARK;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
