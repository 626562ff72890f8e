//! Session windows: rows of a key that are less than a gap apart.
//!
//! [`index`] decides which rows are one session, by the rows' times and *reaches* alone
//! ([`super::window::AssignWindows`] computes these and drops late rows), so it doesn't depend on chunks,
//! instances, or which partition came first. A session is emitted when the watermark reaches its end: the
//! time of its last row plus the gap.
//!
//! [`SessionAggregate`] keeps the aggregates of open sessions, and merges them as sessions merge.
//! [`SessionRows`] keeps rows, and emits them with the edges of their session once these are known.

mod aggregate;
mod index;
mod rows;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};

use super::Output;
use super::aggregate::Keys;
use super::event_times::only_in_time;
use super::window::{Windows, scale, timestamp_column, timestamp_ticks, timestamp_unit};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::key::KeyColumns;
use crate::state::{Clock, snapshot};
use crate::time::EventTime;
pub use aggregate::SessionAggregate;
use index::{Session, Sessions};
pub use rows::SessionRows;

/// Which rows belong to one session.
#[derive(Debug, Clone)]
pub struct SessionSpec {
    /// The columns of the input whose values have sessions of their own.
    pub keys: Vec<usize>,
    /// The event-time column.
    pub time_column: usize,
    /// The column that [`super::window::AssignWindows`] has added.
    pub reach_column: usize,
    /// The sessions.
    pub windows: Windows,
}

/// The number of unused session numbers from which on sessions are renumbered.
const SPARE_NUMBERS: usize = 1024;

/// Open sessions of all keys.
struct KeyedSessions {
    spec: SessionSpec,
    key_types: Vec<DataType>,
    keys: Keys,
    sessions: Sessions,
    clock: Clock,
    key_numbers: Vec<u32>,
}

impl KeyedSessions {
    fn new(spec: SessionSpec, input: &SchemaRef) -> Result<KeyedSessions> {
        let key_types = spec.keys.iter();
        let key_types = key_types.map(|&key| input.field(key).data_type().clone());
        let key_types = key_types.collect::<Vec<_>>();
        Ok(KeyedSessions {
            keys: Keys::new(&key_types)?,
            key_types,
            sessions: Sessions::new(spec.windows.size),
            clock: Clock::default(),
            key_numbers: Vec::new(),
            spec,
        })
    }

    /// The event times of a chunk's rows in ticks of the windows.
    fn times(&self, batch: &RecordBatch) -> Result<Vec<i64>> {
        let column = batch.column(self.spec.time_column);
        let unit = self.spec.windows.unit;
        let own = timestamp_unit(column.data_type()).unwrap_or(unit);
        let factor = scale(own, unit);
        let ticks = timestamp_ticks(column)?.iter();
        // Within bounds: `AssignWindows` has rejected times that overflow.
        Ok(ticks.map(|&tick| tick.saturating_mul(factor)).collect())
    }

    /// Adds the rows of a chunk. Returns those that aren't late, and the numbers of their sessions;
    /// before using these, the caller must handle the sessions that have merged.
    fn add(&mut self, chunk: Chunk, output: &mut Output) -> Result<(Chunk, Vec<u32>)> {
        let times = self.times(&chunk.batch)?;
        let (chunk, times) = self.in_time(chunk, times, output)?;
        if times.is_empty() {
            return Ok((chunk, Vec::new()));
        }
        let keys = KeyColumns::of_chunk(&chunk, &self.spec.keys)?;
        self.keys.groups(&keys, &mut self.key_numbers)?;
        let reaches = self.reaches(&chunk.batch)?;
        let rows = self.key_numbers.iter().zip(&times).zip(&reaches);
        let sessions = &mut self.sessions;
        let added = rows.map(|((&key, &time), &reach)| sessions.add(key, time, reach));
        let added = added.collect::<Vec<u32>>();
        let sessions = added
            .into_iter()
            .map(|number| self.sessions.resolve(number));
        let sessions = sessions.collect();
        Ok((chunk, sessions))
    }

    /// How far back the rows of a chunk reach. Their own watermark is behind that of the instance only if
    /// a partition has resumed; sessions that were closed here are out of reach even then.
    fn reaches(&self, batch: &RecordBatch) -> Result<Vec<i64>> {
        let closed_until = self.spec.windows.watermark_ticks(self.clock.watermark());
        let reaches = timestamp_ticks(batch.column(self.spec.reach_column))?.iter();
        Ok(reaches.map(|&reach| reach.max(closed_until)).collect())
    }

    /// Drops rows whose own session would be closed.
    fn in_time(
        &self,
        chunk: Chunk,
        times: Vec<i64>,
        output: &mut Output,
    ) -> Result<(Chunk, Vec<i64>)> {
        let closed_until = self.spec.windows.watermark_ticks(self.clock.watermark());
        let gap = self.spec.windows.size;
        only_in_time(chunk, times, output, |time| {
            time.saturating_add(gap) > closed_until
        })
    }

    /// Closes a session that is complete at `watermark`.
    fn close(&mut self, watermark: EventTime) -> Option<(u32, Session)> {
        let ticks = self.spec.windows.watermark_ticks(watermark);
        self.sessions.close(ticks)
    }

    fn hash_of(&self, session: &Session) -> u64 {
        self.keys.hash(session.key as usize)
    }

    /// Whether most of the numbers given out are unused.
    fn is_sparse(&self) -> bool {
        self.sessions.numbers() > 2 * self.sessions.open() + SPARE_NUMBERS
    }

    /// Renumbers keys and sessions, from 0 on; returns the numbers that they had.
    fn renumber(&mut self) -> Result<Vec<u32>> {
        let all = self.sessions.iter().collect::<Vec<(u32, Session)>>();
        let keys = all.iter().map(|(_, session)| session.key);
        let keys = self.keys.columns(&keys.collect::<Vec<u32>>())?;
        self.keys.clear();
        self.sessions = Sessions::new(self.spec.windows.size);
        self.insert(keys, all.iter().map(|(_, session)| *session))?;
        Ok(all.into_iter().map(|(number, _)| number).collect())
    }

    /// Adds sessions with these keys, whatever number their key has there, replacing those that they
    /// overlap.
    fn insert(
        &mut self,
        keys: Vec<ArrayRef>,
        sessions: impl ExactSizeIterator<Item = Session>,
    ) -> Result<Vec<u32>> {
        let mut numbers = Vec::new();
        let keys = KeyColumns::new(keys, sessions.len())?;
        self.keys.groups(&keys, &mut numbers)?;
        let added = numbers.into_iter().zip(sessions).map(|(key, session)| {
            let (first, last) = (session.first, session.last);
            self.sessions.remove_between(key, first, last);
            self.sessions.join(Session { key, ..session })
        });
        Ok(added.collect())
    }

    /// Forgets all sessions.
    fn clear(&mut self) {
        self.keys.clear();
        self.sessions = Sessions::new(self.spec.windows.size);
    }

    fn bytes(&self) -> usize {
        self.keys.bytes() + self.sessions.bytes()
    }
}

/// The columns `window_start` and `window_end` of sessions.
fn edges(sessions: &[Session], windows: &Windows) -> [ArrayRef; 2] {
    let starts = sessions.iter().map(|session| session.first);
    let ends = sessions.iter();
    let ends = ends.map(|session| session.last.saturating_add(windows.size));
    [
        timestamp_column(starts.collect(), windows.unit),
        timestamp_column(ends.collect(), windows.unit),
    ]
}

fn wrong_snapshot(why: &str) -> Error {
    snapshot::wrong("sessions", why)
}

#[cfg(test)]
mod tests;
