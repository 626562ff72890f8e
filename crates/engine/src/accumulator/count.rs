//! COUNT.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array};

use super::{Accumulator, Failures, OrderKey, Retract, Values};
use crate::error::Result;

/// Counts rows none of whose arguments is NULL.
#[derive(Default)]
pub struct Count {
    counts: Vec<i64>,
}

impl Count {
    fn add(&mut self, groups: &[u32], arguments: &[ArrayRef], sign: i64) {
        if arguments.iter().all(|argument| argument.null_count() == 0) {
            for &group in groups {
                self.counts[group as usize] += sign;
            }
            return;
        }
        for (row, &group) in groups.iter().enumerate() {
            let counted = arguments.iter().all(|argument| argument.is_valid(row));
            self.counts[group as usize] += sign * i64::from(counted);
        }
    }
}

impl Accumulator for Count {
    fn resize(&mut self, groups: usize) {
        self.counts.resize(groups, 0);
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            self.counts[group as usize] = 0;
        }
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> Result<Failures> {
        self.add(groups, arguments, 1);
        Ok(Failures::new())
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        let counts = groups.iter().map(|&group| self.counts[group as usize]);
        Ok(Values::all(Arc::new(Int64Array::from_iter_values(counts))))
    }

    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(groups)?.column])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        for (&group, &count) in groups
            .iter()
            .zip(states[0].as_primitive::<Int64Type>().values())
        {
            self.counts[group as usize] += count;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.counts.capacity() * 8
    }

    fn scan(&mut self, groups: &[u32], arguments: &[ArrayRef], _: &[OrderKey]) -> Result<Values> {
        let mut values = Vec::with_capacity(groups.len());
        for (row, &group) in groups.iter().enumerate() {
            let counted = arguments.iter().all(|argument| argument.is_valid(row));
            let count = &mut self.counts[group as usize];
            *count += i64::from(counted);
            values.push(*count);
        }
        Ok(Values::all(Arc::new(Int64Array::from(values))))
    }
}

impl Retract for Count {
    fn retract(&mut self, groups: &[u32], arguments: &[ArrayRef]) -> Result<()> {
        self.add(groups, arguments, -1);
        Ok(())
    }
}
