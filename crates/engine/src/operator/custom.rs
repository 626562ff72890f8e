//! A custom operator by key: a function that the program brings gets the rows of each key one after the
//! other, keeps a state for the key, sets timers, and emits rows (Flink: a keyed process function).
//!
//! *In order*, if its inputs name their event times: rows wait until the watermark says that all rows of
//! their time have come, and are then taken in the order of (event time, input, partition, position), so
//! that the result is the same however they arrived. Rows without a position (made by a stateful operator)
//! are ordered by their values. A timer fires after all rows of its time, and before any later one. Rows
//! before the watermark are dropped earlier ([`super::drop_late`]).
//!
//! *As they come* otherwise: the function sees the rows of a key in the order of arrival, and has no timers.
//!
//! An emitted row has the key, the event time of the row or timer that caused it (in order only), and the
//! function's own columns. If the operator emits updates, it may retract rows: then its rows have no event
//! time, because the row that retracts another has the same values in every column.

mod batch;
mod emit;
mod function;
mod piece;
mod rows;
#[cfg(test)]
pub(crate) mod sample;
mod state;
#[cfg(test)]
pub(crate) mod totals;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_row::{RowConverter, SortField};
use arrow_schema::SchemaRef;

use super::event_times::{event_times, only_in_time};
use super::keyed::Keyed;
use super::{Facts, Output, Progress, Stateful, Timer};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::expression::reject;
use crate::key::{EncodedKeys, KeyColumns, KeyEncoder};
use crate::state::{Clock, KeyedState};
use crate::time::EventTime;
pub use function::{
    Batch, BatchFunction, BatchStep, Emitted, Event, Function, KeyLeft, KeyStates, KeyedFactory,
    KeyedFunction, Ran, Reaction, StepFailure,
};
use piece::{Piece, Step};
pub use rows::Timers;
use rows::{KeyRows, Place};

/// The most timers of a key that fire one after the other when the input has ended, or at one event time:
/// about a second of work. A function that sets a timer at each timer would never end.
const TIMERS_MAX: u32 = 1_000_000;

/// What a custom operator does.
#[derive(Debug, Clone)]
pub struct CustomSpec {
    /// The operator's name in SQL.
    pub name: String,
    /// The inputs: all of them name their event times, or none.
    pub inputs: Vec<CustomInput>,
    /// How far behind the watermark rows may come and still be in time, in microseconds.
    pub behind_us: EventTime,
    /// The columns of the output: the keys, the event time (in order only, and without updates), the
    /// function's own, and the number of the output if there are several.
    pub schema: SchemaRef,
    /// Whether the function retracts rows that it has emitted.
    pub emits_updates: bool,
    /// Makes the function.
    pub factory: Arc<dyn KeyedFactory>,
}

/// An input of a custom operator.
#[derive(Debug, Clone)]
pub struct CustomInput {
    /// The columns of the key, which have the same types in all inputs.
    pub keys: Vec<usize>,
    /// The event-time column.
    pub time_column: Option<usize>,
    /// The columns.
    pub schema: SchemaRef,
}

/// A custom operator.
pub struct Custom {
    spec: CustomSpec,
    function: Function,
    key_encoder: KeyEncoder,
    converters: Vec<RowConverter>,
    /// The keys. A key is due when its first waiting row or its first timer is.
    keys: Keyed<KeyRows>,
    /// Keys that had nothing left, which one more snapshot must name.
    gone: Vec<u32>,
    /// Keys whose rows were all retracted by the present piece.
    emptied: Vec<u32>,
    /// Work that has not been finished.
    piece: Option<Piece>,
    /// The key and the time of each row that was emitted and is still with the function.
    emitted: Vec<(u32, EventTime)>,
    clock: Clock,
    /// The number of the next row; rows that are equal in everything else are ordered by it.
    next: u64,
    bytes: usize,
}

impl Custom {
    /// An operator that has seen no rows.
    ///
    /// # Errors
    ///
    /// When a type can't be kept, or the function can't start.
    pub fn new(spec: CustomSpec) -> Result<Custom> {
        let converter = |input: &CustomInput| {
            let fields = input.schema.fields().iter();
            let fields = fields.map(|field| SortField::new(field.data_type().clone()));
            RowConverter::new(fields.collect())
        };
        let converters = spec.inputs.iter().map(converter);
        let first = &spec.inputs[0];
        Ok(Custom {
            function: spec.factory.function()?,
            key_encoder: KeyEncoder::of_schema(&first.schema, &first.keys)?,
            converters: converters.collect::<std::result::Result<Vec<_>, _>>()?,
            keys: Keyed::default(),
            gone: Vec::new(),
            emptied: Vec::new(),
            piece: None,
            emitted: Vec::new(),
            clock: Clock::default(),
            next: 0,
            bytes: 0,
            spec,
        })
    }

    fn is_ordered(&self) -> bool {
        self.spec.inputs[0].time_column.is_some()
    }

    /// The time up to which all rows have come.
    fn complete(&self) -> EventTime {
        self.clock.complete(self.spec.behind_us)
    }

    fn encode(&self, keys: KeyColumns) -> Result<EncodedKeys> {
        self.key_encoder.encode(keys)
    }

    /// Lets rows wait until the watermark has passed them.
    fn keep(
        &mut self,
        input: usize,
        batch: &RecordBatch,
        keys: &EncodedKeys,
        places: impl Iterator<Item = (EventTime, u32, u64)>,
    ) -> Result<()> {
        let values = self.converters[input].convert_columns(batch.columns())?;
        let mark = self.clock.mark();
        for (row, (time, partition, position)) in places.enumerate() {
            let place = Place {
                time,
                input: input as u32,
                partition,
                position,
                values: values.row(row).data().into(),
                number: self.next,
            };
            self.next += 1;
            self.bytes += place.bytes();
            let number = self.keys.find_or_insert(keys.key(row), KeyRows::default);
            self.keys.touch(number, mark);
            self.keys.get_mut(number).waiting.insert(place, mark);
            self.set_due(number);
        }
        Ok(())
    }

    fn set_due(&mut self, key: u32) {
        let due = self.keys.get(key).due();
        self.keys.set_due(key, due);
    }

    /// The next complete rows of keys that are due, about `limit` of them.
    fn next_piece(&mut self, limit: usize) -> Result<Option<Piece>> {
        let complete = self.complete();
        let mut taken = Vec::new();
        while taken.len() < limit
            && let Some(key) = self.keys.first_due(complete)
        {
            let rows = self.keys.get_mut(key);
            while taken.len() < limit
                && let Some(first) = rows.waiting.first_entry()
                && first.key().time <= complete
            {
                let place = first.remove_entry().0;
                self.bytes -= place.bytes();
                taken.push((key, Some(place)));
            }
            taken.push((key, None));
            // It is looked at again at the end of its rows.
            self.keys.set_due(key, None);
        }
        match taken.is_empty() {
            true => Ok(None),
            false => Piece::of_places(taken, &self.converters, &self.spec.inputs).map(Some),
        }
    }

    /// Continues with the piece until about `limit` rows were emitted, and emits them.
    fn work(&mut self, output: &mut Output) -> Result<Progress> {
        let Some(mut piece) = self.piece.take() else {
            return Ok(Progress::Done);
        };
        let caught = catch_unwind(AssertUnwindSafe(|| match &self.function {
            Function::Rows(_) => self.steps(&mut piece, output),
            Function::Batches(_) => self.batch(&mut piece, output),
        }));
        let place = || format!("operator '{}'", self.spec.name);
        let own = caught.unwrap_or_else(|panic| Err(Error::of_panic(place(), panic.as_ref())))?;
        self.emit(own, output)?;
        if piece.is_done() {
            self.end_of_emptied();
        }
        // Nothing was stored that has to be told of keys with nothing left.
        if self.clock.mark().is_first() {
            self.leave_out(|_| true);
        }
        if piece.is_done() {
            return Ok(Progress::Done);
        }
        self.piece = Some(piece);
        Ok(Progress::More)
    }

    /// Calls the function for one row or timer after the other; returns its rows.
    fn steps(&mut self, piece: &mut Piece, output: &mut Output) -> Result<Emitted> {
        while self.emitted.len() < output.chunk_rows
            && let Some(step) = piece.step()
        {
            let (key, until) = match step {
                Step::Row { key, time, .. } => (key, time),
                Step::End { key } => (key, self.end_of(key)),
            };
            if let Some(at) = self.keys.get(key).first_timer(until) {
                self.fire(key, at, output)?;
                continue;
            }
            match step {
                Step::Row { input, row, .. } => self.row(key, input, row, piece, output)?,
                Step::End { .. } => self.end_of_rows(key),
            }
            piece.end_step();
        }
        match &mut self.function {
            Function::Rows(function) if !self.emitted.is_empty() => function.emitted(),
            _ => Ok(Emitted::default()),
        }
    }

    /// The time before which timers of a key fire: that of its next row, or the first that is not complete.
    fn end_of(&self, key: u32) -> EventTime {
        let complete = self.complete().saturating_add(1);
        let waiting = self.keys.get(key).waiting.first_key_value();
        waiting.map_or(complete, |(place, _)| place.time.min(complete))
    }

    fn row(
        &mut self,
        key: u32,
        input: usize,
        row: usize,
        piece: &Piece,
        output: &mut Output,
    ) -> Result<()> {
        let (chunk, time) = (piece.chunk(input)?, piece.time(input, row));
        let event = Event::Row {
            input,
            batch: &chunk.batch,
            row,
            time,
            retracts: piece.retracts(input, row),
        };
        if let Some(reason) = self.call(key, event, time) {
            output.reject(reject(chunk, row, reason));
        }
        Ok(())
    }

    fn fire(&mut self, key: u32, at: EventTime, output: &mut Output) -> Result<()> {
        self.keys.get_mut(key).timers.remove(&at);
        if let Some(reason) = self.call(key, Event::Timer(at), at) {
            self.reject_timer(key, reason, output)?;
        }
        self.count_fired(key, Some(at), 1)
    }

    /// Calls the function; returns why it rejects the row.
    fn call(&mut self, key: u32, event: Event<'_>, time: EventTime) -> Option<String> {
        let is_ordered = self.spec.inputs[0].time_column.is_some();
        self.keys.touch(key, self.clock.mark());
        let rows = self.keys.get_mut(key);
        let mut timers = Timers::new(is_ordered.then_some(&mut rows.timers), time);
        let Function::Rows(function) = &mut self.function else {
            unreachable!("work() calls batch() for a function of batches");
        };
        let reaction = function.event(key, event, &mut timers);
        rows.has_state = reaction.keeps_state;
        let emitted = std::iter::repeat_n((key, time), reaction.rows);
        self.emitted.extend(emitted);
        reaction.failed
    }

    /// Called after the last of the rows and timers of a key that can be processed now.
    fn end_of_rows(&mut self, key: u32) {
        self.set_due(key);
        let mark = self.clock.mark();
        let rows = self.keys.get_mut(key);
        if rows.is_empty() {
            rows.gone = mark;
            if !std::mem::replace(&mut rows.is_listed, true) {
                self.gone.push(key);
            }
        }
    }

    /// Forgets the listed keys that may go, unless they came back.
    fn leave_out(&mut self, may_go: impl Fn(&KeyRows) -> bool) {
        for key in std::mem::take(&mut self.gone) {
            if !self.keys.contains(key) || !self.keys.get(key).is_listed {
                continue;
            }
            if !may_go(self.keys.get(key)) {
                self.gone.push(key);
                continue;
            }
            let rows = self.keys.get_mut(key);
            rows.is_listed = false;
            if rows.is_empty() {
                self.function.states().forget(key);
                self.keys.remove(key);
            }
        }
    }

    fn clear(&mut self) {
        for key in self.keys.numbers(|_| true) {
            self.function.states().forget(key);
        }
        self.keys.clear();
        self.gone.clear();
        self.emptied.clear();
        self.piece = None;
        self.bytes = 0;
    }
}

impl Stateful for Custom {
    fn facts(&self) -> Facts {
        let inputs = self.spec.inputs.iter();
        Facts {
            placed_by: inputs.map(|input| Some(input.keys.clone())).collect(),
            is_replicated: false,
            first_input: None,
            delay_us: match self.is_ordered() {
                true => self.spec.behind_us,
                false => 0,
            },
            // Rows that wait are encoded; rows as they come are kept until they are done.
            shares_input: !self.is_ordered(),
        }
    }

    fn process(&mut self, input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        let of_input = &self.spec.inputs[input];
        let Some(time_column) = of_input.time_column else {
            let keys = KeyColumns::of_chunk(&chunk, &of_input.keys)?;
            let keys = self.encode(keys)?;
            let number = |row| self.keys.find_or_insert(keys.key(row), KeyRows::default);
            let numbers = (0..chunk.rows()).map(number).collect::<Vec<u32>>();
            self.piece = Some(Piece::of_chunk(
                input,
                chunk,
                numbers,
                self.spec.inputs.len(),
            ));
            return self.work(output).map(drop);
        };
        let times = event_times(chunk.batch.column(time_column), &self.spec.name)?;
        let complete = self.complete();
        let (chunk, times) = only_in_time(chunk, times, output, |time| time > complete)?;
        let keys = KeyColumns::of_chunk(&chunk, &self.spec.inputs[input].keys)?;
        let keys = self.encode(keys)?;
        let place = |(row, time): (usize, &EventTime)| {
            let (partition, position) = chunk.place(row);
            (*time, partition, position)
        };
        let places = times.iter().enumerate().map(place);
        self.keep(input, &chunk.batch, &keys, places)
    }

    fn rest(&mut self, output: &mut Output) -> Result<Progress> {
        self.work(output)
    }

    fn advance(&mut self, watermark: EventTime, output: &mut Output) -> Result<Progress> {
        self.clock.advance(watermark);
        if self.piece.is_none() {
            self.piece = self.next_piece(output.chunk_rows)?;
        }
        let progress = self.work(output)?;
        Ok(match self.keys.first_due(self.complete()) {
            Some(_) => Progress::More,
            None => progress,
        })
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    fn end_unit(&mut self, _output: &mut Output) -> Result<()> {
        self.clear();
        self.clock.restart();
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(self)
    }

    fn bytes(&self) -> usize {
        self.keys.bytes() + self.bytes + self.function.bytes()
    }
}

#[cfg(test)]
mod tests;
