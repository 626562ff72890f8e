//! Calls of a function that returns a table: an operator.
//!
//! As for aggregates, workers keep nothing. A call of one with a state has the states and timers of its keys,
//! and steps: rows, and times before which timers fire. An *event* is a row or a timer; a call processes at
//! most as many as it is told, and says how far it has come.
//!
//! | call | arguments | results |
//! |---|---|---|
//! | keyed | those of [`KeyedBatch`] | those of [`KeyedRan`] |
//! | table | the input's columns | the filter; or numbers of rows, own columns |
//!
//! A call that fails at event `n` is repeated with the `n` events before it, which then are done. One that
//! fails at its first event has found the row or timer that fails.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Int32Array, Int64Array, ListArray, UInt32Array};
use arrow_schema::{DataType, Field};

use crate::definition::{Failure, Table};
use crate::message::{KEYED, TABLE};
use crate::pool::Function;
use crate::worker::{Call, Ended};

/// The most rows and timers of a call; the worker stops earlier if it has emitted many rows.
const EVENTS_MAX: usize = 100_000;

/// Rows and timers of some keys.
#[derive(Debug)]
pub struct KeyedBatch {
    /// Whether each key has a state.
    pub has_state: BooleanArray,
    /// The timers of each key, in order: lists of microseconds.
    pub timers: ListArray,
    /// The states of the keys, as declared; NULL for those without.
    pub states: Vec<ArrayRef>,
    /// For each step the place of its key.
    pub keys: Int32Array,
    /// The input of the step's row; -1 for none.
    pub inputs: Int32Array,
    /// The number of the step's row in its input.
    pub rows: Int32Array,
    /// The time before which timers fire.
    pub times: Int64Array,
    /// Whether the step's row is taken back.
    pub retracts: BooleanArray,
    /// The columns of each input.
    pub columns: Vec<Vec<ArrayRef>>,
}

/// What was done to a batch.
#[derive(Debug)]
pub struct KeyedRan {
    /// The number of steps that are done.
    pub steps: usize,
    /// Whether each key has a state.
    pub has_state: BooleanArray,
    /// How many timers of each key have fired.
    pub fired: Int64Array,
    /// The timers that are left.
    pub timers: ListArray,
    /// The new states.
    pub states: Vec<ArrayRef>,
    /// The place of the key of each emitted row.
    pub keys: Int32Array,
    /// The event time of each emitted row.
    pub times: Int64Array,
    /// The function's own columns, and the number of the output.
    pub columns: Vec<ArrayRef>,
    /// Whether each emitted row retracts one.
    pub retracted: BooleanArray,
    /// What has failed.
    pub failed: Vec<StepFailure>,
}

/// A row or a timer that has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepFailure {
    /// The number of the step.
    pub step: usize,
    /// The timer; `None` for the step's row.
    pub timer: Option<i64>,
    /// Why.
    pub reason: String,
}

/// The rows that a function without a state makes.
#[derive(Debug)]
pub enum TableRows {
    /// Which rows are kept.
    Kept(BooleanArray),
    /// Rows with own columns, and for each the row that it comes from; `None` if they are the same rows.
    Made(Option<UInt32Array>, Vec<ArrayRef>),
}

/// The type of lists of times.
pub fn times_type() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)))
}

impl KeyedBatch {
    /// The first event: its step, and its timer unless it is the step's row.
    fn first_event(&self) -> Option<(usize, Option<i64>)> {
        (0..self.keys.len()).find_map(|step| {
            let timers = self.timers.value(self.keys.value(step) as usize);
            let timers = timers.as_primitive::<Int64Type>();
            let first = timers.values().first().copied();
            match first.filter(|at| *at < self.times.value(step)) {
                Some(at) => Some((step, Some(at))),
                None => (self.inputs.value(step) >= 0).then_some((step, None)),
            }
        })
    }

    /// The batch as it is when the first event has failed, or when there is none.
    fn without(&self, event: Option<(usize, Option<i64>)>, reason: String) -> KeyedRan {
        let keys = self.has_state.len();
        let mut fired = vec![0; keys];
        let mut timers = self.timers.iter().collect::<Vec<_>>();
        let mut failed = Vec::new();
        let mut steps = self.keys.len();
        if let Some((step, timer)) = event {
            if timer.is_some() {
                let key = self.keys.value(step) as usize;
                fired[key] = 1;
                let rest = timers[key].take();
                timers[key] = rest.map(|rest| rest.slice(1, rest.len() - 1));
            }
            steps = if timer.is_some() { step } else { step + 1 };
            failed.push(StepFailure {
                step,
                timer,
                reason,
            });
        }
        let timers = timers.iter().map(|timers| {
            let timers = timers.as_ref()?.as_primitive::<Int64Type>();
            Some(timers.iter().collect::<Vec<Option<i64>>>())
        });
        KeyedRan {
            steps,
            has_state: self.has_state.clone(),
            fired: Int64Array::from(fired),
            timers: ListArray::from_iter_primitive::<Int64Type, _, _>(timers),
            states: self.states.clone(),
            keys: Int32Array::from(Vec::<i32>::new()),
            times: Int64Array::from(Vec::<i64>::new()),
            columns: Vec::new(),
            retracted: BooleanArray::from(Vec::<bool>::new()),
            failed,
        }
    }
}

impl Function {
    /// Processes rows and timers of keys, at least the first one. Stops where one has failed that has ended
    /// its worker.
    ///
    /// # Errors
    ///
    /// If the query can't continue.
    pub fn keyed(&self, batch: &KeyedBatch) -> Result<KeyedRan, Failure> {
        let first = batch.first_event();
        let table = self.definition().table.as_ref();
        let (Some(table), Some(_)) = (table, first) else {
            return Ok(batch.without(None, String::new()));
        };
        let timers = batch.timers.values().len();
        let (mut limit, mut is_repeated) = (EVENTS_MAX, false);
        loop {
            let (failure, may_be_innocent) = match self.keyed_call(table, batch, limit) {
                Ok(ran) => return Ok(ran),
                Err(Ended::Failed(failure)) => (failure, false),
                // Somebody else may have killed it: one event is to blame if it kills two.
                Err(Ended::Died { failure, is_late }) => (failure, !is_late && !is_repeated),
            };
            if failure.is_final {
                return Err(failure);
            }
            match failure.row {
                Some(done) if done > 0 && done < limit => {
                    (limit, is_repeated) = (done, false);
                }
                // The worker was before its first event, or after its last.
                None if limit > 1 => {
                    limit = (limit.min(batch.keys.len() + timers) / 2).max(1);
                }
                _ if may_be_innocent => (limit, is_repeated) = (1, true),
                _ => return Ok(batch.without(first, failure.reason)),
            }
        }
    }

    fn keyed_call(
        &self,
        table: &Table,
        batch: &KeyedBatch,
        limit: usize,
    ) -> Result<KeyedRan, Ended> {
        let keys = batch.has_state.len();
        let own: [ArrayRef; 2] = [
            Arc::new(batch.has_state.clone()),
            Arc::new(batch.timers.clone()),
        ];
        let steps: [ArrayRef; 5] = [
            Arc::new(batch.keys.clone()),
            Arc::new(batch.inputs.clone()),
            Arc::new(batch.rows.clone()),
            Arc::new(batch.times.clone()),
            Arc::new(batch.retracts.clone()),
        ];
        let columns = own.into_iter().chain(batch.states.iter().cloned());
        let columns = columns.chain(steps);
        let columns = columns.chain(batch.columns.iter().flatten().cloned());
        let mut results = vec![
            (DataType::Int64, Some(1)),
            (DataType::Boolean, Some(keys)),
            (DataType::Int64, Some(keys)),
            (times_type(), Some(keys)),
        ];
        let state = table.state.iter().flatten();
        results.extend(state.map(|(_, data_type)| (data_type.clone(), Some(keys))));
        let emitted_from = results.len();
        let of_rows = [
            DataType::Int32,
            DataType::Int64,
            DataType::Int32,
            DataType::Boolean,
        ];
        results.extend(of_rows.map(|it| (it, None)));
        results.extend(table.columns.iter().map(|(_, it)| (it.clone(), None)));
        let failed_from = results.len();
        results.extend([DataType::Int64, DataType::Int64, DataType::Utf8View].map(|it| (it, None)));
        let found = self.attempt(&Call {
            what: KEYED,
            rows: limit,
            columns: &columns.collect::<Vec<ArrayRef>>(),
            results: &results,
        })?;
        // A worker may write anything.
        let wrong = || {
            Ended::Failed(Failure::of(
                "the worker has returned what it was not asked for",
            ))
        };
        let long = |column: &ArrayRef| column.as_primitive::<Int64Type>().clone();
        let emitted = found[emitted_from].as_primitive::<Int32Type>().clone();
        let rows = emitted.len();
        let is_key = |key: &i32| usize::try_from(*key).is_ok_and(|key| key < keys);
        let is_valid = emitted.null_count() == 0
            && emitted.values().iter().all(is_key)
            && found[emitted_from..failed_from]
                .iter()
                .all(|column| column.len() == rows);
        let done = usize::try_from(long(&found[0]).value(0)).ok();
        let steps = done.filter(|done| *done <= batch.keys.len());
        let (Some(steps), true) = (steps, is_valid) else {
            return Err(wrong());
        };
        let (of_steps, timers) = (long(&found[failed_from]), long(&found[failed_from + 1]));
        let reasons = found[failed_from + 2].as_string_view();
        let failed = of_steps.iter().zip(&timers).zip(reasons);
        let failed = failed.filter_map(|((step, timer), reason)| {
            let step = usize::try_from(step?).ok();
            Some(StepFailure {
                step: step.filter(|step| *step < batch.keys.len())?,
                timer,
                reason: reason.unwrap_or_default().to_string(),
            })
        });
        let mut own = found[emitted_from + 4..failed_from].to_vec();
        own.push(Arc::clone(&found[emitted_from + 2]));
        Ok(KeyedRan {
            steps,
            has_state: found[1].as_boolean().clone(),
            fired: long(&found[2]),
            timers: found[3].as_list::<i32>().clone(),
            states: found[4..emitted_from].to_vec(),
            keys: emitted,
            times: long(&found[emitted_from + 1]),
            columns: own,
            retracted: found[emitted_from + 3].as_boolean().clone(),
            failed: failed.collect(),
        })
    }

    /// The rows that a function without a state makes of rows. An error means that at least one row fails.
    ///
    /// # Errors
    ///
    /// What the function has raised, or how its worker has died.
    pub fn table(&self, columns: &[ArrayRef], rows: usize) -> Result<TableRows, Failure> {
        let own = self.definition().table.iter();
        let own = own.flat_map(|table| table.columns.iter().map(|(_, it)| it.clone()));
        let own = own.collect::<Vec<DataType>>();
        let results = match own.is_empty() {
            true => vec![(DataType::Boolean, Some(rows))],
            false => {
                let own = own.iter().map(|data_type| (data_type.clone(), None));
                [(DataType::Int32, None)].into_iter().chain(own).collect()
            }
        };
        let found = self.call_once_more(&Call {
            what: TABLE,
            rows,
            columns,
            results: &results,
        })?;
        if own.is_empty() {
            return Ok(TableRows::Kept(found[0].as_boolean().clone()));
        }
        let of = found[0].as_primitive::<Int32Type>();
        let made = found[1].len();
        let are_same = of.is_empty() && made == rows;
        let is_valid = (are_same || of.len() == made)
            && of.null_count() == 0
            && of
                .values()
                .iter()
                .all(|row| *row >= 0 && (*row as usize) < rows)
            && found[1..].iter().all(|column| column.len() == made);
        if !is_valid {
            return Err(Failure::of(
                "the worker has returned columns of different lengths",
            ));
        }
        let of = of.values().iter().map(|row| *row as u32);
        let of = (!are_same).then(|| of.collect::<UInt32Array>());
        Ok(TableRows::Made(of, found[1..].to_vec()))
    }
}
