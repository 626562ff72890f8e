//! Accumulators of aggregate functions in Python: a pickled object for each group.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, Int32Array, new_empty_array};
use arrow_schema::DataType;
use slackwater_engine::accumulator::{
    Accumulator, AccumulatorFactory, Failures, OrderKey, Retract, Signature, Values,
};
use slackwater_engine::{Error, Result};
use slackwater_udf::{Failure, Function};

/// About the most bytes of states in a call: offsets of columns have 31 bits.
const STATES_BYTES_MAX: usize = 256 << 20;

/// In the place of a group that a part does not have.
const NOWHERE: u32 = u32::MAX;

/// Makes the accumulators of a function.
pub struct Factory(pub Arc<Function>);

impl Factory {
    fn groups(&self) -> Groups {
        Groups {
            function: Arc::clone(&self.0),
            states: Vec::new(),
            places: Vec::new(),
            bytes: 0,
        }
    }
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.definition().name)
    }
}

impl AccumulatorFactory for Factory {
    fn accumulator(&self) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(self.groups()))
    }

    fn data_type(&self) -> DataType {
        self.0.definition().result.clone()
    }

    fn signature(&self) -> Signature {
        let definition = self.0.definition();
        Signature {
            name: definition.name.to_lowercase(),
            arguments: definition.arguments.clone(),
            ..Signature::default()
        }
    }

    fn retractable(&self) -> Result<Option<Box<dyn Retract>>> {
        let can_retract = self.0.can_retract();
        let can_retract = can_retract.map_err(|failure| failed(&self.0, failure))?;
        Ok(can_retract.then(|| Box::new(self.groups()) as Box<dyn Retract>))
    }
}

fn failed(function: &Function, failure: Failure) -> Error {
    let place = format!("function '{}'", function.definition().name);
    let error = Error::new(place, failure.reason);
    match failure.is_final {
        true => error.final_one(),
        false => error,
    }
}

/// The states of groups.
struct Groups {
    function: Arc<Function>,
    /// `None` for a group without rows.
    states: Vec<Option<Box<[u8]>>>,
    /// The place of each group in the part that is being made.
    places: Vec<u32>,
    bytes: usize,
}

/// Rows of one call.
struct Part {
    rows: Range<usize>,
    /// For each row, the place of its group in `groups`.
    places: Vec<i32>,
    /// Each group once.
    groups: Vec<u32>,
}

impl Groups {
    /// Divides rows, so that the states of their groups fit into a call.
    fn parts(&mut self, groups: &[u32]) -> Vec<Part> {
        let part = |row: usize| Part {
            rows: row..row,
            places: Vec::new(),
            groups: Vec::new(),
        };
        let (mut parts, mut bytes) = (vec![part(0)], 0);
        for (row, &group) in groups.iter().enumerate() {
            let size = self.states[group as usize]
                .as_ref()
                .map_or(0, |state| state.len());
            let last = parts.last_mut().expect("there is one");
            let mut place = self.places[group as usize];
            if place == NOWHERE {
                let is_full = bytes + size > STATES_BYTES_MAX && !last.groups.is_empty();
                let last = match is_full {
                    true => {
                        let full = std::mem::take(&mut last.groups);
                        full.iter()
                            .for_each(|&group| self.places[group as usize] = NOWHERE);
                        last.groups = full;
                        bytes = 0;
                        parts.push(part(row));
                        parts.last_mut().expect("it was pushed")
                    }
                    false => last,
                };
                bytes += size;
                place = last.groups.len() as u32;
                self.places[group as usize] = place;
                last.groups.push(group);
            }
            let last = parts.last_mut().expect("there is one");
            last.places.push(place as i32);
            last.rows.end = row + 1;
        }
        let last = parts.last().expect("there is one");
        for &group in &last.groups {
            self.places[group as usize] = NOWHERE;
        }
        parts.retain(|part| !part.rows.is_empty());
        parts
    }

    fn states_of(&self, groups: &[u32]) -> BinaryArray {
        let states = groups
            .iter()
            .map(|&group| self.states[group as usize].as_deref());
        BinaryArray::from_iter(states)
    }

    fn replace(&mut self, groups: &[u32], states: &BinaryArray) {
        for (&group, state) in groups.iter().zip(states) {
            let place = &mut self.states[group as usize];
            let before = place.as_ref().map_or(0, |state| state.len());
            *place = state.map(Box::from);
            self.bytes += state.map_or(0, <[u8]>::len);
            self.bytes -= before;
        }
    }

    /// Failures of a part, with the numbers of rows that they have in the whole.
    fn in_whole(&self, failed: Vec<(usize, String)>, start: usize) -> Failures {
        let name = &self.function.definition().name;
        let failed = failed.into_iter();
        failed
            .map(|(row, reason)| (start + row, format!("function '{name}': {reason}")))
            .collect()
    }

    fn failed(&self, failure: Failure) -> Error {
        failed(&self.function, failure)
    }
}

fn of_part(part: &Part, columns: &[ArrayRef]) -> Vec<ArrayRef> {
    let columns = columns.iter();
    columns
        .map(|column| column.slice(part.rows.start, part.rows.len()))
        .collect()
}

fn concatenated(columns: &[ArrayRef], of: &DataType) -> Result<ArrayRef> {
    match columns {
        [] => Ok(new_empty_array(of)),
        [column] => Ok(Arc::clone(column)),
        columns => {
            let columns = columns.iter().map(|column| column.as_ref());
            Ok(arrow_select::concat::concat(&columns.collect::<Vec<_>>())?)
        }
    }
}

impl Accumulator for Groups {
    fn resize(&mut self, groups: usize) {
        let gone = self.states.drain(groups.min(self.states.len())..);
        self.bytes -= gone.flatten().map(|state| state.len()).sum::<usize>();
        self.states.resize_with(groups, || None);
        self.places.resize(groups, NOWHERE);
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            let gone = self.states[group as usize].take();
            self.bytes -= gone.map_or(0, |state| state.len());
        }
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> Result<Failures> {
        let mut failed = Failures::new();
        for part in self.parts(groups) {
            let states = self.states_of(&part.groups);
            let columns = of_part(&part, arguments);
            let places = Int32Array::from(part.places);
            let added = self.function.accumulate(&states, &places, &columns);
            let added = added.map_err(|failure| self.failed(failure))?;
            self.replace(&part.groups, &added.states);
            failed.extend(self.in_whole(added.failed, part.rows.start));
        }
        Ok(failed)
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        let (mut columns, mut failed) = (Vec::new(), Failures::new());
        for part in self.parts(groups) {
            let states = self.states_of(&groups[part.rows.clone()]);
            let finished = self.function.finish(&states);
            let (column, refused) = finished.map_err(|failure| self.failed(failure))?;
            columns.push(column);
            failed.extend(self.in_whole(refused, part.rows.start));
        }
        let column = concatenated(&columns, &self.function.definition().result)?;
        Ok(Values { column, failed })
    }

    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let states = groups
            .iter()
            .filter_map(|&group| self.states[group as usize].as_ref());
        if states.map(|state| state.len()).sum::<usize>() > i32::MAX as usize {
            return Err(self.failed(Failure {
                reason: "the states of the groups of one chunk are larger than 2 GiB".to_string(),
                row: None,
                is_final: true,
            }));
        }
        Ok(vec![Arc::new(self.states_of(groups))])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        let states = states
            .first()
            .and_then(|states| states.as_binary_opt::<i32>());
        let states = states.ok_or_else(|| {
            self.failed(Failure {
                reason: "its stored state is not that of a function in Python".to_string(),
                row: None,
                is_final: true,
            })
        })?;
        let (mut into, mut others) = (Vec::new(), Vec::new());
        for (row, &group) in groups.iter().enumerate() {
            let place = &mut self.states[group as usize];
            match place {
                _ if states.is_null(row) => {}
                // An empty group takes the state over: nothing needs to be called.
                None => {
                    *place = Some(states.value(row).into());
                    self.bytes += states.value_length(row) as usize;
                }
                Some(_) => {
                    into.push(group);
                    others.push(states.value(row));
                }
            }
        }
        for part in self.parts(&into) {
            let own = self.states_of(&part.groups);
            let places = Int32Array::from(part.places);
            let others = BinaryArray::from_iter_values(&others[part.rows.clone()]);
            let merged = self.function.merge(&own, &places, &others);
            let merged = merged.map_err(|failure| self.failed(failure))?;
            self.replace(&part.groups, &merged);
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.bytes + self.states.capacity() * (size_of::<Option<Box<[u8]>>>() + size_of::<u32>())
    }

    fn scan(&mut self, groups: &[u32], arguments: &[ArrayRef], _: &[OrderKey]) -> Result<Values> {
        let (mut columns, mut failed) = (Vec::new(), Failures::new());
        for part in self.parts(groups) {
            let states = self.states_of(&part.groups);
            let of_part = of_part(&part, arguments);
            let places = Int32Array::from(part.places);
            let scanned = self.function.scan(&states, &places, &of_part);
            let (added, values) = scanned.map_err(|failure| self.failed(failure))?;
            self.replace(&part.groups, &added.states);
            columns.push(values);
            failed.extend(self.in_whole(added.failed, part.rows.start));
        }
        let column = concatenated(&columns, &self.function.definition().result)?;
        Ok(Values { column, failed })
    }
}

impl Retract for Groups {
    fn retract(&mut self, groups: &[u32], arguments: &[ArrayRef]) -> Result<()> {
        for part in self.parts(groups) {
            let states = self.states_of(&part.groups);
            let columns = of_part(&part, arguments);
            let places = Int32Array::from(part.places);
            let left = self.function.retract(&states, &places, &columns);
            let left = left.map_err(|failure| self.failed(failure))?;
            self.replace(&part.groups, &left);
        }
        Ok(())
    }
}
