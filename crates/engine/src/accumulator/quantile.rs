//! PERCENTILE_CONT and MEDIAN of floating-point numbers. All values are kept until the result is
//! requested.
//!
//! The quantile of fraction `p` of `n` sorted values is at position `p · (n − 1)`, counted from 0;
//! between two values it is interpolated. `p · (n − 1)` is computed with its rounding error, so the
//! result is right to its last bits: 0, 1e11, 2e11 and 3e11 at 0.95 give 2.85e11.

use std::sync::Arc;

use arrow_array::builder::{Float64Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, Float64Array};
use arrow_schema::DataType;

use super::{Accumulator, Failures, OrderKey, Values, unsupported};
use crate::error::{Error, Result};
use crate::key::Comparable;

/// A quantile of all values of each group.
pub struct Quantile {
    fraction: f64,
    data_type: DataType,
    /// The values that are not NULL, with -0 as 0 and one NaN, the greatest. In any order.
    groups: Vec<Vec<f64>>,
}

impl Quantile {
    /// The quantile of `fraction`, between 0 and 1, of `Float32` or `Float64` values.
    pub fn new(fraction: f64, data_type: &DataType) -> Result<Quantile> {
        assert!(
            (0.0..=1.0).contains(&fraction),
            "the planner refuses others"
        );
        match data_type {
            DataType::Float32 | DataType::Float64 => Ok(Quantile {
                fraction,
                data_type: data_type.clone(),
                groups: Vec::new(),
            }),
            other => Err(unsupported("quantile", other)),
        }
    }
}

/// The quantile of `fraction`; `None` without values. Changes the order of the values.
fn quantile(values: &mut [f64], fraction: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let last_f = last as f64;
    let place = fraction * last_f;
    // The rounding error of the product.
    let error = fraction.mul_add(last_f, -place);
    let lower = (place.floor() as usize).min(last);
    let weight = (place - lower as f64) + error;
    let (_, &mut low, above) = values.select_nth_unstable_by(lower, f64::total_cmp);
    // If the index was rounded up, the weight is slightly below zero.
    if weight <= 0.0 {
        return Some(low);
    }
    let high = above.iter().copied().min_by(f64::total_cmp);
    Some(high.map_or(low, |high| between(low, high, weight)))
}

/// The value at `weight`, between 0 and 1, on the way from one value to another that is not less.
fn between(low: f64, high: f64, weight: f64) -> f64 {
    let distance = high - low;
    if low == high {
        low
    } else if distance.is_finite() {
        distance.mul_add(weight, low).clamp(low, high)
    } else {
        // One is infinite or NaN, or their distance exceeds the largest number.
        low * (1.0 - weight) + high * weight
    }
}

impl Accumulator for Quantile {
    fn resize(&mut self, groups: usize) {
        self.groups.resize_with(groups, Vec::new);
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            self.groups[group as usize] = Vec::new();
        }
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> Result<Failures> {
        let values = [arrow_cast::cast(&arguments[0], &DataType::Float64)?];
        let values = Comparable::new(&values);
        let values = values.columns()[0].as_primitive::<Float64Type>();
        for (value, &group) in values.iter().zip(groups) {
            self.groups[group as usize].extend(value);
        }
        Ok(Failures::new())
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        let fraction = self.fraction;
        let values = groups.iter();
        let values = values.map(|&group| quantile(&mut self.groups[group as usize], fraction));
        let column: ArrayRef = Arc::new(values.collect::<Float64Array>());
        Ok(Values::all(arrow_cast::cast(&column, &self.data_type)?))
    }

    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let mut lists = ListBuilder::new(Float64Builder::new());
        for &group in groups {
            lists.values().append_slice(&self.groups[group as usize]);
            lists.append(true);
        }
        Ok(vec![Arc::new(lists.finish())])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        let wrong = || Error::new("snapshot of a quantile", "its values are not numbers");
        let lists = states[0].as_list_opt::<i32>().ok_or_else(wrong)?;
        let values = lists.values();
        let values = values.as_primitive_opt::<Float64Type>().ok_or_else(wrong)?;
        for (row, &group) in groups.iter().enumerate() {
            let of_row =
                lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize;
            self.groups[group as usize].extend_from_slice(&values.values()[of_row]);
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        let values = self.groups.iter().map(|values| values.capacity() * 8);
        self.groups.capacity() * size_of::<Vec<f64>>() + values.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64], fraction: f64) -> Option<f64> {
        quantile(&mut values.to_vec(), fraction)
    }

    #[test]
    fn between_two_values_it_is_exact() {
        assert_eq!(of(&[3e11, 0.0, 2e11, 1e11], 0.95), Some(2.85e11));
        assert_eq!(of(&[1.0, 2.0, 3.0, 4.0], 0.5), Some(2.5));
        assert_eq!(of(&[10.0, 20.0], 0.9999999), Some(19.999999));
        // 0.7 · 10 is 7, but the double 0.7 is slightly less.
        let ten = (0..=10).map(f64::from).collect::<Vec<_>>();
        assert_eq!(of(&ten, 0.7), Some(7.0));
        assert_eq!(of(&ten, 0.3), Some(3.0));
    }

    #[test]
    fn at_the_ends_it_is_the_least_and_the_greatest() {
        assert_eq!(of(&[], 0.5), None);
        assert_eq!(of(&[7.0], 0.25), Some(7.0));
        assert_eq!(of(&[3.0, 1.0, 2.0], 0.0), Some(1.0));
        assert_eq!(of(&[3.0, 1.0, 2.0], 1.0), Some(3.0));
    }

    #[test]
    fn numbers_at_the_limits_of_doubles_neither_overflow_nor_vanish() {
        let infinite = f64::INFINITY;
        assert_eq!(of(&[f64::MAX, f64::MAX], 0.5), Some(f64::MAX));
        assert_eq!(of(&[-f64::MAX, f64::MAX], 0.5), Some(0.0));
        assert_eq!(of(&[f64::MAX / 2.0, f64::MAX], 0.5), Some(f64::MAX * 0.75));
        assert_eq!(of(&[-infinite, 1.0], 0.5), Some(-infinite));
        assert_eq!(of(&[infinite, infinite], 0.5), Some(infinite));
        assert!(of(&[-infinite, infinite], 0.5).unwrap().is_nan());
        assert_eq!(
            of(&[f64::NAN, 1.0, 2.0], 0.5),
            Some(2.0),
            "NaN is the greatest"
        );
        assert_eq!(of(&[5e-324, 1e-323], 0.5), Some(1e-323));
    }
}
