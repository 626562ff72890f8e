//! SUM and AVG that can retract rows.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal256Type, Float64Type, Int64Type};
use arrow_array::{ArrayRef, Decimal256Array, Float64Array, Int64Array};
use arrow_buffer::i256;
use arrow_schema::DataType;

use crate::accumulator::sum::{EXACT_PRECISION, exact_values, for_each_exact, for_each_float};
use crate::accumulator::{Accumulator, Failures, OrderKey, Retract, Values, unsupported};
use crate::error::Result;

/// Sums, with the number of values in each. Integers and decimals are exact. For doubles, infinities and
/// NaN are counted separately from the sum, because subtraction can't undo them; a sum without values is
/// 0 again, whatever rounding has left.
pub struct Sums {
    /// The type of the sum; `None` for the average.
    to: Option<DataType>,
    groups: Vec<Sum>,
}

#[derive(Default, Clone, Copy)]
struct Sum {
    count: i64,
    exact: i256,
    float: f64,
    infinite: i64,
    negative_infinite: i64,
    nan: i64,
}

impl Sum {
    fn add_float(&mut self, value: f64, sign: i64) {
        self.count += sign;
        match value {
            value if value.is_nan() => self.nan += sign,
            f64::INFINITY => self.infinite += sign,
            f64::NEG_INFINITY => self.negative_infinite += sign,
            value => self.float += value * sign as f64,
        }
        if self.count == 0 {
            self.float = 0.0;
        }
    }

    fn add_exact(&mut self, value: i128, sign: i64) {
        self.count += sign;
        let value = i256::from_i128(value);
        self.exact = match sign {
            1 => self.exact.wrapping_add(value),
            _ => self.exact.wrapping_sub(value),
        };
    }

    fn merge(&mut self, other: &Sum) {
        self.count += other.count;
        self.exact = self.exact.wrapping_add(other.exact);
        self.float += other.float;
        self.infinite += other.infinite;
        self.negative_infinite += other.negative_infinite;
        self.nan += other.nan;
    }

    /// The exact part: sums of 64-bit integers fit into 128 bits.
    fn whole(&self) -> f64 {
        self.exact.to_i128().map_or(f64::NAN, |sum| sum as f64)
    }

    fn float(&self) -> f64 {
        match (self.nan, self.infinite, self.negative_infinite) {
            (0, 0, 0) => self.float,
            (0, _, 0) => f64::INFINITY,
            (0, 0, _) => f64::NEG_INFINITY,
            _ => f64::NAN,
        }
    }
}

impl Sums {
    /// SUM with result type `to`.
    pub fn sum(to: &DataType) -> Result<Sums> {
        match to {
            DataType::Int64 | DataType::UInt64 | DataType::Float64 | DataType::Decimal128(_, _) => {
                Ok(Sums {
                    to: Some(to.clone()),
                    groups: Vec::new(),
                })
            }
            other => Err(unsupported("SUM", other)),
        }
    }

    /// AVG of integers or doubles, as a double.
    pub fn average() -> Sums {
        Sums {
            to: None,
            groups: Vec::new(),
        }
    }

    fn add(&mut self, groups: &[u32], arguments: &[ArrayRef], sign: i64) -> Result<()> {
        let column = &arguments[0];
        let sums = &mut self.groups;
        if column.data_type().is_floating() {
            return for_each_float(column, |row, value| {
                sums[groups[row] as usize].add_float(value, sign);
            });
        }
        if self.to.is_none() && column.data_type().is_decimal() {
            // Its digits without its scale would give a wrong average.
            return Err(unsupported("AVG", column.data_type()));
        }
        for_each_exact(column, |row, value| {
            sums[groups[row] as usize].add_exact(value, sign);
        })
    }
}

impl Accumulator for Sums {
    fn resize(&mut self, groups: usize) {
        self.groups.resize(groups, Sum::default());
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            self.groups[group as usize] = Sum::default();
        }
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> Result<Failures> {
        self.add(groups, arguments, 1)?;
        Ok(Failures::new())
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        let sums = groups.iter().map(|&group| &self.groups[group as usize]);
        let sums = sums.map(|sum| (sum.count > 0).then_some(sum));
        Ok(match &self.to {
            None => Values::all(Arc::new(
                sums.map(|sum| sum.map(|sum| (sum.whole() + sum.float()) / sum.count as f64))
                    .collect::<Float64Array>(),
            )),
            Some(DataType::Float64) => Values::all(Arc::new(
                sums.map(|sum| sum.map(Sum::float))
                    .collect::<Float64Array>(),
            )),
            Some(to) => exact_values(to, sums.map(|sum| sum.map(|sum| sum.exact))),
        })
    }

    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let sums = groups.iter().map(|&group| self.groups[group as usize]);
        let sums = sums.collect::<Vec<Sum>>();
        let exact = sums
            .iter()
            .map(|sum| Some(sum.exact))
            .collect::<Decimal256Array>();
        let number = |value: fn(&Sum) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(sums.iter().map(value)))
        };
        Ok(vec![
            number(|sum| sum.count),
            Arc::new(exact.with_precision_and_scale(EXACT_PRECISION, 0)?),
            Arc::new(Float64Array::from_iter_values(
                sums.iter().map(|sum| sum.float),
            )),
            number(|sum| sum.infinite),
            number(|sum| sum.negative_infinite),
            number(|sum| sum.nan),
        ])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        let number = |index: usize| states[index].as_primitive::<Int64Type>();
        let exact = states[1].as_primitive::<Decimal256Type>();
        let float = states[2].as_primitive::<Float64Type>();
        for (row, &group) in groups.iter().enumerate() {
            self.groups[group as usize].merge(&Sum {
                count: number(0).value(row),
                exact: exact.value(row),
                float: float.value(row),
                infinite: number(3).value(row),
                negative_infinite: number(4).value(row),
                nan: number(5).value(row),
            });
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Sum>()
    }
}

impl Retract for Sums {
    fn retract(&mut self, groups: &[u32], arguments: &[ArrayRef]) -> Result<()> {
        self.add(groups, arguments, -1)
    }
}
