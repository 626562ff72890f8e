//! Temporal join: a stream, and a table that changes slowly.
//!
//! A row of the table is a version of its key from its event time on, until that of the next. A row of
//! the stream is joined with the version at its own event time (SQL:2011's `FOR SYSTEM_TIME AS OF`, with
//! event time for system time). It waits until the watermark of both inputs says that the version is
//! known, so the result doesn't depend on when either came.
//!
//! Every instance gets all versions by broadcast; rows of the stream stay where they are. Late rows of
//! either side are dropped before ([`super::drop_late`]).

mod state;
mod versions;

use std::collections::VecDeque;

use arrow_array::{BooleanArray, RecordBatch, UInt32Array};

use super::event_times::{event_times, only_in_time};
use super::join::copy_views;
use super::table_join::{STREAM, TABLE, TableJoinSpec, holding};
use super::window::{ticks_to_us, timestamp_ticks, timestamp_unit};
use super::{Facts, Output, Progress, Stateful, Timer};
use crate::chunk::{Chunk, Positions};
use crate::error::Result;
use crate::key::{EncodedKeys, KeyColumns, KeyEncoder};
use crate::state::{Clock, KeyedState, Mark};
use crate::time::{EventTime, MAX_WATERMARK, MIN_WATERMARK};
use versions::Versions;

/// What a temporal join does.
#[derive(Debug, Clone)]
pub struct TemporalJoinSpec {
    /// The join. Versions are those of the table's key columns.
    pub join: TableJoinSpec,
    /// The event-time columns of the stream and of the table.
    pub times: [usize; 2],
}

/// How long versions are kept behind the watermark: rows made by a window have event times up to a
/// millisecond before its end, and come when the watermark reaches the end.
const KEPT_BEHIND_US: EventTime = 1_000;

/// Temporal join.
pub struct TemporalJoin {
    spec: TemporalJoinSpec,
    key_encoder: KeyEncoder,
    versions: Versions,
    /// Rows of the stream whose version may not be known yet, in order of arrival.
    waiting: VecDeque<Waiting>,
    /// Rows of the stream that can be joined.
    ready: VecDeque<Chunk>,
    /// The earliest time from which all versions are kept.
    kept_from: EventTime,
    clock: Clock,
}

struct Waiting {
    chunk: Chunk,
    /// The times, in microseconds, that the watermark must pass before each row is ready: its event time,
    /// or the watermark when it came. So the watermark at a cut says exactly which rows had been ready.
    behind: Vec<EventTime>,
    mark: Mark,
}

/// A chunk with the event times of its rows, in microseconds.
type Timed = (Chunk, Vec<EventTime>);

/// The chunk in memory of its own, so that it holds neither the link's frame nor the source's block.
fn copied(chunk: &Chunk) -> Result<Chunk> {
    let all = UInt32Array::from_iter_values(0..chunk.rows() as u32);
    let mut copy = chunk.take(&all)?;
    copy.batch = copy_views(copy.batch)?;
    if let (Some(copy), Some(origin)) = (&mut copy.origin, &chunk.origin)
        && let Positions::Run { .. } = origin.positions
    {
        copy.positions = origin.positions.clone();
    }
    Ok(copy)
}

impl TemporalJoin {
    /// A join that knows no version yet.
    pub fn new(spec: TemporalJoinSpec) -> Result<TemporalJoin> {
        Ok(TemporalJoin {
            key_encoder: KeyEncoder::of_schema(&spec.join.table, &spec.join.keys[TABLE])?,
            versions: Versions::new(spec.join.table.clone()),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            kept_from: MIN_WATERMARK,
            clock: Clock::default(),
            spec,
        })
    }

    /// The chunk in memory of its own, with the event times of its rows.
    fn timed(&self, input: usize, chunk: &Chunk) -> Result<Timed> {
        let column = chunk.batch.column(self.spec.times[input]);
        Ok((copied(chunk)?, event_times(column, "temporal join")?))
    }

    /// Drops rows whose version may be forgotten.
    fn in_time(&self, (chunk, times): Timed, output: &mut Output) -> Result<Timed> {
        only_in_time(chunk, times, output, |time| time >= self.kept_from)
    }

    /// Moves the rows before `watermark` from those that wait to those that are ready: at the watermark
    /// itself, more versions may come.
    fn release(&mut self, watermark: EventTime) -> Result<()> {
        for waiting in std::mem::take(&mut self.waiting) {
            let (ready, later) = waiting.split(watermark)?;
            self.ready.extend(ready);
            self.waiting.extend(later);
        }
        Ok(())
    }

    fn join(&self, chunk: &Chunk, output: &mut Output) -> Result<()> {
        let column = chunk.batch.column(self.spec.times[STREAM]);
        let unit = timestamp_unit(column.data_type()).expect("looked at when it came");
        let ticks = timestamp_ticks(column)?;
        let keys = self.keys(STREAM, &chunk.batch)?;
        let partner = |row: usize| {
            if keys.is_null(row) {
                return None;
            }
            let time = ticks_to_us(ticks[row], unit);
            self.versions.at(keys.key(row), time)
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
            // The watermark made these rows ready.
            joined.ingest_ns = output.ingest_ns;
            output.emit(joined);
        }
        Ok(())
    }

    /// The rows `rows` of the stream next to their partners.
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

    fn keys(&self, input: usize, batch: &RecordBatch) -> Result<EncodedKeys> {
        let keys = KeyColumns::of_batch(batch, &self.spec.join.keys[input])?;
        self.key_encoder.encode(keys)
    }
}

impl Stateful for TemporalJoin {
    fn facts(&self) -> Facts {
        Facts {
            // Rows of the stream stay where they are, and versions are in every instance.
            placed_by: vec![None, None],
            is_replicated: true,
            first_input: None,
            delay_us: 0,
            // It copies what it keeps, and emits nothing else.
            shares_input: false,
        }
    }

    fn process(&mut self, input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        let timed = self.timed(input, &chunk)?;
        if input == STREAM {
            let (chunk, times) = self.in_time(timed, output)?;
            let behind = times
                .into_iter()
                .map(|time| time.max(self.clock.watermark()));
            self.waiting.push_back(Waiting {
                chunk,
                behind: behind.collect(),
                mark: self.clock.mark(),
            });
            return Ok(());
        }
        let (chunk, times) = timed;
        let keys = self.keys(TABLE, &chunk.batch)?;
        let places = self.versions.places(&chunk);
        self.versions
            .add(chunk.batch, &times, &places, &keys, self.clock.mark());
        Ok(())
    }

    fn rest(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
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
        // A watermark that it had seen before it was restored is no reason to forget anything: rows that
        // came after a later one may need it.
        if watermark > self.clock.watermark() {
            self.clock.advance(watermark);
            self.kept_from = watermark.saturating_sub(KEPT_BEHIND_US);
            self.versions.forget(self.kept_from)?;
        }
        Ok(Progress::Done)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    fn end_unit(&mut self, _output: &mut Output) -> Result<()> {
        self.versions = Versions::new(self.spec.join.table.clone());
        self.kept_from = MIN_WATERMARK;
        self.clock.restart();
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(self)
    }

    fn bytes(&self) -> usize {
        let waiting = self.waiting.iter();
        let waiting = waiting.map(|waiting| waiting.chunk.batch.get_array_memory_size());
        waiting.sum::<usize>() + self.versions.bytes()
    }
}

impl Waiting {
    /// The rows that are ready at the watermark, and the others.
    fn split(self, watermark: EventTime) -> Result<(Option<Chunk>, Option<Waiting>)> {
        let is_end = watermark == MAX_WATERMARK;
        let is_ready = self.behind.iter().map(|&time| time < watermark || is_end);
        let is_ready = is_ready.collect::<Vec<bool>>();
        if is_ready.iter().all(|&ready| ready) {
            return Ok((Some(self.chunk), None));
        }
        if is_ready.iter().all(|&ready| !ready) {
            return Ok((None, Some(self)));
        }
        let ready = BooleanArray::from(is_ready.clone());
        let ready = self.chunk.filter(&ready)?;
        let later = is_ready.iter().map(|ready| !ready);
        let later = self.only(later.collect())?;
        Ok((Some(ready), Some(later)))
    }

    /// The rows for which `keep` is true.
    fn only(&self, keep: Vec<bool>) -> Result<Waiting> {
        let behind = self.behind.iter().zip(&keep);
        let behind = behind.filter(|(_, keep)| **keep).map(|(&time, _)| time);
        Ok(Waiting {
            behind: behind.collect(),
            chunk: self.chunk.filter(&BooleanArray::from(keep))?,
            mark: self.mark,
        })
    }
}

#[cfg(test)]
mod tests;
