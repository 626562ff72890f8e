//! `function(DISTINCT …)`: any function over the distinct rows of its arguments.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_schema::DataType;

use super::{Accumulator, OrderKey, Values};
use crate::error::{Error, Result};
use crate::key::{Comparable, KeyEncoder};

/// Passes on to another accumulator only rows that are new to their group. Rows with a NULL among the
/// arguments are not passed on (SQL's rule for all DISTINCT aggregates supported here).
pub struct Distinct {
    inner: Box<dyn Accumulator>,
    encoder: KeyEncoder,
    /// The distinct rows of each group, numbered in order of arrival: when restored, they are passed on
    /// in the same order, so that a sum of doubles is the same to the last bit.
    seen: Vec<HashMap<Box<[u8]>, u64, foldhash::fast::FixedState>>,
}

impl Distinct {
    /// The function `inner` over distinct rows of the given argument types.
    pub fn new(inner: Box<dyn Accumulator>, arguments: &[DataType]) -> Result<Distinct> {
        Ok(Distinct {
            inner,
            encoder: KeyEncoder::new(arguments.iter().cloned())?,
            seen: Vec::new(),
        })
    }
}

impl Accumulator for Distinct {
    fn resize(&mut self, groups: usize) {
        self.seen.resize_with(groups, Default::default);
        self.inner.resize(groups);
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            self.seen[group as usize] = HashMap::default();
        }
        self.inner.reset(groups);
    }

    fn update(&mut self, groups: &[u32], arguments: &[ArrayRef], _: &[OrderKey]) -> Result<()> {
        let arguments = Comparable::new(arguments);
        let rows = self.encoder.rows(&arguments)?;
        let mut new_rows = Vec::new();
        let mut new_groups = Vec::new();
        for (row, &group) in groups.iter().enumerate() {
            if arguments.has_null(row) {
                continue;
            }
            let value = rows.row(row);
            let seen = &mut self.seen[group as usize];
            if !seen.contains_key(value.as_ref()) {
                seen.insert(value.as_ref().into(), seen.len() as u64);
                new_rows.push(row as u32);
                new_groups.push(group);
            }
        }
        if new_rows.is_empty() {
            return Ok(());
        }
        let new_rows = UInt32Array::from(new_rows);
        let arguments = arguments.columns().iter();
        let arguments = arguments
            .map(|argument| arrow_select::take::take(argument, &new_rows, None))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        self.inner.update(&new_groups, &arguments, &[])
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        self.inner.evaluate(groups)
    }

    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let mut lists = ListBuilder::new(BinaryBuilder::new());
        for &group in groups {
            let mut seen = self.seen[group as usize].iter().collect::<Vec<_>>();
            seen.sort_unstable_by_key(|(_, number)| **number);
            for (value, _) in seen {
                lists.values().append_value(value);
            }
            lists.append(true);
        }
        Ok(vec![Arc::new(lists.finish())])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        let lists = states[0].as_list::<i32>();
        for (row, &group) in groups.iter().enumerate() {
            let values = lists.value(row);
            let values = values.as_binary_opt::<i32>().ok_or_else(|| {
                Error::new(
                    "snapshot of a DISTINCT aggregate",
                    "its values are not binary",
                )
            })?;
            let arguments = self.encoder.decode(values.iter().flatten())?;
            let groups = vec![group; values.len()];
            self.update(&groups, &arguments, &[])?;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        let values = self
            .seen
            .iter()
            .flatten()
            .map(|(value, _)| value.len() + 32)
            .sum::<usize>();
        values + self.inner.bytes()
    }
}
