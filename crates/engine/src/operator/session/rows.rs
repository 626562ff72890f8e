//! Rows with the edges of their session, once these are known.
//!
//! Snapshots hold the rows of open sessions that came since the last one, each with its time, partition,
//! position and reach: these determine which of them are one session.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt32Array, UInt64Array};
use arrow_schema::{Schema, SchemaRef};

use super::{KeyedSessions, Session, SessionSpec, edges, wrong_snapshot};
use crate::chunk::Chunk;
use crate::error::Result;
use crate::key::KeyColumns;
use crate::operator::kept::{KeptRow, RowKeeper, fit, origin, own_column, places};
use crate::operator::{Facts, Output, Progress, Stateful, Timer};
use crate::state::{BucketSet, Clock, KeyedState, Mark, Sliced, Touched, snapshot};
use crate::time::EventTime;

/// The number of columns of a snapshot before those of the rows.
const OWN_COLUMNS: usize = 4;

/// Emits rows with the edges of their session, in order of event time, when it is closed.
pub struct SessionRows {
    sessions: KeyedSessions,
    /// The columns of kept rows.
    input: SchemaRef,
    keeper: RowKeeper,
    /// The rows by session number.
    rows: Vec<Vec<Row>>,
    /// When a session last got a row, by session number.
    touched: Touched,
    /// The rows of closed sessions.
    closed: VecDeque<(Session, KeptRow)>,
    bytes: usize,
    schema: SchemaRef,
}

struct Row {
    kept: KeptRow,
    reach: i64,
    mark: Mark,
}

impl SessionRows {
    /// An operator over chunks with the columns of `input`, the last of which is the reach. `schema` has
    /// `window_start` and `window_end` in its place.
    pub fn new(sessions: SessionSpec, input: &SchemaRef, schema: SchemaRef) -> Result<SessionRows> {
        let fields = input.fields()[..sessions.reach_column].to_vec();
        let kept: SchemaRef = Arc::new(Schema::new(fields));
        Ok(SessionRows {
            sessions: KeyedSessions::new(sessions, input)?,
            keeper: RowKeeper::new(&kept)?,
            input: kept,
            rows: Vec::new(),
            touched: Touched::default(),
            closed: VecDeque::new(),
            bytes: 0,
            schema,
        })
    }

    fn clear(&mut self) {
        self.sessions.clear();
        self.rows.clear();
        self.touched.clear();
        self.bytes = 0;
    }

    /// Moves the rows of sessions that have become one together.
    fn merge(&mut self) {
        let sessions = &mut self.sessions.sessions;
        self.rows.resize_with(sessions.numbers(), Vec::new);
        self.touched.grow(sessions.numbers());
        for (from, into) in sessions.take_merged() {
            let rows = std::mem::take(&mut self.rows[from as usize]);
            self.rows[into as usize].extend(rows);
        }
    }

    fn add(&mut self, numbers: &[u32], rows: Vec<KeptRow>, reaches: &[i64]) {
        self.merge();
        let mark = self.sessions.clock.mark();
        for ((&number, kept), &reach) in numbers.iter().zip(rows).zip(reaches) {
            self.bytes += kept.bytes();
            self.touched.touch(number, mark);
            self.rows[number as usize].push(Row { kept, reach, mark });
        }
    }

    fn emit(&mut self, output: &mut Output) -> Result<()> {
        let rows = output.chunk_rows.min(self.closed.len());
        let rows = self.closed.drain(..rows).collect::<Vec<_>>();
        let mut columns = self.keeper.columns(rows.iter().map(|(_, row)| row))?;
        let sessions = rows.iter().map(|(session, _)| *session);
        let sessions = sessions.collect::<Vec<Session>>();
        columns.extend(edges(&sessions, &self.sessions.spec.windows));
        let batch = RecordBatch::try_new(self.schema.clone(), columns)?;
        output.emit(Chunk {
            origin: origin(rows.iter().map(|(_, row)| row)),
            ..Chunk::new(batch, output.ingest_ns)
        });
        Ok(())
    }

    /// Takes the rows of a closed session.
    fn take(&mut self, number: u32) -> Vec<Row> {
        let rows = std::mem::take(&mut self.rows[number as usize]);
        self.bytes -= rows.iter().map(|row| row.kept.bytes()).sum::<usize>();
        rows
    }

    fn compact(&mut self) -> Result<()> {
        let before = self.sessions.renumber()?;
        self.touched.renumber(&before);
        let rows = before.into_iter();
        let rows = rows.map(|number| std::mem::take(&mut self.rows[number as usize]));
        self.rows = rows.collect();
        Ok(())
    }
}

impl Stateful for SessionRows {
    fn facts(&self) -> Facts {
        Facts {
            placed_by: vec![Some(self.sessions.spec.keys.clone())],
            is_replicated: false,
            first_input: None,
            delay_us: 0,
            // Rows are copied when they are kept.
            shares_input: false,
        }
    }

    fn process(&mut self, _input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        let (chunk, numbers) = self.sessions.add(chunk, output)?;
        if numbers.is_empty() {
            return Ok(());
        }
        let times = self.sessions.times(&chunk.batch)?;
        let reach_column = self.sessions.spec.reach_column;
        let columns = &chunk.batch.columns()[..reach_column];
        let rows = self.keeper.keep(columns, &chunk, &times)?;
        let reaches = self.sessions.reaches(&chunk.batch)?;
        self.add(&numbers, rows, &reaches);
        Ok(())
    }

    fn rest(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: EventTime, output: &mut Output) -> Result<Progress> {
        self.sessions.clock.advance(watermark);
        while self.closed.len() < output.chunk_rows
            && let Some((number, session)) = self.sessions.close(watermark)
        {
            let mut rows = self.take(number);
            rows.sort_unstable_by(|one, other| one.kept.cmp(&other.kept));
            let rows = rows.into_iter().map(|row| (session, row.kept));
            self.closed.extend(rows);
        }
        if !self.closed.is_empty() {
            self.emit(output)?;
            return Ok(Progress::More);
        }
        if self.sessions.is_sparse() {
            self.compact()?;
        }
        Ok(Progress::Done)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    fn end_unit(&mut self, _output: &mut Output) -> Result<()> {
        self.clear();
        self.sessions.clock.restart();
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(self)
    }

    fn bytes(&self) -> usize {
        self.sessions.bytes() + self.bytes + self.rows.capacity() * 24 + self.touched.bytes()
    }
}

impl KeyedState for SessionRows {
    fn clock(&mut self) -> &mut Clock {
        &mut self.sessions.clock
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        snapshot::assert_between_inputs(!self.closed.is_empty());
        let is_asked_for = |number: &u32| {
            let session = self.sessions.sessions.get(*number);
            session.is_some_and(|session| buckets.contains_hash(self.sessions.hash_of(&session)))
        };
        let touched = self.touched.since(since).into_iter();
        let chosen = touched
            .filter(is_asked_for)
            .flat_map(|number| &self.rows[number as usize])
            .filter(|row| row.mark > since)
            .collect::<Vec<&Row>>();
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        let kept = chosen.iter().map(|row| &row.kept);
        let (partitions, positions) = places(kept.clone());
        let times = kept.clone().map(|row| row.order.0);
        let reaches = chosen.iter().map(|row| row.reach);
        let times: ArrayRef = Arc::new(Int64Array::from_iter_values(times));
        let reaches: ArrayRef = Arc::new(Int64Array::from_iter_values(reaches));
        let own = [
            ("time", times, false),
            ("partition", Arc::new(partitions), false),
            ("position", Arc::new(positions), false),
            ("reach", reaches, false),
        ];
        let rows = RecordBatch::try_new(self.input.clone(), self.keeper.columns(kept)?)?;
        Ok(vec![snapshot::with_own(own, &rows)?])
    }

    fn sliced(&mut self) -> Option<&mut dyn Sliced> {
        None
    }

    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        let wrong = || wrong_snapshot("its columns are not those of the rows");
        let times = own_column::<Int64Array>(batch, 0).ok_or_else(wrong)?;
        let partitions = own_column::<UInt32Array>(batch, 1).ok_or_else(wrong)?;
        let positions = own_column::<UInt64Array>(batch, 2).ok_or_else(wrong)?;
        let reaches = own_column::<Int64Array>(batch, 3).ok_or_else(wrong)?;
        let columns = &batch.columns()[OWN_COLUMNS..];
        if !fit(columns, &self.input) {
            return Err(wrong());
        }
        let keys = self.sessions.spec.keys.iter();
        let keys = keys.map(|&key| columns[key].clone());
        let keys = KeyColumns::new(keys.collect(), batch.num_rows())?;
        let mut numbers = Vec::new();
        let sessions = &mut self.sessions;
        sessions.keys.groups(&keys, &mut numbers)?;
        for (row, number) in numbers.iter_mut().enumerate() {
            let (time, reach) = (times.value(row), reaches.value(row));
            *number = sessions.sessions.add(*number, time, reach);
        }
        for number in &mut numbers {
            *number = sessions.sessions.resolve(*number);
        }
        let rows = self
            .keeper
            .restore(columns, times.values(), partitions, positions)?;
        self.add(&numbers, rows, reaches.values());
        Ok(())
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        snapshot::discard_by_copy(self, buckets, SessionRows::clear)
    }

    fn drop_emitted(&mut self, watermark: EventTime) -> Result<()> {
        while let Some((number, _)) = self.sessions.close(watermark) {
            self.take(number);
        }
        match self.sessions.is_sparse() {
            true => self.compact(),
            false => Ok(()),
        }
    }

    fn publish(&mut self, _cut: u64) -> bool {
        false
    }
}
