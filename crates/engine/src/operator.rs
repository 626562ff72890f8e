//! Operators: what happens to chunks inside an instance.
//!
//! An operator lives per *unit of work* (DataCutter; a stream without units is one unit):
//! [`Operator::initialise`], then any number of [`Operator::process`] and [`Operator::advance`],
//! then `advance` with [`crate::time::MAX_WATERMARK`] and [`Operator::finalise`]; and again for the
//! next unit, with nothing torn down between. A query that is stopped early ends without the last
//! two: windows stay open.
//!
//! Stateless operators are run as plain calls after the operator that feeds them. A stateful one
//! is always the head of its instance, reached over links, and is the only one that may answer
//! [`Progress::More`]: what it emits is thus bounded per call and back-pressure reaches it.

pub mod aggregate;
pub mod changelog;
pub mod count_window;
pub mod drop_late;
pub mod filter;
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

/// One operator of an instance. See `examples/custom_operator/main.rs` for one written from scratch.
pub trait Operator: Send {
    /// A unit of work begins.
    fn initialise(&mut self) -> Result<()> {
        Ok(())
    }

    /// Takes rows of input `input` and emits any number of chunks.
    fn process(&mut self, input: usize, chunk: Chunk, output: &mut Output) -> Result<()>;

    /// Emits more of what the last `process` left, at most about [`Output::chunk_rows`] rows a call,
    /// and says whether there is more. Asked of the head of an instance only, behind each `process`.
    fn rest(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    /// The watermark has moved to `watermark`: emits what is complete now, at most about
    /// [`Output::chunk_rows`] rows a call, and says whether there is more to emit.
    fn advance(&mut self, _watermark: EventTime, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    /// How far behind the watermark the event times of what it emits may lie, in microseconds: what
    /// follows is told of the watermark less that.
    fn delay_us(&self) -> EventTime {
        0
    }

    /// When it wants [`Operator::on_time`] called, on the engine's clock; asked of the head of an instance
    /// only. `None` while there is nothing to emit then: an idle query has no timer.
    fn due_ns(&self) -> Option<u64> {
        None
    }

    /// The time has come that it asked for: emits at most about [`Output::chunk_rows`] rows a call, and
    /// says whether there is more.
    fn on_time(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    /// The unit of work has ended, after `advance` with the largest watermark: emits what is left
    /// and forgets all state.
    fn finalise(&mut self, _output: &mut Output) -> Result<()> {
        Ok(())
    }

    /// The state that outlives a chunk, where there is any.
    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        None
    }

    /// About how many bytes it holds between chunks; `None` for one that holds nothing.
    fn memory(&mut self) -> Option<usize> {
        self.state().map(|state| state.bytes())
    }

    /// Whether it keeps nothing from one chunk to the next: then a row that makes it panic can be refused
    /// alone. Operators behind the head of an instance never keep anything.
    fn is_stateless(&self) -> bool {
        false
    }

    /// An input that is read to its end, however long that takes, before any other: a table. It brings
    /// rows only; watermarks, units of work and barriers are those of the other inputs.
    fn first_input(&self) -> Option<usize> {
        None
    }

    /// Whether its state or what it emits may share memory with the chunks that it took. If not,
    /// chunks from other processes are lent to it where they lie in the link's ring; if so, they
    /// are copied first, because a ring stands still behind a chunk that is kept.
    fn shares_input(&self) -> bool {
        true
    }
}

/// Whether an operator has emitted all that a watermark completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// All of it.
    Done,
    /// Not all: `advance` must be called again with the same watermark.
    More,
}

/// What an operator emits in one call.
#[derive(Debug)]
pub struct Output {
    /// When the input that is being worked on entered the engine.
    pub ingest_ns: u64,
    /// Rows that an emitted chunk should have at most.
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

    /// Emits a chunk; one without rows is dropped.
    pub fn emit(&mut self, chunk: Chunk) {
        if chunk.rows() > 0 {
            self.chunks.push(chunk);
        }
    }

    /// Emits rows that the operator made itself, with the ingest time of its input.
    pub fn emit_batch(&mut self, batch: RecordBatch) {
        self.emit(Chunk::new(batch, self.ingest_ns));
    }

    /// Refuses a row: it is counted and kept in the dead-letter file.
    pub fn reject(&mut self, rejected: Rejected) {
        self.rejected.push(rejected);
    }

    /// Counts rows that came after all their windows were closed.
    pub fn count_late(&mut self, rows: u64) {
        self.rows_late += rows;
    }

    /// As if the last call had not been made.
    pub(crate) fn forget(&mut self) {
        self.chunks.clear();
        self.rejected.clear();
        self.rows_late = 0;
    }

    /// What was emitted so far, taken out (for tests of operators).
    pub fn take_chunks(&mut self) -> Vec<Chunk> {
        std::mem::take(&mut self.chunks)
    }

    /// Rows counted as late so far.
    pub fn rows_late(&self) -> u64 {
        self.rows_late
    }

    /// Rows refused so far.
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }
}
