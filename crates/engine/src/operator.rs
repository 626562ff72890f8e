//! Operators: they process chunks inside an instance.
//!
//! There are two kinds, and the type says which:
//!
//! - A [`Stateless`] operator keeps nothing from one chunk to the next. It runs as a plain call after its
//!   input, anywhere in an instance.
//! - A [`Stateful`] operator is the head of its instance: it gets its rows over links, and only it sees
//!   watermarks. It emits a bounded number of rows per call and returns [`Progress::More`] if there are
//!   more, so that back-pressure reaches it.
//!
//! Both live for one *unit of work* after another (DataCutter; a stream without units is one unit) and
//! are not rebuilt in between. For a stateful operator a unit is any number of [`Stateful::process`] and
//! [`Stateful::advance`], then `advance` with [`crate::time::MAX_WATERMARK`], then
//! [`Stateful::end_unit`]. A query that is stopped early ends without the last two: its windows stay
//! open.

pub mod aggregate;
pub mod changelog;
pub mod count_window;
pub mod custom;
pub mod custom_rows;
pub mod drop_late;
mod event_times;
pub mod filter;
#[cfg(test)]
mod increments;
pub mod interval_join;
pub mod join;
mod kept;
pub(crate) mod keyed;
pub mod late_rows;
pub mod lookup_join;
pub mod map;
pub mod over;
pub mod session;
pub mod table_join;
pub mod temporal_join;
pub mod union;
pub mod window;

use arrow_array::RecordBatch;

use crate::chunk::Chunk;
use crate::error::Result;
use crate::source::Rejected;
use crate::state::KeyedState;
use crate::time::EventTime;

/// An operator of either kind.
pub enum Operator {
    /// An operator that runs anywhere in an instance.
    Stateless(Box<dyn Stateless>),
    /// An operator that is the head of its instance.
    Stateful(Box<dyn Stateful>),
}

impl Operator {
    /// Boxes a stateless operator.
    pub fn stateless(operator: impl Stateless + 'static) -> Operator {
        Operator::Stateless(Box::new(operator))
    }

    /// Boxes a stateful operator.
    pub fn stateful(operator: impl Stateful + 'static) -> Operator {
        Operator::Stateful(Box::new(operator))
    }
}

/// An operator that keeps nothing from one chunk to the next, so that a row that makes it panic can be
/// rejected alone.
pub trait Stateless: Send {
    /// Starts a unit of work: called before the first chunk of each.
    fn begin_unit(&mut self) -> Result<()> {
        Ok(())
    }

    /// Takes rows and emits any number of chunks.
    fn process(&mut self, chunk: Chunk, output: &mut Output) -> Result<()>;

    /// About how many bytes its cache holds.
    fn bytes(&self) -> usize {
        0
    }
}

/// An operator that keeps state from one chunk to the next: the head of an instance. See
/// `examples/custom_operator/main.rs` for one written from scratch.
///
/// No method has a default, so that none is forgotten (least of all by an operator that wraps another).
pub trait Stateful: Send {
    /// The facts that the instance needs before the operator runs.
    fn facts(&self) -> Facts;

    /// Takes rows of input `input` and emits at most about [`Output::chunk_rows`] rows.
    /// [`Stateful::rest`] emits further ones.
    fn process(&mut self, input: usize, chunk: Chunk, output: &mut Output) -> Result<()>;

    /// Emits more of the rows that the last `process` left, at most about [`Output::chunk_rows`] rows a
    /// call, and returns whether there are still more. Called after each `process`.
    fn rest(&mut self, output: &mut Output) -> Result<Progress>;

    /// Moves the watermark to `watermark`: emits what is complete now, at most about
    /// [`Output::chunk_rows`] rows a call, and returns whether there is more to emit.
    fn advance(&mut self, watermark: EventTime, output: &mut Output) -> Result<Progress>;

    /// The operator's timer; `None` if it emits nothing by the clock.
    fn timer(&mut self) -> Option<&mut dyn Timer>;

    /// Ends the unit of work, after `advance` with the largest watermark: emits what is left and
    /// forgets all state.
    fn end_unit(&mut self, output: &mut Output) -> Result<()>;

    /// The state that checkpoints store; `None` if the operator reads everything again when it is
    /// restored.
    fn state(&mut self) -> Option<&mut dyn KeyedState>;

    /// About how many bytes it holds between chunks.
    fn bytes(&self) -> usize;
}

/// Emits rows by the clock, rather than because of a row or a watermark.
pub trait Timer {
    /// When to call [`Timer::on_time`], on the engine's clock; `None` if there is nothing to emit, so
    /// that an idle query has no timer.
    fn due_ns(&self) -> Option<u64>;

    /// Emits what is due, at most about [`Output::chunk_rows`] rows a call, and returns whether there is
    /// more.
    fn on_time(&mut self, output: &mut Output) -> Result<Progress>;
}

/// What an instance must know about its head before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// For each input, the columns that say where its rows belong: everything that a row leaves in the
    /// state belongs to the bucket of their hash ([`crate::hash::hash_rows`]; without columns all rows
    /// belong to one bucket). Senders must route rows by the same columns; otherwise state that moves or
    /// is restored would not be where its rows arrive. `None` for an input whose rows go to any instance,
    /// or to all.
    pub placed_by: Vec<Option<Vec<usize>>>,
    /// Whether every instance needs what all of them have stored (versions that were broadcast): then it
    /// is restored from all snapshots, and [`KeyedState::discard`] keeps what all have.
    pub is_replicated: bool,
    /// An input that is read to its end, however long that takes, before any other: a table. It only
    /// brings rows; watermarks, units of work and barriers are those of the other inputs.
    pub first_input: Option<usize>,
    /// How far the event times of its output may be behind the watermark, in microseconds: the steps
    /// after it get the watermark minus this.
    pub delay_us: EventTime,
    /// Whether its state or output may share memory with the chunks that it took. If not, chunks from
    /// other processes are lent to it in place, in the link's ring; if so, they are copied first, because
    /// a ring can't move past a chunk that is kept.
    pub shares_input: bool,
}

/// Whether an operator has emitted everything that it has to emit now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Everything was emitted.
    Done,
    /// There is more: the same call must be made again (`rest` after `process`).
    More,
}

/// The rows that an operator emits in one call.
#[derive(Debug)]
pub struct Output {
    /// When the input that is being processed entered the engine.
    pub ingest_ns: u64,
    /// The most rows that an emitted chunk should have.
    pub chunk_rows: usize,
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) rejected: Vec<Rejected>,
    pub(crate) rows_late: u64,
}

impl Output {
    /// An output that collects chunks of at most `chunk_rows` rows.
    pub fn new(chunk_rows: usize) -> Output {
        Output {
            ingest_ns: 0,
            chunk_rows,
            chunks: Vec::new(),
            rejected: Vec::new(),
            rows_late: 0,
        }
    }

    /// Emits a chunk, unless it has no rows.
    pub fn emit(&mut self, chunk: Chunk) {
        if chunk.rows() > 0 {
            self.chunks.push(chunk);
        }
    }

    /// Emits rows that the operator made itself, with the ingest time of its input.
    pub fn emit_batch(&mut self, batch: RecordBatch) {
        self.emit(Chunk::new(batch, self.ingest_ns));
    }

    /// Rejects a row: it is counted and kept in the dead-letter file.
    pub fn reject(&mut self, rejected: Rejected) {
        self.rejected.push(rejected);
    }

    /// Counts rows that came after all their windows were closed.
    pub fn count_late(&mut self, rows: u64) {
        self.rows_late += rows;
    }

    /// Undoes the last call.
    pub(crate) fn forget(&mut self) {
        self.chunks.clear();
        self.rejected.clear();
        self.rows_late = 0;
    }

    /// Takes out the chunks emitted so far (for tests of operators).
    pub fn take_chunks(&mut self) -> Vec<Chunk> {
        std::mem::take(&mut self.chunks)
    }

    /// The number of rows counted as late so far.
    pub fn rows_late(&self) -> u64 {
        self.rows_late
    }

    /// The rows rejected so far.
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }
}
