//! The groups of one window: their keys, their accumulators, and when they last changed.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_schema::{DataType, SchemaRef};

use super::updates::Updates;
use super::{AggregateCall, AggregateSpec, Keys};
use crate::accumulator::{self, Accumulator, Failures, OrderKey, Values};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::expression::{reject, true_rows};
use crate::operator::Output;
use crate::operator::window::timestamp_ticks;
use crate::state::{Mark, Touched};

/// The groups of one window, or of a running aggregation.
pub struct Groups {
    pub keys: Keys,
    pub accumulators: Vec<Box<dyn Accumulator>>,
    /// When each group was last changed.
    pub touched: Touched,
    /// What has been emitted, if that can change.
    pub updates: Option<Updates>,
    /// For each group, the call of [`Groups::distinct`] that saw it last.
    seen: Vec<u32>,
    seen_call: u32,
}

impl Groups {
    pub fn new(key_types: &[DataType], calls: &[AggregateCall]) -> Result<Groups> {
        let accumulators = calls.iter().map(|call| call.function.accumulator());
        Ok(Groups {
            keys: Keys::new(key_types)?,
            accumulators: accumulators.collect::<Result<Vec<_>>>()?,
            touched: Touched::default(),
            updates: None,
            seen: Vec::new(),
            seen_call: 0,
        })
    }

    /// Makes room in the accumulators for the groups that the keys have.
    pub fn resize(&mut self) {
        self.resize_to(self.keys.len());
    }

    /// Makes room in the accumulators for this many groups.
    pub fn resize_to(&mut self, groups: usize) {
        if groups > self.touched.len() {
            self.touched.grow(groups);
            for accumulator in &mut self.accumulators {
                accumulator.resize(groups);
            }
        }
    }

    pub fn touch(&mut self, groups: &[u32], mark: Mark) {
        for &group in groups {
            self.touched.touch(group, mark);
        }
    }

    /// Forgets the values of groups, and what has been emitted of them.
    pub fn reset(&mut self, groups: &[u32]) {
        if groups.is_empty() {
            return;
        }
        for accumulator in &mut self.accumulators {
            accumulator.reset(groups);
        }
        if let Some(updates) = &mut self.updates {
            updates.reset(groups);
        }
    }

    /// Each of `groups` once, in order of first occurrence.
    pub fn distinct(&mut self, groups: &[u32], distinct: &mut Vec<u32>) {
        if self.seen_call == u32::MAX {
            self.seen.clear();
            self.seen_call = 0;
        }
        self.seen_call += 1;
        self.seen.resize(self.keys.len(), 0);
        for &group in groups {
            if std::mem::replace(&mut self.seen[group as usize], self.seen_call) != self.seen_call {
                distinct.push(group);
            }
        }
    }

    /// Adds rows: row `i` of `chunk` belongs to group `groups[i]`. A row that a function can't add is
    /// rejected; the other functions have it.
    pub fn update(
        &mut self,
        spec: &AggregateSpec,
        groups: &[u32],
        chunk: &Chunk,
        output: &mut Output,
    ) -> Result<()> {
        let order = order_keys(spec, chunk)?;
        let mut failed = Failures::new();
        for (call, accumulator) in spec.calls.iter().zip(&mut self.accumulators) {
            let arguments = call.arguments.iter();
            let arguments = arguments.map(|&index| chunk.batch.column(index).clone());
            let mut arguments = arguments.collect::<Vec<ArrayRef>>();
            let order = if call.function.needs_order() {
                order.as_slice()
            } else {
                &[]
            };
            let Some(filter) = call.filter else {
                failed.extend(accumulator.update(groups, &arguments, order)?);
                continue;
            };
            let rows = true_rows(chunk.batch.column(filter).as_boolean());
            for argument in &mut arguments {
                *argument = arrow_select::take::take(argument, &rows, None)?;
            }
            let rows = rows.values();
            let groups = rows.iter().map(|&row| groups[row as usize]);
            let order = match order {
                [] => vec![],
                order => rows.iter().map(|&row| order[row as usize]).collect(),
            };
            let refused = accumulator.update(&groups.collect::<Vec<u32>>(), &arguments, &order)?;
            let refused = refused.into_iter();
            failed.extend(refused.map(|(row, reason)| (rows[row] as usize, reason)));
        }
        reject_rows(chunk, failed, output);
        Ok(())
    }

    /// Adds the states of the accumulators, one accumulator after the other: row `i` of them belongs to
    /// group `groups[i]`.
    pub fn merge(&mut self, groups: &[u32], mut states: &[ArrayRef]) -> Result<()> {
        for accumulator in &mut self.accumulators {
            let width = accumulator.state(&[])?.len();
            let (own, rest) = states.split_at_checked(width).ok_or_else(|| {
                Error::new(
                    "combined rows",
                    "they have fewer states than the aggregation",
                )
            })?;
            accumulator.merge(groups, own)?;
            states = rest;
        }
        Ok(())
    }

    /// The states of `groups`, one accumulator after the other.
    pub fn states(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        accumulator::states(self.accumulators.iter_mut().map(Box::as_mut), groups)
    }

    /// Merges states from a snapshot, in the form of [`Groups::states`].
    pub fn merge_states(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        let accumulators = self.accumulators.iter_mut().map(Box::as_mut);
        accumulator::merge_states(accumulators, groups, states)
    }

    /// The result rows of `groups`: the columns `front`, keys, aggregates; and which rows failed.
    pub fn result(
        &mut self,
        groups: &[u32],
        front: &[ArrayRef],
        schema: &SchemaRef,
    ) -> Result<(RecordBatch, Vec<(usize, String)>)> {
        let mut columns = front.to_vec();
        columns.extend(self.keys.columns(groups)?);
        let mut failed = Vec::new();
        for accumulator in &mut self.accumulators {
            let values = accumulator.evaluate(groups)?;
            columns.push(values.column);
            failed.extend(values.failed);
        }
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(groups.len()));
        Ok((
            RecordBatch::try_new_with_options(schema.clone(), columns, &options)?,
            failed,
        ))
    }

    pub fn clear(&mut self) {
        self.keys.clear();
        self.accumulators
            .iter_mut()
            .for_each(|accumulator| accumulator.resize(0));
        self.touched.clear();
        self.updates.iter_mut().for_each(Updates::clear);
        self.seen.clear();
        self.seen_call = 0;
    }

    pub fn bytes(&self) -> usize {
        let accumulators = self
            .accumulators
            .iter()
            .map(|accumulator| accumulator.bytes());
        let updates = self.updates.as_ref().map_or(0, Updates::bytes);
        self.keys.bytes() + self.touched.bytes() + updates + accumulators.sum::<usize>()
    }
}

/// Rejects rows that a function could not add, each once.
pub fn reject_rows(chunk: &Chunk, failed: Failures, output: &mut Output) {
    let failed = failed.into_iter().rev().collect::<BTreeMap<_, _>>();
    for (row, reason) in failed {
        output.reject(reject(chunk, row, reason));
    }
}

/// The order of a chunk's rows, if a function depends on it.
pub fn order_keys(spec: &AggregateSpec, chunk: &Chunk) -> Result<Vec<OrderKey>> {
    if !spec.calls.iter().any(|call| call.function.needs_order()) {
        return Ok(Vec::new());
    }
    let times = match spec.time_column {
        Some(column) => Some(timestamp_ticks(chunk.batch.column(column))?),
        None => None,
    };
    Ok((0..chunk.rows())
        .map(|row| {
            let time = times.map_or(0, |times| times[row]);
            let (partition, position) = chunk.place(row);
            (time, partition, position)
        })
        .collect())
}

/// As [`Accumulator::scan`] if only some rows count; the other rows get the current value.
pub fn scan_filtered(
    accumulator: &mut Box<dyn Accumulator>,
    groups: &[u32],
    arguments: &[ArrayRef],
    order: &[OrderKey],
    filter: &BooleanArray,
) -> Result<Values> {
    let mut columns = Vec::with_capacity(groups.len());
    let mut failed = Vec::new();
    for row in 0..groups.len() {
        if filter.is_valid(row) && filter.value(row) {
            let arguments = arguments
                .iter()
                .map(|a| a.slice(row, 1))
                .collect::<Vec<_>>();
            let order = if order.is_empty() {
                order
            } else {
                &order[row..=row]
            };
            let added = accumulator.update(&groups[row..=row], &arguments, order)?;
            failed.extend(added.into_iter().map(|(_, reason)| (row, reason)));
        }
        let value = accumulator.evaluate(&groups[row..=row])?;
        failed.extend(value.failed.into_iter().map(|(_, reason)| (row, reason)));
        columns.push(value.column);
    }
    let slices = columns
        .iter()
        .map(|column| column.as_ref())
        .collect::<Vec<_>>();
    Ok(Values {
        column: arrow_select::concat::concat(&slices)?,
        failed,
    })
}
