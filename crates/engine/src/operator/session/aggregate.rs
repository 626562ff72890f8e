//! Aggregates of sessions.
//!
//! Snapshots hold a row per session that has changed: `first`, `last` and `reach` in ticks, the keys, the
//! states of the accumulators. Sessions only grow until they are emitted, so a restored session replaces
//! those that it overlaps.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow_schema::SchemaRef;

use super::{KeyedSessions, Session, SessionSpec, edges, wrong_snapshot};
use crate::accumulator::AggregateFunction;
use crate::chunk::Chunk;
use crate::error::Result;
use crate::operator::aggregate::groups::Groups;
use crate::operator::aggregate::{AggregateSpec, emit_updates};
use crate::operator::{Facts, Output, Progress, Stateful, Timer};
use crate::state::{BucketSet, Clock, KeyedState, Mark, Sliced, snapshot};
use crate::time::EventTime;

/// The number of columns of a snapshot before the keys.
const OWN_COLUMNS: usize = 3;

/// Aggregation in sessions: of the rows of a key that are less than a gap apart.
pub struct SessionAggregate {
    spec: AggregateSpec,
    sessions: KeyedSessions,
    /// The accumulators, by session number.
    values: Groups,
}

impl SessionAggregate {
    /// An aggregation over chunks with the columns of `input`; its output has the columns `window_start`,
    /// `window_end`, keys, aggregates. The keys are those of the sessions.
    pub fn new(
        spec: AggregateSpec,
        sessions: SessionSpec,
        input: &SchemaRef,
    ) -> Result<SessionAggregate> {
        Ok(SessionAggregate {
            values: Groups::new(&[], &spec.calls)?,
            sessions: KeyedSessions::new(sessions, input)?,
            spec,
        })
    }

    fn clear(&mut self) {
        self.sessions.clear();
        self.values.clear();
    }

    fn make_room(&mut self) {
        self.values.resize_to(self.sessions.sessions.numbers());
    }

    /// Merges the aggregates of sessions that have become one.
    fn merge(&mut self) -> Result<()> {
        let merged = self.sessions.sessions.take_merged();
        if merged.is_empty() {
            return Ok(());
        }
        let from = merged.iter().map(|&(from, _)| from);
        let from = from.collect::<Vec<u32>>();
        let into = merged.iter();
        let into = into.map(|&(_, into)| self.sessions.sessions.resolve(into));
        let into = into.collect::<Vec<u32>>();
        for accumulator in &mut self.values.accumulators {
            let states = accumulator.state(&from)?;
            accumulator.merge(&into, &states)?;
        }
        Ok(())
    }

    fn emit(&mut self, closed: &[(u32, Session)], output: &mut Output) -> Result<()> {
        let numbers = closed.iter().map(|(number, _)| *number);
        let numbers = numbers.collect::<Vec<u32>>();
        let sessions = closed.iter().map(|(_, session)| *session);
        let sessions = sessions.collect::<Vec<Session>>();
        let mut front = edges(&sessions, &self.sessions.spec.windows).to_vec();
        let keys = sessions.iter().map(|session| session.key);
        let keys = keys.collect::<Vec<u32>>();
        front.extend(self.sessions.keys.columns(&keys)?);
        let (batch, failed) = self.values.result(&numbers, &front, &self.spec.schema)?;
        emit_updates(Chunk::new(batch, output.ingest_ns), &failed, output)
    }

    /// Renumbers sessions, so that those that are gone take no memory.
    fn compact(&mut self) -> Result<()> {
        let before = self.sessions.renumber()?;
        let mut touched = std::mem::take(&mut self.values.touched);
        touched.renumber(&before);
        let states = self.values.states(&before)?;
        self.values.clear();
        self.make_room();
        let now = (0..before.len() as u32).collect::<Vec<u32>>();
        self.values.merge_states(&now, &states)?;
        self.values.touched = touched;
        Ok(())
    }
}

impl Stateful for SessionAggregate {
    fn facts(&self) -> Facts {
        Facts {
            placed_by: vec![Some(self.sessions.spec.keys.clone())],
            is_replicated: false,
            first_input: None,
            delay_us: 0,
            shares_input: {
                let functions = self.spec.calls.iter().map(|call| &call.function);
                functions.into_iter().any(AggregateFunction::is_foreign)
            },
        }
    }

    fn process(&mut self, _input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        let (chunk, numbers) = self.sessions.add(chunk, output)?;
        if numbers.is_empty() {
            return Ok(());
        }
        self.make_room();
        self.merge()?;
        self.values.touch(&numbers, self.sessions.clock.mark());
        self.values.update(&self.spec, &numbers, &chunk, output)
    }

    fn rest(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: EventTime, output: &mut Output) -> Result<Progress> {
        self.sessions.clock.advance(watermark);
        let mut closed = Vec::new();
        while closed.len() < output.chunk_rows
            && let Some(session) = self.sessions.close(watermark)
        {
            closed.push(session);
        }
        if !closed.is_empty() {
            self.emit(&closed, output)?;
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
        self.sessions.bytes() + self.values.bytes()
    }
}

impl KeyedState for SessionAggregate {
    fn clock(&mut self) -> &mut Clock {
        &mut self.sessions.clock
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        let touched = self.values.touched.since(since).into_iter();
        let chosen = touched.filter_map(|number| {
            let session = self.sessions.sessions.get(number)?;
            let is_asked_for = buckets.contains_hash(self.sessions.hash_of(&session));
            is_asked_for.then_some((number, session))
        });
        let chosen = chosen.collect::<Vec<(u32, Session)>>();
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        let of = |value: fn(&Session) -> i64| -> ArrayRef {
            let values = chosen.iter().map(|(_, session)| value(session));
            Arc::new(Int64Array::from_iter_values(values))
        };
        let mut columns = vec![of(|s| s.first), of(|s| s.last), of(|s| s.reach)];
        let keys = chosen.iter().map(|(_, session)| session.key);
        columns.extend(self.sessions.keys.columns(&keys.collect::<Vec<u32>>())?);
        let numbers = chosen.iter().map(|(number, _)| *number);
        let numbers = numbers.collect::<Vec<u32>>();
        columns.extend(self.values.states(&numbers)?);
        Ok(vec![snapshot::unnamed(columns)?])
    }

    fn sliced(&mut self) -> Option<&mut dyn Sliced> {
        None
    }

    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        let first_state = OWN_COLUMNS + self.sessions.key_types.len();
        if batch.num_columns() < first_state {
            return Err(wrong_snapshot("it has too few columns"));
        }
        let own = |index: usize| {
            let column = batch.column(index).as_primitive_opt::<Int64Type>();
            let column = column.filter(|column| column.null_count() == 0);
            column.ok_or_else(|| wrong_snapshot("its edges are not whole numbers"))
        };
        let (first, last, reach) = (own(0)?, own(1)?, own(2)?);
        let keys = &batch.columns()[OWN_COLUMNS..first_state];
        let types = keys.iter().map(|key| key.data_type());
        if !types.eq(&self.sessions.key_types) {
            return Err(wrong_snapshot("its keys are of other types"));
        }
        let sessions = (0..batch.num_rows()).map(|row| Session {
            key: 0,
            first: first.value(row),
            last: last.value(row),
            reach: reach.value(row),
        });
        let numbers = self.sessions.insert(keys.to_vec(), sessions)?;
        self.make_room();
        self.merge()?;
        let numbers = numbers.into_iter();
        let numbers = numbers.map(|number| self.sessions.sessions.resolve(number));
        let numbers = numbers.collect::<Vec<u32>>();
        self.values.touch(&numbers, self.sessions.clock.mark());
        let states = &batch.columns()[first_state..];
        self.values.merge_states(&numbers, states)
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        snapshot::discard_by_copy(self, buckets, SessionAggregate::clear)
    }

    fn drop_emitted(&mut self, watermark: EventTime) -> Result<()> {
        while self.sessions.close(watermark).is_some() {}
        // A session that was restored again got a new number.
        match self.sessions.is_sparse() {
            true => self.compact(),
            false => Ok(()),
        }
    }

    fn publish(&mut self, _cut: u64) -> bool {
        false
    }
}
