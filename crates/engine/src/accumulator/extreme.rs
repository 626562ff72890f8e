//! MIN and MAX.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, TimeUnit};

use super::{Accumulator, Failures, OrderKey, Values};
use crate::error::Result;
use crate::key::{Comparable, KeyEncoder};

/// The accumulator of MIN or MAX over values of type `of`.
pub fn extreme(largest: bool, data_type: &DataType) -> Result<Box<dyn Accumulator>> {
    macro_rules! primitive {
        ($type:ty) => {
            Box::new(Primitive::<$type> {
                largest,
                data_type: data_type.clone(),
                values: Vec::new(),
                seen: Vec::new(),
            })
        };
    }
    Ok(match data_type {
        DataType::Int32 => primitive!(Int32Type),
        DataType::Int64 => primitive!(Int64Type),
        DataType::Float64 => primitive!(Float64Type),
        DataType::Timestamp(TimeUnit::Millisecond, _) => primitive!(TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => primitive!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => primitive!(TimestampNanosecondType),
        _ => Box::new(Encoded {
            largest,
            encoder: KeyEncoder::new([data_type.clone()])?,
            values: Vec::new(),
        }),
    })
}

/// MIN or MAX of values of fixed width. NaN is the largest double, and -0 equals 0, as in `ORDER BY`.
struct Primitive<T: ArrowPrimitiveType> {
    largest: bool,
    data_type: DataType,
    values: Vec<T::Native>,
    seen: Vec<bool>,
}

impl<T: ArrowPrimitiveType + Send> Accumulator for Primitive<T>
where
    T::Native: arrow_array::ArrowNativeTypeOp,
{
    fn resize(&mut self, groups: usize) {
        self.values.resize(groups, T::Native::default());
        self.seen.resize(groups, false);
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            self.values[group as usize] = T::Native::default();
            self.seen[group as usize] = false;
        }
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> Result<Failures> {
        use arrow_array::ArrowNativeTypeOp;
        let arguments = Comparable::new(&arguments[..1]);
        let column = arguments.columns()[0].as_primitive::<T>();
        let all_valid = column.null_count() == 0;
        for (row, (&group, &value)) in groups.iter().zip(column.values()).enumerate() {
            if !all_valid && column.is_null(row) {
                continue;
            }
            let group = group as usize;
            let best = self.values[group];
            let better = if self.largest {
                value.is_gt(best)
            } else {
                value.is_lt(best)
            };
            if better || !self.seen[group] {
                self.values[group] = value;
                self.seen[group] = true;
            }
        }
        Ok(Failures::new())
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        let values = groups.iter().map(|&group| self.values[group as usize]);
        let values = values.collect::<Vec<T::Native>>();
        let seen = groups.iter().map(|&group| self.seen[group as usize]);
        let nulls = match seen.clone().all(|seen| seen) {
            true => None,
            false => Some(NullBuffer::from_iter(seen)),
        };
        let values = PrimitiveArray::<T>::new(values.into(), nulls);
        Ok(Values::all(Arc::new(
            values.with_data_type(self.data_type.clone()),
        )))
    }

    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(groups)?.column])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        self.update(groups, states, &[])?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.values.capacity() * (std::mem::size_of::<T::Native>() + 1)
    }
}

/// MIN or MAX of values of any type, compared by their `arrow-row` encodings, whose byte order is the
/// values' order.
struct Encoded {
    largest: bool,
    encoder: KeyEncoder,
    values: Vec<Option<Box<[u8]>>>,
}

impl Accumulator for Encoded {
    fn resize(&mut self, groups: usize) {
        self.values.resize(groups, None);
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            self.values[group as usize] = None;
        }
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> Result<Failures> {
        let arguments = Comparable::new(&arguments[..1]);
        let rows = self.encoder.rows(&arguments)?;
        for (row, &group) in groups.iter().enumerate() {
            if arguments.has_null(row) {
                continue;
            }
            let value = rows.row(row);
            let best = &mut self.values[group as usize];
            let better = best.as_deref().is_none_or(|best| {
                if self.largest {
                    value.as_ref() > best
                } else {
                    value.as_ref() < best
                }
            });
            if better {
                *best = Some(value.as_ref().into());
            }
        }
        Ok(Failures::new())
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        let values = groups
            .iter()
            .map(|&group| self.values[group as usize].as_deref());
        let column = super::first_last::spread(values, |present| {
            self.encoder.decode(present.iter().copied())
        });
        Ok(Values::all(column?))
    }

    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(groups)?.column])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        self.update(groups, states, &[])?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.values.capacity() * 16
            + self
                .values
                .iter()
                .flatten()
                .map(|value| value.len())
                .sum::<usize>()
    }
}
