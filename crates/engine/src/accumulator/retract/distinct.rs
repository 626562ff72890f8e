//! `function(DISTINCT …)` that can retract rows: each value has a count, and the function sees only the
//! first and the last occurrence.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Int64Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, UInt32Array};
use arrow_schema::DataType;

use crate::accumulator::{Accumulator, Failures, OrderKey, Retract, Values};
use crate::error::{Error, Result};
use crate::key::{Comparable, KeyEncoder};

type Counts = HashMap<Box<[u8]>, i64, foldhash::fast::FixedState>;

/// A function over distinct rows.
pub struct Distinct {
    inner: Box<dyn Retract>,
    encoder: KeyEncoder,
    seen: Vec<Counts>,
    bytes: usize,
}

/// The memory of a value in addition to its bytes.
const VALUE_BYTES: usize = 32;

impl Distinct {
    /// The function `inner`, which can retract rows, over distinct rows of the given types.
    pub fn new(inner: Box<dyn Retract>, arguments: &[DataType]) -> Result<Distinct> {
        Ok(Distinct {
            inner,
            encoder: KeyEncoder::new(arguments.iter().cloned())?,
            seen: Vec::new(),
            bytes: 0,
        })
    }

    /// Counts a value; returns whether it is new, or gone.
    fn count(&mut self, group: u32, value: &[u8], times: i64) -> bool {
        let seen = &mut self.seen[group as usize];
        let Some(count) = seen.get_mut(value) else {
            seen.insert(value.into(), times);
            self.bytes += value.len() + VALUE_BYTES;
            return times > 0;
        };
        let before = *count;
        *count += times;
        let is_there = *count > 0;
        if *count == 0 {
            seen.remove(value);
            self.bytes = self.bytes.saturating_sub(value.len() + VALUE_BYTES);
        }
        (before > 0) != is_there
    }

    fn add(&mut self, groups: &[u32], arguments: &[ArrayRef], times: i64) -> Result<Failures> {
        let arguments = Comparable::new(arguments);
        let rows = self.encoder.rows(&arguments)?;
        let (mut changed, mut of_groups) = (Vec::new(), Vec::new());
        for (row, &group) in groups.iter().enumerate() {
            // As for all DISTINCT aggregates here, rows with a NULL are left out.
            if !arguments.has_null(row) && self.count(group, rows.row(row).as_ref(), times) {
                changed.push(row as u32);
                of_groups.push(group);
            }
        }
        if changed.is_empty() {
            return Ok(Failures::new());
        }
        let changed = UInt32Array::from(changed);
        let arguments = arguments
            .columns()
            .iter()
            .map(|argument| arrow_select::take::take(argument, &changed, None));
        let arguments = arguments.collect::<std::result::Result<Vec<_>, _>>()?;
        if times < 0 {
            self.inner.retract(&of_groups, &arguments)?;
            return Ok(Failures::new());
        }
        let mut failed = self.inner.update(&of_groups, &arguments, &[])?;
        for (row, _) in &mut failed {
            *row = changed.value(*row) as usize;
        }
        Ok(failed)
    }
}

impl Accumulator for Distinct {
    fn resize(&mut self, groups: usize) {
        for gone in self.seen.drain(groups.min(self.seen.len())..) {
            let values = gone.keys().map(|value| value.len() + VALUE_BYTES);
            self.bytes = self.bytes.saturating_sub(values.sum());
        }
        self.seen.resize_with(groups, Default::default);
        self.inner.resize(groups);
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            let gone = std::mem::take(&mut self.seen[group as usize]);
            let values = gone.keys().map(|value| value.len() + VALUE_BYTES);
            self.bytes = self.bytes.saturating_sub(values.sum());
        }
        self.inner.reset(groups);
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> Result<Failures> {
        self.add(groups, arguments, 1)
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        self.inner.evaluate(groups)
    }

    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let mut values = ListBuilder::new(BinaryBuilder::new());
        let mut counts = ListBuilder::new(Int64Builder::new());
        for &group in groups {
            for (value, &count) in &self.seen[group as usize] {
                values.values().append_value(value);
                counts.values().append_value(count);
            }
            values.append(true);
            counts.append(true);
        }
        Ok(vec![Arc::new(values.finish()), Arc::new(counts.finish())])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        let (values, counts) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        let (mut new_values, mut of_groups) = (Vec::new(), Vec::new());
        for (row, &group) in groups.iter().enumerate() {
            let (values, counts) = (values.value(row), counts.value(row));
            let wrong = || {
                Error::new(
                    "snapshot of a DISTINCT aggregate",
                    "its values have no counts",
                )
            };
            let values = values.as_binary_opt::<i32>().ok_or_else(wrong)?;
            let counts = counts.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
            for (value, &count) in values.iter().flatten().zip(counts.values()) {
                if self.count(group, value, count) {
                    new_values.push(Box::<[u8]>::from(value));
                    of_groups.push(group);
                }
            }
        }
        // All of them at once: a function may have a cost for each call.
        let arguments = self.encoder.decode(new_values.iter().map(AsRef::as_ref))?;
        let failed = self.inner.update(&of_groups, &arguments, &[])?;
        match failed.into_iter().next() {
            None => Ok(()),
            Some((_, reason)) => Err(Error::new("snapshot of a DISTINCT aggregate", reason)),
        }
    }

    fn bytes(&self) -> usize {
        self.bytes + self.inner.bytes() + self.seen.capacity() * size_of::<Counts>()
    }
}

impl Retract for Distinct {
    fn retract(&mut self, groups: &[u32], arguments: &[ArrayRef]) -> Result<()> {
        self.add(groups, arguments, -1)?;
        Ok(())
    }
}
