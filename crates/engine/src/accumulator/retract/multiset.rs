//! Functions over all the values of a group, each kept with a count: MIN and MAX are its ends; other
//! functions are recomputed from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{BinaryBuilder, Int64Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::DataType;

use crate::accumulator::{
    Accumulator, AggregateFunction, Failures, OrderKey, Retract, Values, first_last,
};
use crate::error::{Error, Result};
use crate::key::{Comparable, KeyEncoder};

/// A function over values that are kept.
pub struct Multiset {
    function: AggregateFunction,
    encoder: KeyEncoder,
    /// For each group, the values by their encoding, which sorts as they do, with their counts.
    groups: Vec<BTreeMap<Box<[u8]>, i64>>,
    /// Whether repeated values count once.
    is_distinct: bool,
    bytes: usize,
}

/// The memory of a value in addition to its bytes.
const VALUE_BYTES: usize = 48;

/// The most values that are copied at once for a function.
const ROWS_AT_ONCE: usize = 65_536;

impl Multiset {
    /// The function `function` over arguments of the given types.
    pub fn new(function: AggregateFunction, arguments: &[DataType]) -> Result<Multiset> {
        Ok(Multiset {
            function,
            encoder: KeyEncoder::new(arguments.iter().cloned())?,
            groups: Vec::new(),
            is_distinct: false,
            bytes: 0,
        })
    }

    /// The function `function` over distinct arguments.
    pub fn distinct(function: AggregateFunction, arguments: &[DataType]) -> Result<Multiset> {
        let all = Multiset::new(function, arguments)?;
        Ok(Multiset {
            is_distinct: true,
            ..all
        })
    }

    fn add(&mut self, group: u32, value: &[u8], times: i64) {
        let values = &mut self.groups[group as usize];
        match values.get_mut(value) {
            Some(count) => {
                *count += times;
                if *count == 0 {
                    values.remove(value);
                    self.bytes = self.bytes.saturating_sub(value.len() + VALUE_BYTES);
                }
            }
            None if times != 0 => {
                values.insert(value.into(), times);
                self.bytes += value.len() + VALUE_BYTES;
            }
            None => {}
        }
    }

    fn add_rows(&mut self, groups: &[u32], arguments: &[ArrayRef], times: i64) -> Result<()> {
        if arguments.is_empty() {
            groups.iter().for_each(|&group| self.add(group, &[], times));
            return Ok(());
        }
        let skips_null =
            self.is_distinct || matches!(self.function, AggregateFunction::Extreme { .. });
        let arguments = Comparable::new(arguments);
        let rows = self.encoder.rows(&arguments)?;
        for (row, &group) in groups.iter().enumerate() {
            if !(skips_null && arguments.has_null(row)) {
                self.add(group, rows.row(row).as_ref(), times);
            }
        }
        Ok(())
    }

    /// The function over the values of each of `groups`.
    fn computed(&self, groups: &[u32]) -> Result<Values> {
        let mut accumulator = self.function.accumulator()?;
        accumulator.resize(groups.len());
        let (mut copies, mut of_groups) = (Vec::new(), Vec::new());
        let mut failed = Failures::new();
        let mut add = |copies: &mut Vec<&[u8]>, of_groups: &mut Vec<u32>| -> Result<()> {
            let arguments = self.encoder.decode(copies.drain(..))?;
            let refused = accumulator.update(of_groups, &arguments, &[])?;
            let refused = refused.into_iter();
            failed.extend(refused.map(|(row, reason)| (of_groups[row] as usize, reason)));
            of_groups.clear();
            Ok(())
        };
        for (number, &group) in groups.iter().enumerate() {
            for (value, &count) in &self.groups[group as usize] {
                let mut left = if self.is_distinct {
                    count.min(1)
                } else {
                    count
                };
                while left > 0 {
                    let times = left.min((ROWS_AT_ONCE - copies.len()) as i64);
                    copies.extend(std::iter::repeat_n(&value[..], times as usize));
                    of_groups.extend(std::iter::repeat_n(number as u32, times as usize));
                    left -= times;
                    if copies.len() == ROWS_AT_ONCE {
                        add(&mut copies, &mut of_groups)?;
                    }
                }
            }
        }
        if !copies.is_empty() {
            add(&mut copies, &mut of_groups)?;
        }
        let groups = (0..groups.len() as u32).collect::<Vec<u32>>();
        let mut values = accumulator.evaluate(&groups)?;
        // A value of the others alone would be wrong.
        values.failed.extend(failed);
        Ok(values)
    }
}

impl Accumulator for Multiset {
    fn resize(&mut self, groups: usize) {
        for gone in self.groups.drain(groups.min(self.groups.len())..) {
            let values = gone.keys().map(|value| value.len() + VALUE_BYTES);
            self.bytes = self.bytes.saturating_sub(values.sum());
        }
        self.groups.resize_with(groups, BTreeMap::new);
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            let gone = std::mem::take(&mut self.groups[group as usize]);
            let values = gone.keys().map(|value| value.len() + VALUE_BYTES);
            self.bytes = self.bytes.saturating_sub(values.sum());
        }
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> Result<Failures> {
        self.add_rows(groups, arguments, 1)?;
        Ok(Failures::new())
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        if let AggregateFunction::Extreme { largest, .. } = self.function {
            let ends = groups.iter().map(|&group| {
                let values = &self.groups[group as usize];
                let end = match largest {
                    true => values.last_key_value(),
                    false => values.first_key_value(),
                };
                end.map(|(value, _)| value.as_ref())
            });
            let column =
                first_last::spread(ends, |present| self.encoder.decode(present.iter().copied()));
            return Ok(Values::all(column?));
        }
        if groups.is_empty() {
            let empty = arrow_array::new_empty_array(&self.function.data_type());
            return Ok(Values::all(empty));
        }
        self.computed(groups)
    }

    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let mut values = ListBuilder::new(BinaryBuilder::new());
        let mut counts = ListBuilder::new(Int64Builder::new());
        for &group in groups {
            for (value, &count) in &self.groups[group as usize] {
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
        for (row, &group) in groups.iter().enumerate() {
            let (values, counts) = (values.value(row), counts.value(row));
            let wrong = || Error::new("snapshot of an aggregate", "its values have no counts");
            let values = values.as_binary_opt::<i32>().ok_or_else(wrong)?;
            let counts = counts.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
            for (value, &count) in values.iter().flatten().zip(counts.values()) {
                self.add(group, value, count);
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.bytes + self.groups.capacity() * size_of::<BTreeMap<Box<[u8]>, i64>>()
    }
}

impl Retract for Multiset {
    fn retract(&mut self, groups: &[u32], arguments: &[ArrayRef]) -> Result<()> {
        self.add_rows(groups, arguments, -1)
    }
}
