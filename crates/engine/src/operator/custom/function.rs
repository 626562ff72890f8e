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
    fn function(&self) -> Result<Box<dyn KeyedFunction>>;
}

/// What a custom operator does to the rows of each key. Keys have numbers, which are used again once a key
/// is forgotten.
pub trait KeyedFunction: Send {
    /// Processes a row or a timer of key number `key`.
    fn event(&mut self, key: u32, event: Event<'_>, timers: &mut Timers<'_>) -> Reaction;

    /// The columns of the rows that were emitted since the last call, and for each row the number of its
    /// output (INT), which the operator leaves out if it has one.
    ///
    /// # Errors
    ///
    /// When they can't be built.
    fn emitted(&mut self) -> Result<Vec<ArrayRef>>;

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
