//! Calls of an aggregate function.
//!
//! Workers keep no groups. A call has the state of each of its groups, and for each row the number of its
//! group among them; the new states come back. So a worker that dies loses nothing, and a call that has
//! failed can be repeated with fewer rows.
//!
//! | call | arguments | results |
//! |---|---|---|
//! | accumulate | states, groups, the function's arguments | states, failed rows, reasons |
//! | retract | the same | the same, and none has failed |
//! | scan | the same | states, failed rows, reasons, the value after each row |
//! | merge | states, groups, other states | states |
//! | finish | states | values, failed states, reasons |

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Int32Array, UInt32Array, new_null_array,
};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use arrow_select::concat::concat;
use arrow_select::filter::filter;
use arrow_select::take::take;

use crate::definition::Failure;
use crate::message::{ACCUMULATE, FINISH, MERGE, RETRACT, SCAN};
use crate::pool::Function;
use crate::worker::{Call, Ended};

/// What a call has made of the states of groups.
#[derive(Debug, Clone)]
pub struct Added {
    /// The new states; NULL for a group that has seen no row.
    pub states: BinaryArray,
    /// The rows that were left out, and why.
    pub failed: Vec<(usize, String)>,
}

impl Function {
    /// Adds rows: row `i` belongs to the group whose state is `states[groups[i]]`.
    ///
    /// # Errors
    ///
    /// If no row can be added to any state.
    pub fn accumulate(
        &self,
        states: &BinaryArray,
        groups: &Int32Array,
        columns: &[ArrayRef],
    ) -> Result<Added, Failure> {
        let mut added = Added {
            states: states.clone(),
            failed: Vec::new(),
        };
        let left = self.without_nulls(groups, columns)?;
        let (rows, given) = (left.groups.len(), &left.columns);
        let mut refused = Vec::new();
        self.in_parts(rows, &mut refused, |rows, refused| {
            let of_rows = Rows::of(given, &left.groups, rows.clone());
            let results = self.states_call(ACCUMULATE, &added.states, &of_rows, &[])?;
            added.states = results[0].as_binary().clone();
            read_failed(&results[1..], rows.start, rows.len(), refused);
            Ok(())
        })?;
        let refused = refused.into_iter();
        added.failed = refused.map(|(row, why)| (left.at(row), why)).collect();
        Ok(added)
    }

    /// Retracts rows that were added before.
    ///
    /// # Errors
    ///
    /// If one of them can't be retracted.
    pub fn retract(
        &self,
        states: &BinaryArray,
        groups: &Int32Array,
        columns: &[ArrayRef],
    ) -> Result<BinaryArray, Failure> {
        let left = self.without_nulls(groups, columns)?;
        if left.groups.is_empty() {
            return Ok(states.clone());
        }
        let rows = Rows::of(&left.columns, &left.groups, 0..left.groups.len());
        let results = self.whole(|| self.states_call(RETRACT, states, &rows, &[]))?;
        let mut failed = Vec::new();
        read_failed(&results[1..], 0, left.groups.len(), &mut failed);
        match failed.into_iter().next() {
            None => Ok(results[0].as_binary().clone()),
            Some((row, reason)) => Err(Failure {
                row: Some(left.at(row)),
                is_final: true,
                ..Failure::of(reason)
            }),
        }
    }

    /// Adds rows one after the other, and returns the value of each row's group after that row, too.
    ///
    /// # Errors
    ///
    /// If no row can be added to any state.
    pub fn scan(
        &self,
        states: &BinaryArray,
        groups: &Int32Array,
        columns: &[ArrayRef],
    ) -> Result<(Added, ArrayRef), Failure> {
        let mut states = states.clone();
        let (mut failed, mut values) = (Vec::new(), Vec::new());
        let result = &self.definition().result;
        self.in_parts(groups.len(), &mut failed, |rows, failed| {
            // The parts that are missing had a row that has killed its worker.
            let of_rows = Rows::of(columns, groups, rows.clone());
            let value = (result.clone(), Some(rows.len()));
            let results = self.states_call(SCAN, &states, &of_rows, &[value])?;
            states = results[0].as_binary().clone();
            read_failed(&results[1..], rows.start, rows.len(), failed);
            values.push((rows.start, Arc::clone(&results[3])));
            Ok(())
        })?;
        let values = in_order(values, groups.len(), result)?;
        Ok((Added { states, failed }, values))
    }

    /// Merges states: `others[i]` into `states[groups[i]]`.
    ///
    /// # Errors
    ///
    /// If one of them can't be merged.
    pub fn merge(
        &self,
        states: &BinaryArray,
        groups: &Int32Array,
        others: &BinaryArray,
    ) -> Result<BinaryArray, Failure> {
        let columns: [ArrayRef; 3] = [
            Arc::new(states.clone()),
            Arc::new(groups.clone()),
            Arc::new(others.clone()),
        ];
        let call = Call {
            what: MERGE,
            rows: others.len(),
            columns: &columns,
            results: &[(DataType::Binary, Some(states.len()))],
        };
        let merged = self.whole(|| self.attempt(&call));
        let merged = merged.map_err(|failure| Failure {
            is_final: true,
            ..failure
        })?;
        Ok(merged[0].as_binary().clone())
    }

    /// The values of groups with these states, and which of them have failed.
    ///
    /// # Errors
    ///
    /// If there is a value for none.
    pub fn finish(
        &self,
        states: &BinaryArray,
    ) -> Result<(ArrayRef, Vec<(usize, String)>), Failure> {
        let (mut failed, mut values) = (Vec::new(), Vec::new());
        let result = &self.definition().result;
        self.in_parts(states.len(), &mut failed, |rows, failed| {
            let of_rows: ArrayRef = Arc::new(states.slice(rows.start, rows.len()));
            let call = Call {
                what: FINISH,
                rows: rows.len(),
                columns: &[of_rows],
                results: &[
                    (result.clone(), Some(rows.len())),
                    (DataType::Int64, None),
                    (DataType::Utf8View, None),
                ],
            };
            let results = self.attempt(&call)?;
            read_failed(&results[1..], rows.start, rows.len(), failed);
            values.push((rows.start, Arc::clone(&results[0])));
            Ok(())
        })?;
        Ok((in_order(values, states.len(), result)?, failed))
    }

    fn states_call(
        &self,
        what: u32,
        states: &BinaryArray,
        rows: &Rows,
        more: &[(DataType, Option<usize>)],
    ) -> Result<Vec<ArrayRef>, Ended> {
        let states: ArrayRef = Arc::new(states.clone());
        let mut results = vec![
            (DataType::Binary, Some(states.len())),
            (DataType::Int64, None),
            (DataType::Utf8View, None),
        ];
        results.extend_from_slice(more);
        let columns = [states, Arc::clone(&rows.groups)];
        let columns = columns.into_iter().chain(rows.columns.iter().cloned());
        self.attempt(&Call {
            what,
            rows: rows.groups.len(),
            columns: &columns.collect::<Vec<ArrayRef>>(),
            results: &results,
        })
    }

    /// Makes a call for rows, in parts if it fails, until the rows that fail are found.
    fn in_parts(
        &self,
        rows: usize,
        failed: &mut Vec<(usize, String)>,
        mut call: impl FnMut(Range<usize>, &mut Vec<(usize, String)>) -> Result<(), Ended>,
    ) -> Result<(), Failure> {
        // The last one is next: rows are added in their order.
        let mut parts = vec![(0..rows, false)];
        while let Some((part, is_repeated)) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            let (failure, may_be_innocent) = match call(part.clone(), failed) {
                Ok(()) => continue,
                Err(Ended::Failed(failure)) => (failure, false),
                // As for other functions: a single row is to blame if it kills two workers.
                Err(Ended::Died { failure, is_late }) => (failure, !is_late && !is_repeated),
            };
            if failure.is_final {
                return Err(failure);
            }
            if part.len() == 1 {
                match may_be_innocent {
                    true => parts.push((part, true)),
                    false => failed.push((part.start, failure.reason)),
                }
                continue;
            }
            let row = failure.row.filter(|row| *row < part.len());
            let (from, to) = match row {
                Some(row) => (part.start + row, part.start + row + 1),
                None => (part.start + part.len() / 2, part.start + part.len() / 2),
            };
            parts.extend([
                (to..part.end, false),
                (from..to, false),
                (part.start..from, false),
            ]);
        }
        failed.sort_by_key(|(row, _)| *row);
        Ok(())
    }

    /// Makes a call that must succeed for all rows, once more if its worker has died.
    fn whole(
        &self,
        call: impl Fn() -> Result<Vec<ArrayRef>, Ended>,
    ) -> Result<Vec<ArrayRef>, Failure> {
        match call() {
            Err(Ended::Died { failure, is_late }) if !is_late && !failure.is_final => {
                call().map_err(Ended::failure)
            }
            ended => ended.map_err(Ended::failure),
        }
    }

    /// The rows without NULL, if the function does not take it.
    fn without_nulls(&self, groups: &Int32Array, columns: &[ArrayRef]) -> Result<Left, Failure> {
        let nulls = columns.iter().fold(None, |nulls, column| {
            NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref())
        });
        let takes_nulls = self.definition().takes_nulls;
        let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0 && !takes_nulls) else {
            return Ok(Left {
                groups: groups.clone(),
                columns: columns.to_vec(),
                rows: None,
            });
        };
        let valid = BooleanArray::new(nulls.inner().clone(), None);
        let failed = |error: arrow_schema::ArrowError| Failure::of(error.to_string());
        let columns = columns.iter().map(|column| filter(column, &valid));
        Ok(Left {
            groups: filter(groups, &valid)
                .map_err(failed)?
                .as_primitive()
                .clone(),
            columns: columns.collect::<Result<_, _>>().map_err(failed)?,
            rows: Some(nulls.valid_indices().collect()),
        })
    }
}

/// The rows that are left.
struct Left {
    groups: Int32Array,
    columns: Vec<ArrayRef>,
    /// The numbers that they had; `None` if none is missing.
    rows: Option<Vec<usize>>,
}

impl Left {
    fn at(&self, row: usize) -> usize {
        self.rows.as_ref().map_or(row, |rows| rows[row])
    }
}

/// Rows of a call.
struct Rows {
    groups: ArrayRef,
    columns: Vec<ArrayRef>,
}

impl Rows {
    fn of(columns: &[ArrayRef], groups: &Int32Array, rows: Range<usize>) -> Rows {
        let columns = columns.iter();
        Rows {
            groups: Arc::new(groups.slice(rows.start, rows.len())),
            columns: columns
                .map(|column| column.slice(rows.start, rows.len()))
                .collect(),
        }
    }
}

/// Adds the failed rows that a worker names; `results` are their numbers and the reasons.
fn read_failed(results: &[ArrayRef], start: usize, rows: usize, failed: &mut Vec<(usize, String)>) {
    let numbers = results[0].as_primitive::<Int64Type>().values().iter();
    let reasons = results[1].as_string_view();
    for (number, reason) in numbers.zip(reasons) {
        // A worker may write anything.
        if let Some(row) = usize::try_from(*number).ok().filter(|row| *row < rows) {
            failed.push((start + row, reason.unwrap_or_default().to_string()));
        }
    }
}

/// The values of parts, by the number of their first row; rows without a value have NULL.
fn in_order(
    mut values: Vec<(usize, ArrayRef)>,
    rows: usize,
    result: &DataType,
) -> Result<ArrayRef, Failure> {
    if values.len() == 1 && values[0].1.len() == rows {
        return Ok(values.remove(0).1);
    }
    let mut places = vec![None; rows];
    let mut next = 0;
    for (start, column) in &values {
        for row in 0..column.len() {
            places[start + row] = Some(next);
            next += 1;
        }
    }
    let columns = values.iter().map(|(_, column)| column.as_ref());
    let columns = columns.collect::<Vec<&dyn Array>>();
    if columns.is_empty() {
        return Ok(new_null_array(result, rows));
    }
    let all = concat(&columns);
    let all = all.and_then(|all| take(&all, &UInt32Array::from(places), None));
    all.map_err(|error| Failure::of(error.to_string()))
}
