//! Operators in Python with a state for each key. The states are here; a call of the worker has those of the
//! keys of its rows.

use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int32Array, Int64Array, ListArray, new_null_array,
};
use arrow_row::{RowConverter, SortField};
use arrow_schema::DataType;
use slackwater_engine::operator::custom::{
    Batch, BatchFunction, BatchStep, Emitted, Function as EngineFunction, KeyLeft, KeyStates,
    KeyedFactory, Ran, StepFailure,
};
use slackwater_engine::{Error, Result};
use slackwater_udf::{Failure, KeyedBatch, KeyedRan, TableRows};

/// About the most bytes of states in a call: offsets of columns have 31 bits.
const STATES_BYTES_MAX: usize = 256 << 20;

/// Runs the calls of an operator.
pub trait Runner: Send + Sync {
    /// Processes rows and timers of keys, at least the first one.
    ///
    /// # Errors
    ///
    /// If the query can't continue.
    fn keyed(&self, batch: &KeyedBatch) -> std::result::Result<KeyedRan, Failure>;

    /// The rows that are made of rows, without a state. An error means that at least one row fails.
    ///
    /// # Errors
    ///
    /// The reason, and the row if it is known.
    fn table(&self, columns: &[ArrayRef], rows: usize) -> std::result::Result<TableRows, Failure>;
}

/// Makes the functions of the instances of an operator.
pub struct Factory {
    pub name: String,
    pub runner: Arc<dyn Runner>,
    /// For each input the places of the function's columns in a batch.
    pub places: Vec<Vec<usize>>,
    /// The types of the values of a state.
    pub types: Vec<DataType>,
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl KeyedFactory for Factory {
    fn function(&self) -> Result<EngineFunction> {
        let types = self.types.clone();
        let fields = types.iter().cloned().map(SortField::new);
        let converter = RowConverter::new(fields.collect())?;
        let none = types.iter().map(|data_type| new_null_array(data_type, 1));
        let none = converter.convert_columns(&none.collect::<Vec<ArrayRef>>())?;
        Ok(EngineFunction::Batches(Box::new(Keyed {
            name: self.name.clone(),
            runner: Arc::clone(&self.runner),
            places: self.places.clone(),
            none: none.row(0).data().into(),
            types,
            converter,
            states: Vec::new(),
            bytes: 0,
        })))
    }
}

/// An operator in Python, and the states of its keys.
struct Keyed {
    name: String,
    runner: Arc<dyn Runner>,
    places: Vec<Vec<usize>>,
    /// The types of the values of a state.
    types: Vec<DataType>,
    converter: RowConverter,
    /// A state without values.
    none: Box<[u8]>,
    /// The states, encoded, by the numbers of their keys.
    states: Vec<Option<Box<[u8]>>>,
    bytes: usize,
}

/// How many of the steps fit into a call, and how many keys they have. Keys are numbered as they come.
fn fitting(steps: &[BatchStep], bytes: impl Fn(usize) -> usize, most: usize) -> (usize, usize) {
    let (mut keys, mut sum) = (0, 0);
    for (number, step) in steps.iter().enumerate() {
        if step.key < keys {
            continue;
        }
        sum += bytes(step.key);
        if sum > most && number > 0 {
            return (number, keys);
        }
        keys = step.key + 1;
    }
    (steps.len(), keys)
}

impl Keyed {
    fn state(&self, key: u32) -> Option<&[u8]> {
        self.states.get(key as usize)?.as_deref()
    }

    fn replace(&mut self, key: u32, state: Option<Box<[u8]>>) {
        let key = key as usize;
        if key >= self.states.len() {
            self.states.resize(key + 1, None);
        }
        self.bytes += state.as_ref().map_or(0, |state| state.len());
        let before = std::mem::replace(&mut self.states[key], state);
        self.bytes -= before.map_or(0, |state| state.len());
    }

    fn columns(&self, keys: &[u32]) -> Result<Vec<ArrayRef>> {
        let parser = self.converter.parser();
        let rows = keys.iter();
        let rows = rows.map(|&key| parser.parse(self.state(key).unwrap_or(&self.none)));
        Ok(self.converter.convert_rows(rows)?)
    }

    fn failed(&self, failure: Failure) -> Error {
        let place = format!("function '{}'", self.name);
        let error = Error::new(place, failure.reason);
        match failure.is_final {
            true => error.final_one(),
            false => error,
        }
    }

    /// The first steps of a batch, with the states of the first keys.
    fn call(&self, batch: &Batch, steps: usize, keys: usize) -> Result<KeyedBatch> {
        let of_steps = &batch.steps[..steps];
        let number = |number: usize| number as i32;
        let inputs = of_steps.iter();
        let inputs = inputs.map(|step| step.row.map_or(-1, |(input, _)| number(input)));
        let rows = of_steps.iter();
        let rows = rows.map(|step| step.row.map_or(-1, |(_, row)| number(row)));
        let timers = batch.timers[..keys].iter();
        let timers = timers.map(|timers| Some(timers.iter().copied().map(Some)));
        let has_state = batch.keys[..keys].iter();
        let has_state = has_state.map(|&key| Some(self.state(key).is_some()));
        let columns = self.places.iter().zip(&batch.inputs);
        let columns = columns.map(|(places, rows)| {
            let columns = places.iter();
            let columns = columns.map(|&place| Arc::clone(rows.column(place)));
            columns.collect()
        });
        Ok(KeyedBatch {
            has_state: has_state.collect::<BooleanArray>(),
            timers: ListArray::from_iter_primitive::<Int64Type, _, _>(timers),
            states: self.columns(&batch.keys[..keys])?,
            keys: Int32Array::from_iter_values(of_steps.iter().map(|step| number(step.key))),
            inputs: Int32Array::from_iter_values(inputs),
            rows: Int32Array::from_iter_values(rows),
            times: Int64Array::from_iter_values(of_steps.iter().map(|step| step.time)),
            retracts: of_steps.iter().map(|step| Some(step.retracts)).collect(),
            columns: columns.collect(),
        })
    }

    /// Keeps the new states.
    fn take(&mut self, batch: &Batch, ran: KeyedRan) -> Result<Ran> {
        let states = self.converter.convert_columns(&ran.states)?;
        let mut keys = Vec::with_capacity(batch.keys.len());
        for (place, &key) in batch.keys.iter().enumerate() {
            if place >= ran.has_state.len() {
                // Its steps did not fit into the call.
                keys.push(KeyLeft {
                    keeps_state: self.state(key).is_some(),
                    timers: batch.timers[place].clone(),
                    fired: 0,
                });
                continue;
            }
            let keeps_state = ran.has_state.value(place);
            let state = keeps_state.then(|| Box::from(states.row(place).data()));
            self.replace(key, state);
            let timers = ran.timers.value(place);
            keys.push(KeyLeft {
                keeps_state,
                timers: timers.as_primitive::<Int64Type>().values().to_vec(),
                fired: u32::try_from(ran.fired.value(place)).unwrap_or(u32::MAX),
            });
        }
        let emitted = ran.keys.values().iter().zip(ran.times.values());
        let retracted = ran.retracted.iter().enumerate();
        let retracted = retracted.filter_map(|(row, is)| (is == Some(true)).then_some(row));
        let failed = ran.failed.into_iter().map(|failure| StepFailure {
            step: failure.step,
            timer: failure.timer,
            reason: failure.reason,
        });
        Ok(Ran {
            steps: ran.steps,
            keys,
            emitted: emitted.map(|(&key, &time)| (key as usize, time)).collect(),
            rows: Emitted {
                columns: ran.columns,
                retracted: retracted.collect(),
            },
            failed: failed.collect(),
        })
    }
}

impl BatchFunction for Keyed {
    fn run(&mut self, batch: &Batch) -> Result<Ran> {
        let bytes = |key: usize| self.state(batch.keys[key]).map_or(0, <[u8]>::len);
        let (steps, keys) = fitting(&batch.steps, bytes, STATES_BYTES_MAX);
        let call = self.call(batch, steps, keys)?;
        let ran = self.runner.keyed(&call);
        let ran = ran.map_err(|failure| self.failed(failure))?;
        self.take(batch, ran)
    }
}

impl KeyStates for Keyed {
    fn save(&mut self, keys: &[u32]) -> Result<Vec<ArrayRef>> {
        self.columns(keys)
    }

    fn load(&mut self, key: u32, states: &[ArrayRef], row: usize) -> Result<()> {
        let types = states.iter().map(|column| column.data_type());
        if !types.eq(self.types.iter()) {
            let error = format!("its states are not those of function '{}'", self.name);
            return Err(Error::new("snapshot of a custom operator", error)
                .hint("restore from another checkpoint"));
        }
        let states = states.iter().map(|column| column.slice(row, 1));
        let states = states.collect::<Vec<ArrayRef>>();
        let state = self.converter.convert_columns(&states)?;
        let state = Box::from(state.row(0).data());
        self.replace(key, Some(state));
        Ok(())
    }

    fn forget(&mut self, key: u32) {
        self.replace(key, None);
    }

    fn bytes(&self) -> usize {
        self.bytes + self.states.capacity() * size_of::<Option<Box<[u8]>>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_cut_where_the_states_of_their_keys_are_too_large() {
        let step = |key: usize| BatchStep {
            key,
            row: None,
            time: 0,
            retracts: false,
        };
        let steps = [0, 1, 0, 2, 1].map(step);
        let bytes = |key: usize| [5, 3, 4][key];
        assert_eq!(fitting(&steps, bytes, 12), (5, 3));
        assert_eq!(fitting(&steps, bytes, 8), (3, 2));
        assert_eq!(fitting(&steps, bytes, 7), (1, 1));
        // At least one step.
        assert_eq!(fitting(&steps, bytes, 1), (1, 1));
    }
}
