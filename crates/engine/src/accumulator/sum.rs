//! SUM and AVG.

use std::fmt::Display;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{
    Array, ArrayRef, Decimal128Array, Decimal256Array, Float64Array, Int64Array, UInt64Array,
};
use arrow_buffer::{NullBuffer, i256};
use arrow_schema::{DECIMAL128_MAX_PRECISION, DataType};

use super::{Accumulator, Failures, OrderKey, Values, unsupported};
use crate::error::Result;

/// The digits of a Decimal256, which holds an exact sum of decimals.
pub(super) const EXACT_PRECISION: u8 = 76;

/// The accumulator of SUM with result type `to`.
pub fn sum(to: &DataType) -> Result<Box<dyn Accumulator>> {
    match to {
        DataType::Int64 | DataType::UInt64 => Ok(Box::new(ExactSum::<i128>::new(to))),
        DataType::Decimal128(_, _) => Ok(Box::new(ExactSum::<i256>::new(to))),
        DataType::Float64 => Ok(Box::new(FloatSum::default())),
        other => Err(unsupported("SUM", other)),
    }
}

/// Calls `add(row, value)` for each value that is not NULL, as an exact integer.
pub(super) fn for_each_exact(column: &ArrayRef, mut add: impl FnMut(usize, i128)) -> Result<()> {
    macro_rules! values {
        ($type:ty) => {{
            let array = column.as_primitive::<$type>();
            if array.null_count() == 0 {
                array
                    .values()
                    .iter()
                    .enumerate()
                    .for_each(|(row, &v)| add(row, i128::from(v)));
            } else {
                for row in (0..array.len()).filter(|&row| array.is_valid(row)) {
                    add(row, i128::from(array.value(row)));
                }
            }
        }};
    }
    match column.data_type() {
        DataType::Int8 => values!(Int8Type),
        DataType::Int16 => values!(Int16Type),
        DataType::Int32 => values!(Int32Type),
        DataType::Int64 => values!(Int64Type),
        DataType::UInt8 => values!(UInt8Type),
        DataType::UInt16 => values!(UInt16Type),
        DataType::UInt32 => values!(UInt32Type),
        DataType::UInt64 => values!(UInt64Type),
        DataType::Decimal128(_, _) => values!(Decimal128Type),
        other => return Err(unsupported("SUM", other)),
    }
    Ok(())
}

/// Exact sums as a column of type `to`, and which of them don't fit.
pub(super) fn exact_values<W: Wide>(
    to: &DataType,
    sums: impl Iterator<Item = Option<W>>,
) -> Values {
    let mut failed = Vec::new();
    let limit = match to {
        DataType::Decimal128(precision, _) => 10u128.pow(u32::from(*precision)) - 1,
        _ => 0,
    };
    let fits = |&value: &i128| match to {
        DataType::Int64 => i64::try_from(value).is_ok(),
        DataType::UInt64 => u64::try_from(value).is_ok(),
        _ => value.unsigned_abs() <= limit,
    };
    let values = sums.enumerate().map(|(index, sum)| {
        let sum = sum?;
        let value = sum.narrowed().filter(fits);
        if value.is_none() {
            let room = match to {
                DataType::Decimal128(precision, _) => format!("{precision} digits"),
                _ => "64 bits".to_string(),
            };
            let reason = format!("SUM overflows: {sum} needs more than {room}");
            failed.push((index, reason));
        }
        value
    });
    let values = values.collect::<Vec<Option<i128>>>();
    let column: ArrayRef = match to {
        DataType::Int64 => {
            let values = values.iter().map(|value| value.map(|value| value as i64));
            Arc::new(values.collect::<Int64Array>())
        }
        DataType::UInt64 => {
            let values = values.iter().map(|value| value.map(|value| value as u64));
            Arc::new(values.collect::<UInt64Array>())
        }
        to => Arc::new(Decimal128Array::from(values).with_data_type(to.clone())),
    };
    Values { column, failed }
}

/// An integer that holds exact sums. 128 bits hold 2^64 values of 64 bits; decimals of 38 digits use up to
/// 127 bits each, so their carry is counted in 256 bits.
pub(super) trait Wide: Copy + Default + Display + Send + 'static {
    /// This and a value.
    fn plus(self, value: i128) -> Self;

    /// The sum, if it fits.
    fn narrowed(self) -> Option<i128>;

    /// Sums as a column of a snapshot.
    fn column(sums: Vec<Self>, nulls: Option<NullBuffer>) -> Result<ArrayRef>;

    /// Calls `add(row, sum)` for each sum of a snapshot's column that is not NULL.
    fn for_each(column: &ArrayRef, add: impl FnMut(usize, Self)) -> Result<()>;

    /// Both sums.
    fn and(self, other: Self) -> Self;
}

impl Wide for i128 {
    #[inline]
    fn plus(self, value: i128) -> i128 {
        self.wrapping_add(value)
    }

    fn narrowed(self) -> Option<i128> {
        Some(self)
    }

    fn column(sums: Vec<i128>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let sums = Decimal128Array::new(sums.into(), nulls);
        let sums = sums.with_precision_and_scale(DECIMAL128_MAX_PRECISION, 0)?;
        Ok(Arc::new(sums))
    }

    fn for_each(column: &ArrayRef, mut add: impl FnMut(usize, i128)) -> Result<()> {
        let sums = column.as_primitive_opt::<Decimal128Type>();
        let sums = sums.ok_or_else(|| unsupported("SUM", column.data_type()))?;
        let sums = sums.iter().enumerate();
        sums.for_each(|(row, sum)| sum.into_iter().for_each(|sum| add(row, sum)));
        Ok(())
    }

    fn and(self, other: i128) -> i128 {
        self.wrapping_add(other)
    }
}

impl Wide for i256 {
    #[inline]
    fn plus(self, value: i128) -> i256 {
        let (low, high) = self.to_parts();
        // A 128-bit value onto a 256-bit sum: add with carry, sign extended.
        let (low, carry) = low.overflowing_add(value as u128);
        let high = high
            .wrapping_add(value >> 127)
            .wrapping_add(i128::from(carry));
        i256::from_parts(low, high)
    }

    fn narrowed(self) -> Option<i128> {
        self.to_i128()
    }

    fn column(sums: Vec<i256>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let sums = Decimal256Array::new(sums.into(), nulls);
        Ok(Arc::new(sums.with_precision_and_scale(EXACT_PRECISION, 0)?))
    }

    fn for_each(column: &ArrayRef, mut add: impl FnMut(usize, i256)) -> Result<()> {
        let sums = column.as_primitive_opt::<Decimal256Type>();
        let sums = sums.ok_or_else(|| unsupported("SUM", column.data_type()))?;
        let sums = sums.iter().enumerate();
        sums.for_each(|(row, sum)| sum.into_iter().for_each(|sum| add(row, sum)));
        Ok(())
    }

    fn and(self, other: i256) -> i256 {
        self.wrapping_add(other)
    }
}

/// A column of a snapshot as one of type `to`: earlier versions stored sums of integers in 256 bits. `None`
/// if its type is another.
pub(super) fn as_stored_now(state: &ArrayRef, to: &DataType) -> Option<ArrayRef> {
    if state.data_type() == to {
        return Some(Arc::clone(state));
    }
    let sums = state.as_primitive_opt::<Decimal256Type>()?;
    if *to != DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0) {
        return None;
    }
    let sums = sums.iter().map(|sum| sum.map(i256::as_i128)).collect();
    let (_, sums, nulls) = Decimal128Array::into_parts(sums);
    i128::column(sums.to_vec(), nulls).ok()
}

/// The sum of integers or decimals.
struct ExactSum<W> {
    to: DataType,
    sums: Vec<W>,
    seen: Vec<bool>,
}

impl<W: Wide> ExactSum<W> {
    fn new(to: &DataType) -> ExactSum<W> {
        ExactSum {
            to: to.clone(),
            sums: Vec::new(),
            seen: Vec::new(),
        }
    }
}

impl<W: Wide> Accumulator for ExactSum<W> {
    fn resize(&mut self, groups: usize) {
        self.sums.resize(groups, W::default());
        self.seen.resize(groups, false);
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            self.sums[group as usize] = W::default();
            self.seen[group as usize] = false;
        }
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> Result<Failures> {
        for_each_exact(&arguments[0], |row, value| {
            let group = groups[row] as usize;
            self.sums[group] = self.sums[group].plus(value);
            self.seen[group] = true;
        })?;
        Ok(Failures::new())
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        let sums = groups.iter().map(|&group| group as usize);
        let sums = sums.map(|group| self.seen[group].then(|| self.sums[group]));
        Ok(exact_values(&self.to, sums))
    }

    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let sums = groups.iter().map(|&group| self.sums[group as usize]);
        let sums = sums.collect::<Vec<W>>();
        let seen = groups.iter().map(|&group| self.seen[group as usize]);
        let nulls = match seen.clone().all(|seen| seen) {
            true => None,
            false => Some(NullBuffer::from_iter(seen)),
        };
        Ok(vec![W::column(sums, nulls)?])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        W::for_each(&states[0], |row, sum| {
            let group = groups[row] as usize;
            self.sums[group] = self.sums[group].and(sum);
            self.seen[group] = true;
        })
    }

    fn bytes(&self) -> usize {
        self.sums.capacity() * (size_of::<W>() + 1)
    }
}

/// Calls `add(row, value)` for each value that is not NULL, as a double.
pub(super) fn for_each_float(column: &ArrayRef, mut add: impl FnMut(usize, f64)) -> Result<()> {
    match column.data_type() {
        DataType::Float64 => {
            let array = column.as_primitive::<Float64Type>();
            for row in (0..array.len()).filter(|&row| array.is_valid(row)) {
                add(row, array.value(row));
            }
        }
        DataType::Float32 => {
            let array = column.as_primitive::<Float32Type>();
            for row in (0..array.len()).filter(|&row| array.is_valid(row)) {
                add(row, f64::from(array.value(row)));
            }
        }
        other => return Err(unsupported("SUM", other)),
    }
    Ok(())
}

/// The sum of doubles, in order of arrival.
#[derive(Default)]
struct FloatSum {
    sums: Vec<f64>,
    seen: Vec<bool>,
}

impl Accumulator for FloatSum {
    fn resize(&mut self, groups: usize) {
        self.sums.resize(groups, 0.0);
        self.seen.resize(groups, false);
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            self.sums[group as usize] = 0.0;
            self.seen[group as usize] = false;
        }
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> Result<Failures> {
        for_each_float(&arguments[0], |row, value| {
            self.sums[groups[row] as usize] += value;
            self.seen[groups[row] as usize] = true;
        })?;
        Ok(Failures::new())
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        let sums = groups
            .iter()
            .map(|&group| self.seen[group as usize].then(|| self.sums[group as usize]))
            .collect::<Float64Array>();
        Ok(Values::all(Arc::new(sums)))
    }

    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(groups)?.column])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        self.update(groups, states, &[])?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.sums.capacity() * 9
    }
}

/// AVG as a double. Integers are summed exactly and divided once, so that their average doesn't depend on
/// order.
#[derive(Default)]
pub struct Average {
    exact: Vec<i128>,
    floats: Vec<f64>,
    counts: Vec<i64>,
}

impl Accumulator for Average {
    fn resize(&mut self, groups: usize) {
        self.exact.resize(groups, 0);
        self.floats.resize(groups, 0.0);
        self.counts.resize(groups, 0);
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            let group = group as usize;
            (self.exact[group], self.floats[group], self.counts[group]) = (0, 0.0, 0);
        }
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> Result<Failures> {
        if arguments[0].data_type().is_floating() {
            for_each_float(&arguments[0], |row, value| {
                self.floats[groups[row] as usize] += value;
                self.counts[groups[row] as usize] += 1;
            })?;
        } else if arguments[0].data_type().is_decimal() {
            // Its digits without its scale would give a wrong average.
            return Err(unsupported("AVG", arguments[0].data_type()));
        } else {
            for_each_exact(&arguments[0], |row, value| {
                self.exact[groups[row] as usize] += value;
                self.counts[groups[row] as usize] += 1;
            })?;
        }
        Ok(Failures::new())
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        let averages = groups.iter().map(|&group| {
            let group = group as usize;
            let sum = self.exact[group] as f64 + self.floats[group];
            (self.counts[group] > 0).then(|| sum / self.counts[group] as f64)
        });
        Ok(Values::all(Arc::new(averages.collect::<Float64Array>())))
    }

    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let exact = groups
            .iter()
            .map(|&group| Some(i256::from_i128(self.exact[group as usize])));
        let exact = exact.collect::<Decimal256Array>();
        let floats = groups.iter().map(|&group| self.floats[group as usize]);
        let counts = groups.iter().map(|&group| self.counts[group as usize]);
        Ok(vec![
            Arc::new(exact.with_precision_and_scale(EXACT_PRECISION, 0)?),
            Arc::new(Float64Array::from_iter_values(floats)),
            Arc::new(Int64Array::from_iter_values(counts)),
        ])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        let exact = states[0].as_primitive::<Decimal256Type>();
        let floats = states[1].as_primitive::<Float64Type>();
        let counts = states[2].as_primitive::<Int64Type>();
        for (row, &group) in groups.iter().enumerate() {
            let group = group as usize;
            self.exact[group] += exact.value(row).to_i128().unwrap_or_default();
            self.floats[group] += floats.value(row);
            self.counts[group] += counts.value(row);
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.counts.capacity() * 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accumulator::{AggregateFunction, merge_states};
    use crate::testing::shown;

    #[test]
    fn a_sum_of_integers_reads_what_earlier_versions_stored_in_256_bits() {
        let function = AggregateFunction::Sum {
            to: DataType::Int64,
        };
        let mut sum = function.accumulator().unwrap();
        sum.resize(2);
        let value: ArrayRef = Arc::new(Int64Array::from(vec![5]));
        sum.update(&[0], &[value], &[(0, 0, 0)]).unwrap();
        let stored = [Some(i256::from_i128(-7)), None].into_iter();
        let stored = stored.collect::<Decimal256Array>();
        let stored: ArrayRef = Arc::new(stored.with_precision_and_scale(76, 0).unwrap());
        merge_states([&mut *sum].into_iter(), &[0, 1], &[stored]).unwrap();
        assert_eq!(
            shown(&sum.evaluate(&[0, 1]).unwrap().column),
            [Some("-2".to_string()), None]
        );
        // The next snapshot has half as many bytes.
        let states = sum.state(&[0, 1]).unwrap();
        assert_eq!(states[0].data_type(), &DataType::Decimal128(38, 0));
        let mut other = function.accumulator().unwrap();
        other.resize(2);
        merge_states([&mut *other].into_iter(), &[0, 1], &states).unwrap();
        assert_eq!(
            shown(&other.evaluate(&[0, 1]).unwrap().column),
            [Some("-2".to_string()), None]
        );
        let wrong: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        assert!(merge_states([&mut *other].into_iter(), &[0], &[wrong]).is_err());
    }
}
