//! OVER: for each row, aggregates of the rows before it.
//!
//! Rows wait until the watermark says that all rows of their time have come, and are then taken in the
//! order of (event time, partition, position), so that the result is the same however they arrived. Rows
//! without a position (made by a stateful operator) are ordered by their values.
//!
//! A frame ends at the row itself, or, if it is one of times ([`Frame::Range`]), at the last row of the
//! same time. A frame that begins with the key's first row needs no rows: its aggregates are running. For
//! all others, rows are kept as long as some frame may reach back to them.
//!
//! The output has its rows' event times, which are not before any watermark that was passed on. Late rows
//! are dropped before ([`super::drop_late`]).

mod frames;
mod rows;
mod running;
mod state;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{DataType, SchemaRef};

use super::event_times::{event_times, only_in_time};
use super::keyed::Keyed;
use super::{Facts, Output, Progress, Stateful, Timer};
use crate::accumulator::AggregateFunction;
use crate::chunk::{Chunk, Origin};
use crate::error::Result;
use crate::expression::reject;
use crate::key::{KeyColumns, KeyEncoder};
use crate::state::{Clock, KeyedState};
use crate::time::EventTime;
use frames::{Piece, Segment};
use rows::{Kept, KeyRows, Place, Reach};
use running::Running;

/// What an OVER computes.
#[derive(Debug, Clone)]
pub struct OverSpec {
    /// PARTITION BY: columns of the input.
    pub keys: Vec<usize>,
    /// ORDER BY: the event-time column.
    pub time_column: usize,
    /// The functions.
    pub calls: Vec<OverCall>,
    /// How far behind the watermark rows may come and still be in time, in microseconds: rows made by a
    /// window have event times before its end, and come when the watermark reaches the end.
    pub behind_us: EventTime,
    /// The columns of the input.
    pub input: SchemaRef,
    /// The columns of the output: those of the input, and one for each function.
    pub schema: SchemaRef,
}

/// One function.
#[derive(Debug, Clone)]
pub struct OverCall {
    /// The function.
    pub function: OverFunction,
    /// The columns of the input that the function is called with.
    pub arguments: Vec<usize>,
    /// The Boolean column of the input for `FILTER (WHERE …)`.
    pub filter: Option<usize>,
}

/// A function of the rows up to the current one.
#[derive(Debug, Clone)]
pub enum OverFunction {
    /// An aggregate of the rows of a frame.
    Aggregate {
        /// The function.
        function: AggregateFunction,
        /// The frame.
        frame: Frame,
    },
    /// The row's number among those of its key, from 1.
    RowNumber,
    /// One more than the number of rows of earlier times.
    Rank,
    /// One more than the number of earlier times.
    DenseRank,
    /// The argument's value this many rows before. If there is no such row, the second argument, or NULL
    /// without one.
    Lag {
        /// The number of rows.
        offset: u64,
        /// The type of the argument.
        of: DataType,
    },
}

/// The rows that belong to a row's aggregate. All frames end at the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// This many rows before it; all if `None`.
    Rows(Option<u64>),
    /// Rows at most this many microseconds before it, all if `None`; and those of the same time.
    Range(Option<EventTime>),
}

impl OverFunction {
    /// The type of the result.
    pub fn data_type(&self) -> DataType {
        match self {
            OverFunction::Aggregate { function, .. } => function.data_type(),
            OverFunction::RowNumber | OverFunction::Rank | OverFunction::DenseRank => {
                DataType::UInt64
            }
            OverFunction::Lag { of, .. } => of.clone(),
        }
    }

    /// Whether the function depends on all rows of the key so far: their count, or their aggregate. That
    /// is kept for every key.
    pub fn runs_on(&self) -> bool {
        match self {
            OverFunction::Aggregate { frame, .. } => {
                matches!(frame, Frame::Rows(None) | Frame::Range(None))
            }
            OverFunction::Lag { .. } => false,
            OverFunction::RowNumber | OverFunction::Rank | OverFunction::DenseRank => true,
        }
    }

    /// Whether the last rows of every key are kept, however old they are: for a frame of a number of
    /// rows.
    pub fn keeps_rows(&self) -> bool {
        self.reach().keeps_rows()
    }

    /// How far back rows have to be kept.
    fn reach(&self) -> Reach {
        match self {
            OverFunction::Aggregate {
                frame: Frame::Rows(Some(rows)),
                ..
            } => Reach::rows(*rows),
            OverFunction::Aggregate {
                frame: Frame::Range(Some(us)),
                ..
            } => Reach::us(*us),
            OverFunction::Lag { offset, .. } => Reach::rows(*offset),
            _ => Reach::default(),
        }
    }
}

/// OVER.
pub struct Over {
    spec: OverSpec,
    key_encoder: KeyEncoder,
    row_converter: RowConverter,
    /// The keys. A key is due when its first waiting row is complete, or when rows of it can be
    /// forgotten.
    keys: Keyed<KeyRows>,
    running: Running,
    reach: Reach,
    clock: Clock,
    /// The number of the next row; rows that are equal in everything else are ordered by it.
    next: u64,
    bytes: usize,
}

/// Where a row came from, and whether it was emitted before it was stored.
struct Arrival {
    partition: u32,
    position: u64,
    is_done: bool,
}

impl Over {
    /// An operator that has seen no rows.
    pub fn new(spec: OverSpec) -> Result<Over> {
        let fields = spec.input.fields().iter();
        let fields = fields.map(|field| SortField::new(field.data_type().clone()));
        let reaches = spec.calls.iter().map(|call| call.function.reach());
        Ok(Over {
            key_encoder: KeyEncoder::of_schema(&spec.input, &spec.keys)?,
            row_converter: RowConverter::new(fields.collect())?,
            keys: Keyed::default(),
            running: Running::new(&spec.calls)?,
            reach: reaches.fold(Reach::default(), Reach::longer),
            clock: Clock::default(),
            next: 0,
            bytes: 0,
            spec,
        })
    }

    /// The time up to which all rows have come.
    fn complete(&self) -> EventTime {
        self.clock.complete(self.spec.behind_us)
    }

    fn times(&self, batch: &RecordBatch) -> Result<Vec<EventTime>> {
        event_times(batch.column(self.spec.time_column), "OVER")
    }

    /// Adds the rows of a batch to those that wait, or to those kept for frames to come.
    fn keep(
        &mut self,
        batch: &RecordBatch,
        times: &[EventTime],
        arrivals: impl Iterator<Item = Arrival>,
    ) -> Result<()> {
        let keys = KeyColumns::of_batch(batch, &self.spec.keys)?;
        let keys = self.key_encoder.encode(keys)?;
        let values = self.row_converter.convert_columns(batch.columns())?;
        let mark = self.clock.mark();
        let mut restored = Vec::new();
        for ((row, &time), arrival) in times.iter().enumerate().zip(arrivals) {
            let place = Place {
                time,
                partition: arrival.partition,
                position: arrival.position,
                values: values.row(row).data().into(),
                number: self.next,
            };
            self.next += 1;
            self.bytes += place.bytes();
            let number = self.keys.find_or_insert(keys.key(row), KeyRows::default);
            self.keys.touch(number, mark);
            let rows = self.keys.get_mut(number);
            match arrival.is_done {
                true => rows.insert_done(Kept { place, mark }),
                false => drop(rows.waiting.insert(place, mark)),
            }
            let due = rows.due(&self.reach);
            self.keys.set_due(number, due);
            if arrival.is_done {
                restored.push((number, time));
            }
        }
        // These keys are looked at once more, because the rows may be too many.
        for (number, time) in restored {
            self.keys.set_due(number, Some(time));
        }
        Ok(())
    }

    /// Moves rows of a key from those that wait to those that are done: the complete ones, up to about
    /// `limit`. Rows of one time stay together. Returns how many.
    fn take_complete(&mut self, key: u32, limit: usize) -> usize {
        let complete = self.complete();
        let rows = self.keys.get_mut(key);
        let mut taken = 0;
        let mut last = None;
        while let Some(first) = rows.waiting.first_entry() {
            let time = first.key().time;
            if time > complete || (taken >= limit && last != Some(time)) {
                break;
            }
            let (place, mark) = first.remove_entry();
            rows.done.push_back(Kept { place, mark });
            last = Some(time);
            taken += 1;
        }
        // The key is looked at again once these rows have been computed.
        self.keys.set_due(key, None);
        taken
    }

    /// Forgets the rows of a key that no frame reaches any more, and the key if none is left.
    fn forget(&mut self, key: u32) {
        let complete = self.complete();
        let rows = self.keys.get_mut(key);
        self.bytes -= rows.forget(&self.reach, complete);
        let is_empty = rows.waiting.is_empty() && rows.done.is_empty() && rows.running.is_none();
        match is_empty {
            true => drop(self.keys.remove(key)),
            false => {
                let due = rows.due(&self.reach);
                self.keys.set_due(key, due);
            }
        }
    }

    /// The next complete rows, about a chunk of them, with those that their frames need.
    fn next_piece(&mut self, limit: usize) -> Result<Piece> {
        let complete = self.complete();
        let mut segments = Vec::new();
        let mut taken = 0;
        while taken < limit
            && let Some(key) = self.keys.first_due(complete)
        {
            let count = self.take_complete(key, limit - taken);
            // Rows that are only visited to be forgotten need none before them.
            let before = match count {
                0 => 0,
                _ => self.keys.get(key).done.len() - count,
            };
            segments.push(Segment {
                key,
                from: self.keys.get(key).done.len() - count - before,
                before,
                rows: count,
            });
            taken += count;
        }
        Piece::new(segments, &self.keys, &self.row_converter)
    }

    /// Emits the rows of a piece with the functions' values.
    fn emit(&mut self, piece: &Piece, output: &mut Output) -> Result<()> {
        let mut columns = piece.rows()?;
        let mut failed = Vec::new();
        self.running.begin(piece, &mut self.keys, self.clock.mark());
        for (number, call) in self.spec.calls.iter().enumerate() {
            let values = match call.function.runs_on() {
                true => self.running.values(number, call, piece)?,
                false => piece.values(call)?,
            };
            columns.push(values.column);
            failed.extend(values.failed);
        }
        let batch = RecordBatch::try_new(self.spec.schema.clone(), columns)?;
        let mut chunk = Chunk::new(batch, output.ingest_ns);
        chunk.origin = Origin::of_places(piece.places());
        if failed.is_empty() {
            output.emit(chunk);
            return Ok(());
        }
        let mut keep = vec![true; chunk.rows()];
        for (row, reason) in failed {
            if std::mem::replace(&mut keep[row], false) {
                output.reject(reject(&chunk, row, reason));
            }
        }
        output.emit(chunk.filter(&BooleanArray::from(keep))?);
        Ok(())
    }
}

impl Stateful for Over {
    fn facts(&self) -> Facts {
        Facts {
            placed_by: vec![Some(self.spec.keys.clone())],
            is_replicated: false,
            first_input: None,
            delay_us: self.spec.behind_us,
            // The rows that it keeps and emits are encoded in between.
            shares_input: false,
        }
    }

    fn process(&mut self, _input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        let times = self.times(&chunk.batch)?;
        let complete = self.complete();
        let (chunk, times) = only_in_time(chunk, times, output, |time| time > complete)?;
        let arrival = |row: usize| {
            let (partition, position) = chunk.place(row);
            Arrival {
                partition,
                position,
                is_done: false,
            }
        };
        self.keep(&chunk.batch, &times, (0..times.len()).map(arrival))
    }

    fn rest(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: EventTime, output: &mut Output) -> Result<Progress> {
        self.clock.advance(watermark);
        let piece = self.next_piece(output.chunk_rows)?;
        if !piece.is_empty() {
            self.emit(&piece, output)?;
        }
        for of in piece.segments() {
            self.forget(of.key);
        }
        Ok(match self.keys.first_due(self.complete()) {
            Some(_) => Progress::More,
            None => Progress::Done,
        })
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    fn end_unit(&mut self, _output: &mut Output) -> Result<()> {
        self.keys.clear();
        self.running.clear();
        self.bytes = 0;
        self.clock.restart();
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(self)
    }

    fn bytes(&self) -> usize {
        self.keys.bytes() + self.bytes + self.running.bytes()
    }
}

#[cfg(test)]
mod tests;
