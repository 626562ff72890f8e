//! Operators with a state for each key, written in Rust, as functions of the engine.

use std::fmt;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int32Array, RecordBatch};
use arrow_schema::DataType;
use slackwater_engine::operator::custom::{
    Emitted, Event, Function as EngineFunction, KeyStates, KeyedFactory, KeyedFunction, Reaction,
    Timers,
};
use slackwater_engine::{Error, Result as EngineResult};

use super::call::Column;
use crate::functions::aggregate::State;
use crate::functions::values::{Argument, Time};

/// An operator that gets the rows of each key one after the other, and keeps a state for the key.
///
/// A value of the type holds the arguments of a call; what changes from row to row is in the state. See
/// `docs/operators.md`.
pub trait KeyedOperator: Send + Sync + 'static {
    /// What is kept for a key; that of a new key is the default.
    type State: Default + Send;
    /// The state as it is saved: one value or a tuple.
    type Saved: State;
    /// A row that is emitted: one value or a tuple.
    type Row: State + Send;

    /// Processes a row. An error rejects the row: nothing of it is emitted, and what was changed in the state
    /// stays changed.
    ///
    /// # Errors
    ///
    /// Why the row is rejected.
    fn on_row(
        &self,
        state: &mut Self::State,
        row: &Row<'_>,
        out: &mut Out<'_, '_, Self::Row>,
    ) -> Result<(), String>;

    /// Processes a timer that was set for the time `at`: all rows of the key up to that time were processed.
    ///
    /// # Errors
    ///
    /// The reason, for the dead-letter file.
    fn on_time(
        &self,
        state: &mut Self::State,
        at: Time,
        out: &mut Out<'_, '_, Self::Row>,
    ) -> Result<(), String>;

    /// The state from which [`KeyedOperator::load`] makes an equal one.
    fn save(&self, state: &Self::State) -> Self::Saved;

    /// The state that was saved.
    fn load(&self, saved: Self::Saved) -> Self::State;
}

/// A row of an input, or of a table of a [format](crate::functions::format).
pub struct Row<'r> {
    input: usize,
    batch: &'r RecordBatch,
    row: usize,
    time: i64,
    change: Change,
}

/// What a row does to its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The row is added.
    Insert,
    /// A row with the same values, which was added before, is taken back.
    Delete,
}

impl<'r> Row<'r> {
    /// A row of a batch, without an input and an event time.
    pub(in crate::functions) fn of(batch: &'r RecordBatch, row: usize) -> Row<'r> {
        Row {
            input: 0,
            batch,
            row,
            time: i64::MIN,
            change: Change::Insert,
        }
    }

    /// The number of the input, from 0.
    pub fn input(&self) -> usize {
        self.input
    }

    /// The value of a column of the row's input; `None` if it is NULL.
    pub fn get<A: Argument>(&self, column: Column<A>) -> Option<A::Item<'r>> {
        A::get(column.of(self.batch), self.row)
    }

    /// What the row does to its table. An update is a deletion of the old row, and an insertion of the new
    /// one. Always an insertion, unless the operator takes updates
    /// ([`Operator::takes_updates`](super::Operator::takes_updates)).
    pub fn change(&self) -> Change {
        self.change
    }

    /// The event time of the row; [`Time`]'s smallest value if the call says no ORDER BY, and
    /// in formats.
    pub fn time(&self) -> Time {
        Time { micros: self.time }
    }

    /// The batch that holds the row, for values of types that have no equal in Rust, and the row's index.
    pub fn of_batch(&self) -> (&'r RecordBatch, usize) {
        (self.batch, self.row)
    }
}

/// What a row or a timer brings about.
pub struct Out<'o, 't, R> {
    rows: &'o mut Vec<R>,
    outputs: &'o mut Vec<i32>,
    retracted: &'o mut Vec<usize>,
    timers: &'o mut Timers<'t>,
    forgets: bool,
    has_no_timers: bool,
}

impl<R> Out<'_, '_, R> {
    /// Emits a row, to the first output if there are several.
    pub fn emit(&mut self, row: R) {
        self.emit_to(0, row);
    }

    /// Emits a row to one of several outputs, by its number in
    /// [`Operator::outputs`](super::Operator::outputs).
    pub fn emit_to(&mut self, output: usize, row: R) {
        self.rows.push(row);
        self.outputs.push(output as i32);
    }

    /// Retracts a row from the first output: one of this key that was emitted before, with the same values,
    /// and not retracted yet. The operator says that it does so
    /// ([`Operator::emits_updates`](super::Operator::emits_updates)).
    pub fn retract(&mut self, row: R) {
        self.retract_from(0, row);
    }

    /// Retracts a row from one of several outputs.
    pub fn retract_from(&mut self, output: usize, row: R) {
        self.retracted.push(self.rows.len());
        self.emit_to(output, row);
    }

    /// Sets a timer of the key: [`KeyedOperator::on_time`] is called once all rows up to `at` were processed.
    /// Earlier times than that of the present row or timer count as that one; equal timers are one. Timers
    /// need ORDER BY ([`Operator::needs_order`](super::Operator::needs_order)).
    pub fn timer(&mut self, at: Time) {
        self.has_no_timers |= !self.timers.set(at.micros);
    }

    /// Removes the timers of the key that have not fired.
    pub fn clear_timers(&mut self) {
        self.timers.clear();
    }

    /// Forgets the state of the key: the next row finds a new one. Timers stay.
    pub fn forget(&mut self) {
        self.forgets = true;
    }
}

/// The types of a tuple's columns.
pub(super) fn types<S: State>() -> Vec<DataType> {
    let columns = S::columns(Vec::new()).into_iter();
    columns.map(|column| column.data_type().clone()).collect()
}

/// A factory of the engine's functions.
pub(super) fn factory<K: KeyedOperator>(operator: K, own: usize) -> Arc<dyn KeyedFactory> {
    Arc::new(Factory {
        operator: Arc::new(operator),
        own,
    })
}

struct Factory<K> {
    operator: Arc<K>,
    /// The number of the columns of a row.
    own: usize,
}

impl<K> fmt::Debug for Factory<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an operator by key with {} columns", self.own)
    }
}

impl<K: KeyedOperator> KeyedFactory for Factory<K> {
    fn function(&self) -> EngineResult<EngineFunction> {
        Ok(EngineFunction::Rows(Box::new(Function {
            operator: Arc::clone(&self.operator),
            states: Vec::new(),
            rows: Vec::new(),
            outputs: Vec::new(),
            retracted: Vec::new(),
        })))
    }
}

struct Function<K: KeyedOperator> {
    operator: Arc<K>,
    /// The states by the numbers of their keys.
    states: Vec<Option<K::State>>,
    /// The rows that were emitted, and the output of each.
    rows: Vec<K::Row>,
    outputs: Vec<i32>,
    /// Which of them retract a row.
    retracted: Vec<usize>,
}

impl<K: KeyedOperator> Function<K> {
    fn state(&mut self, key: u32) -> &mut Option<K::State> {
        let key = key as usize;
        if key >= self.states.len() {
            self.states.resize_with(key + 1, || None);
        }
        &mut self.states[key]
    }
}

impl<K: KeyedOperator> KeyedFunction for Function<K> {
    fn event(&mut self, key: u32, event: Event<'_>, timers: &mut Timers<'_>) -> Reaction {
        self.state(key);
        let before = self.rows.len();
        let state = self.states[key as usize].get_or_insert_default();
        let mut out = Out {
            rows: &mut self.rows,
            outputs: &mut self.outputs,
            retracted: &mut self.retracted,
            timers,
            forgets: false,
            has_no_timers: false,
        };
        let mut done = match event {
            Event::Row {
                input,
                batch,
                row,
                time,
                retracts,
            } => {
                let change = match retracts {
                    true => Change::Delete,
                    false => Change::Insert,
                };
                let row = Row {
                    input,
                    batch,
                    row,
                    time,
                    change,
                };
                self.operator.on_row(state, &row, &mut out)
            }
            Event::Timer(at) => self.operator.on_time(state, Time { micros: at }, &mut out),
        };
        if done.is_ok() && out.has_no_timers {
            done = Err("it set a timer, and timers need ORDER BY".to_string());
        }
        if out.forgets {
            self.states[key as usize] = None;
        }
        if done.is_err() {
            self.rows.truncate(before);
            self.outputs.truncate(before);
            self.retracted.retain(|&row| row < before);
        }
        Reaction {
            rows: self.rows.len() - before,
            keeps_state: self.states[key as usize].is_some(),
            failed: done.err(),
        }
    }

    fn emitted(&mut self) -> EngineResult<Emitted> {
        let mut columns = K::Row::columns(std::mem::take(&mut self.rows));
        // The engine leaves it out if there is one output.
        columns.push(Arc::new(Int32Array::from(std::mem::take(
            &mut self.outputs,
        ))));
        Ok(Emitted {
            columns,
            retracted: std::mem::take(&mut self.retracted),
        })
    }
}

impl<K: KeyedOperator> KeyStates for Function<K> {
    fn save(&mut self, keys: &[u32]) -> EngineResult<Vec<ArrayRef>> {
        let states = keys.iter().map(|&key| {
            let state = self.states.get(key as usize).and_then(Option::as_ref);
            match state {
                Some(state) => self.operator.save(state),
                None => self.operator.save(&K::State::default()),
            }
        });
        Ok(K::Saved::columns(states.collect()))
    }

    fn load(&mut self, key: u32, states: &[ArrayRef], row: usize) -> EngineResult<()> {
        let saved = K::Saved::read(states, row);
        let saved = saved.map_err(|reason| {
            Error::new("snapshot of a custom operator", reason)
                .hint("restore from another checkpoint")
        })?;
        let state = self.operator.load(saved);
        *self.state(key) = Some(state);
        Ok(())
    }

    fn forget(&mut self, key: u32) {
        *self.state(key) = None;
    }

    fn bytes(&self) -> usize {
        // Memory that the states allocate themselves is not counted.
        self.states.capacity() * size_of::<Option<K::State>>()
    }
}
