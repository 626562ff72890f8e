//! FIRST_VALUE and LAST_VALUE, by (event time, partition, position) and not by arrival (I1).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Int64Array, UInt32Array, UInt64Array};
use arrow_row::{RowConverter, SortField};
use arrow_schema::DataType;

use super::{Accumulator, Failures, OrderKey, Values};
use crate::error::Result;

/// The value of the row that is first or last. Rows without an order of their own (made by a stateful
/// operator, with equal event time) are ordered by their values, the smallest first, so that the answer
/// doesn't depend on arrival.
pub struct FirstLast {
    last: bool,
    ignore_nulls: bool,
    converter: RowConverter,
    best: Vec<Option<(OrderKey, Box<[u8]>)>>,
}

impl FirstLast {
    /// FIRST_VALUE or LAST_VALUE over values of type `of`.
    pub fn new(last: bool, ignore_nulls: bool, data_type: &DataType) -> Result<FirstLast> {
        let converter = RowConverter::new(vec![SortField::new(data_type.clone())])?;
        Ok(FirstLast {
            last,
            ignore_nulls,
            converter,
            best: Vec::new(),
        })
    }

    fn offer(&mut self, group: u32, key: OrderKey, value: &[u8]) {
        let best = &mut self.best[group as usize];
        let better = best.as_ref().is_none_or(|(best_key, best_value)| {
            let (candidate, present) = ((key, value), (*best_key, best_value.as_ref()));
            if self.last {
                candidate > present
            } else {
                candidate < present
            }
        });
        if better {
            *best = Some((key, value.into()));
        }
    }
}

/// The column of encoded values, NULL for missing ones; `decode` makes a column of the values that are
/// present.
pub fn spread<'a>(
    values: impl Iterator<Item = Option<&'a [u8]>>,
    decode: impl FnOnce(&[&'a [u8]]) -> Result<Vec<ArrayRef>>,
) -> Result<ArrayRef> {
    let values = values.collect::<Vec<_>>();
    let present = values.iter().copied().flatten().collect::<Vec<_>>();
    let column = decode(&present)?.remove(0);
    if values.iter().all(Option::is_some) {
        return Ok(column);
    }
    // Spreads the present values out; absent ones are NULL.
    let mut next = 0u32;
    let indices = values
        .iter()
        .map(|value| {
            value.map(|_| {
                next += 1;
                next - 1
            })
        })
        .collect::<UInt32Array>();
    Ok(arrow_select::take::take(&column, &indices, None)?)
}

impl Accumulator for FirstLast {
    fn resize(&mut self, groups: usize) {
        self.best.resize(groups, None);
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            self.best[group as usize] = None;
        }
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        order: &[OrderKey],
    ) -> Result<Failures> {
        let rows = self.converter.convert_columns(&arguments[..1])?;
        for (row, &group) in groups.iter().enumerate() {
            if !(self.ignore_nulls && arguments[0].is_null(row)) {
                self.offer(group, order[row], rows.row(row).as_ref());
            }
        }
        Ok(Failures::new())
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        let values = groups.iter().map(|&group| {
            self.best[group as usize]
                .as_ref()
                .map(|(_, value)| value.as_ref())
        });
        let parser = self.converter.parser();
        let column = spread(values, |present| {
            let present = present.iter().map(|value| parser.parse(value));
            Ok(self.converter.convert_rows(present)?)
        });
        Ok(Values::all(column?))
    }

    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let key = |group: &u32| self.best[*group as usize].as_ref().map(|(key, _)| *key);
        let times = groups
            .iter()
            .map(|g| key(g).map(|k| k.0))
            .collect::<Int64Array>();
        let partitions = groups
            .iter()
            .map(|g| key(g).map(|k| k.1))
            .collect::<UInt32Array>();
        let positions = groups
            .iter()
            .map(|g| key(g).map(|k| k.2))
            .collect::<UInt64Array>();
        Ok(vec![
            self.evaluate(groups)?.column,
            Arc::new(times),
            Arc::new(partitions),
            Arc::new(positions),
        ])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        let rows = self.converter.convert_columns(&states[..1])?;
        let times = states[1].as_primitive::<Int64Type>();
        let partitions = states[2].as_primitive::<UInt32Type>();
        let positions = states[3].as_primitive::<UInt64Type>();
        for (row, &group) in groups
            .iter()
            .enumerate()
            .filter(|&(row, _)| times.is_valid(row))
        {
            let key = (
                times.value(row),
                partitions.value(row),
                positions.value(row),
            );
            self.offer(group, key, rows.row(row).as_ref());
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.best.capacity() * 40
            + self
                .best
                .iter()
                .flatten()
                .map(|(_, value)| value.len())
                .sum::<usize>()
    }
}
