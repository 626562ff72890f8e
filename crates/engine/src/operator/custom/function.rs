//! The function of a custom operator: what the program brings.

use std::fmt::Debug;

use arrow_array::{ArrayRef, RecordBatch};

use super::Timers;
use crate::error::Result;
use crate::time::EventTime;

/// Makes the function of each instance of a custom operator.
pub trait KeyedFactory: Debug + Send + Sync {
    /// A function without any state.
    ///
    /// # Errors
    ///
    /// When it can't start.
    fn function(&self) -> Result<Function>;
}

/// How a custom operator calls its function.
pub enum Function {
    /// Once for each row and timer.
    Rows(Box<dyn KeyedFunction>),
    /// Once for many of them.
    Batches(Box<dyn BatchFunction>),
}

impl Function {
    /// The states of its keys.
    pub fn states(&mut self) -> &mut dyn KeyStates {
        match self {
            Function::Rows(function) => function.as_mut(),
            Function::Batches(function) => function.as_mut(),
        }
    }

    /// About how many bytes the states take.
    pub fn bytes(&self) -> usize {
        match self {
            Function::Rows(function) => function.bytes(),
            Function::Batches(function) => function.bytes(),
        }
    }
}

/// The states of keys. Keys have numbers, which are used again once a key is forgotten.
pub trait KeyStates: Send {
    /// The states of keys as columns; those without a state get that of a new key.
    ///
    /// # Errors
    ///
    /// When a state can't be saved.
    fn save(&mut self, keys: &[u32]) -> Result<Vec<ArrayRef>>;

    /// Replaces the state of key number `key` by row `row` of saved columns.
    ///
    /// # Errors
    ///
    /// When the columns are not those of this function.
    fn load(&mut self, key: u32, states: &[ArrayRef], row: usize) -> Result<()>;

    /// Forgets the state of a key, if it has one.
    fn forget(&mut self, key: u32);

    /// About how many bytes the states take.
    fn bytes(&self) -> usize;
}

/// What a custom operator does to the rows of each key, one after the other.
pub trait KeyedFunction: KeyStates {
    /// Processes a row or a timer of key number `key`.
    fn event(&mut self, key: u32, event: Event<'_>, timers: &mut Timers<'_>) -> Reaction;

    /// The rows that were emitted since the last call.
    ///
    /// # Errors
    ///
    /// When they can't be built.
    fn emitted(&mut self) -> Result<Emitted>;
}

/// Rows that a function has emitted.
#[derive(Debug, Default)]
pub struct Emitted {
    /// Their columns, and for each row the number of its output (INT), which the operator leaves out if it
    /// has one.
    pub columns: Vec<ArrayRef>,
    /// Which of them retract a row that was emitted before, in increasing order.
    pub retracted: Vec<usize>,
}

/// What a custom operator does to rows and timers of several keys, for a function in another process, which
/// would take too long to reach for each of them.
pub trait BatchFunction: KeyStates {
    /// Processes steps of a batch in their order: before each step the timers of its key before the step's
    /// time, and then its row. May stop after any row or timer, but not before the first.
    ///
    /// # Errors
    ///
    /// When the query can't continue.
    fn run(&mut self, batch: &Batch) -> Result<Ran>;
}

/// Rows and timers of some keys, in the order in which a function gets them.
#[derive(Debug)]
pub struct Batch {
    /// The numbers of the keys, each once.
    pub keys: Vec<u32>,
    /// The timers of each key, in the order of their times.
    pub timers: Vec<Vec<EventTime>>,
    /// What is to be done.
    pub steps: Vec<BatchStep>,
    /// The rows of each input, in the order of the steps.
    pub inputs: Vec<RecordBatch>,
    /// Whether rows have event times, so that timers can be set.
    pub is_ordered: bool,
}

/// A step of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchStep {
    /// The place of the key in [`Batch::keys`].
    pub key: usize,
    /// The input, and the row in its batch; `None` if only timers are to be processed.
    pub row: Option<(usize, usize)>,
    /// The time before which timers fire: that of the row.
    pub time: EventTime,
    /// Whether the row retracts an earlier one.
    pub retracts: bool,
}

/// What was done to a batch.
#[derive(Debug, Default)]
pub struct Ran {
    /// The number of steps that are done. Of the next one some timers may have been processed.
    pub steps: usize,
    /// What is left of each key.
    pub keys: Vec<KeyLeft>,
    /// The place of the key, and the event time, of each row that was emitted.
    pub emitted: Vec<(usize, EventTime)>,
    /// These rows.
    pub rows: Emitted,
    /// What has failed.
    pub failed: Vec<StepFailure>,
}

/// What is left of a key after a batch.
#[derive(Debug, Default, Clone)]
pub struct KeyLeft {
    /// Whether the function keeps a state for it.
    pub keeps_state: bool,
    /// The timers that have not fired.
    pub timers: Vec<EventTime>,
    /// How many timers have fired.
    pub fired: u32,
}

/// A row or a timer that has failed.
#[derive(Debug, Clone)]
pub struct StepFailure {
    /// The number of the step.
    pub step: usize,
    /// The timer; `None` for the step's row.
    pub timer: Option<EventTime>,
    /// The reason, for the dead-letter file.
    pub reason: String,
}

/// What a function is called for.
pub enum Event<'e> {
    /// A row.
    Row {
        /// The number of the input.
        input: usize,
        /// The batch that holds the row.
        batch: &'e RecordBatch,
        /// The row's index in the batch.
        row: usize,
        /// The row's event time; [`crate::time::MIN_WATERMARK`] if rows come in the order of arrival.
        time: EventTime,
        /// Whether the row retracts an earlier one, which has the same values.
        retracts: bool,
    },
    /// A timer, with the time for which it was set.
    Timer(EventTime),
}

/// What a function has done.
#[derive(Debug, Clone)]
pub struct Reaction {
    /// The number of rows that it emitted; 0 if it failed.
    pub rows: usize,
    /// Whether it keeps a state for the key.
    pub keeps_state: bool,
    /// Why it rejects the row, for the dead-letter file.
    pub failed: Option<String>,
}
