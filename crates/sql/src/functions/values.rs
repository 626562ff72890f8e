//! SQL's values in Rust: the arguments and results of functions.

use std::fmt::Display;
use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, PrimitiveArray, StringViewArray};
use arrow_schema::{DataType, TimeUnit};

/// A TIMESTAMP: microseconds since 1970-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// The microseconds since 1970, in UTC.
    pub micros: i64,
}

/// A type of arguments: `bool`, `i8`, `i16`, `i32`, `i64`, `f32`, `f64`, `&str`, `&[u8]` (BYTES), [`Time`],
/// or an `Option` of these for arguments that may be NULL.
pub trait Argument {
    /// The argument, borrowed from a column.
    type Item<'a>;
    /// The type of the column.
    type Column: Array + 'static;

    /// The column's data type.
    fn data_type() -> DataType;

    /// The value of a row; `None` if it is NULL and the function does not take NULL.
    fn get(column: &Self::Column, row: usize) -> Option<Self::Item<'_>>;
}

/// A type of results: the types of [`Argument`] with `String` for strings and `Vec<u8>` for BYTES, an
/// `Option` of these, or a `Result`, whose error rejects the row.
pub trait Output {
    /// The type of the values in the result's column.
    type Cell: Cell;

    /// The value, NULL, or an error.
    ///
    /// # Errors
    ///
    /// The error that the function has returned.
    fn cell(self) -> Result<Option<Self::Cell>, String>;
}

/// A value of a column.
pub trait Cell: Sized {
    /// The column's type.
    fn data_type() -> DataType;

    /// A column of values.
    fn column(cells: Vec<Option<Self>>) -> ArrayRef;
}

macro_rules! primitive {
    ($($rust:ty => $arrow:ty),*) => {$(
        impl Argument for $rust {
            type Item<'a> = $rust;
            type Column = PrimitiveArray<$arrow>;

            fn data_type() -> DataType {
                <$arrow>::DATA_TYPE
            }

            fn get(column: &Self::Column, row: usize) -> Option<$rust> {
                column.is_valid(row).then(|| column.value(row))
            }
        }

        impl Cell for $rust {
            fn data_type() -> DataType {
                <$arrow>::DATA_TYPE
            }

            fn column(cells: Vec<Option<$rust>>) -> ArrayRef {
                Arc::new(PrimitiveArray::<$arrow>::from_iter(cells))
            }
        }
    )*};
}

primitive!(
    i8 => Int8Type, i16 => Int16Type, i32 => Int32Type, i64 => Int64Type, f32 => Float32Type, f64 => Float64Type
);

impl Argument for bool {
    type Item<'a> = bool;
    type Column = BooleanArray;

    fn data_type() -> DataType {
        DataType::Boolean
    }

    fn get(column: &BooleanArray, row: usize) -> Option<bool> {
        column.is_valid(row).then(|| column.value(row))
    }
}

impl Cell for bool {
    fn data_type() -> DataType {
        DataType::Boolean
    }

    fn column(cells: Vec<Option<bool>>) -> ArrayRef {
        Arc::new(BooleanArray::from(cells))
    }
}

impl Argument for &str {
    type Item<'a> = &'a str;
    type Column = StringViewArray;

    fn data_type() -> DataType {
        DataType::Utf8View
    }

    fn get(column: &StringViewArray, row: usize) -> Option<&str> {
        column.is_valid(row).then(|| column.value(row))
    }
}

impl Cell for String {
    fn data_type() -> DataType {
        DataType::Utf8View
    }

    fn column(cells: Vec<Option<String>>) -> ArrayRef {
        let mut column = StringViewBuilder::with_capacity(cells.len());
        cells
            .iter()
            .for_each(|cell| column.append_option(cell.as_deref()));
        Arc::new(column.finish())
    }
}

impl Argument for &[u8] {
    type Item<'a> = &'a [u8];
    type Column = BinaryArray;

    fn data_type() -> DataType {
        DataType::Binary
    }

    fn get(column: &BinaryArray, row: usize) -> Option<&[u8]> {
        column.is_valid(row).then(|| column.value(row))
    }
}

impl Cell for Vec<u8> {
    fn data_type() -> DataType {
        DataType::Binary
    }

    fn column(cells: Vec<Option<Vec<u8>>>) -> ArrayRef {
        Arc::new(BinaryArray::from_iter(cells))
    }
}

impl Argument for Time {
    type Item<'a> = Time;
    type Column = PrimitiveArray<TimestampMicrosecondType>;

    fn data_type() -> DataType {
        DataType::Timestamp(TimeUnit::Microsecond, None)
    }

    fn get(column: &Self::Column, row: usize) -> Option<Time> {
        let micros = column.is_valid(row).then(|| column.value(row))?;
        Some(Time { micros })
    }
}

impl Cell for Time {
    fn data_type() -> DataType {
        DataType::Timestamp(TimeUnit::Microsecond, None)
    }

    fn column(cells: Vec<Option<Time>>) -> ArrayRef {
        let micros = cells.into_iter().map(|cell| cell.map(|time| time.micros));
        Arc::new(PrimitiveArray::<TimestampMicrosecondType>::from_iter(
            micros,
        ))
    }
}

impl<A: Argument> Argument for Option<A> {
    type Item<'a> = Option<A::Item<'a>>;
    type Column = A::Column;

    fn data_type() -> DataType {
        A::data_type()
    }

    fn get(column: &A::Column, row: usize) -> Option<Option<A::Item<'_>>> {
        Some(A::get(column, row))
    }
}

macro_rules! plain {
    ($($rust:ty),*) => {$(
        impl Output for $rust {
            type Cell = $rust;

            fn cell(self) -> Result<Option<$rust>, String> {
                Ok(Some(self))
            }
        }
    )*};
}

plain!(bool, i8, i16, i32, i64, f32, f64, String, Vec<u8>, Time);

impl<O: Output> Output for Option<O> {
    type Cell = O::Cell;

    fn cell(self) -> Result<Option<O::Cell>, String> {
        self.map_or(Ok(None), Output::cell)
    }
}

impl<O: Output, E: Display> Output for Result<O, E> {
    type Cell = O::Cell;

    fn cell(self) -> Result<Option<O::Cell>, String> {
        self.map_err(|error| error.to_string())?.cell()
    }
}

/// Column number `index`, as an array of its own type.
pub(super) fn downcast<C: 'static>(columns: &[ArrayRef], index: usize) -> Result<&C, String> {
    let column = columns
        .get(index)
        .and_then(|column| column.as_any().downcast_ref::<C>());
    column.ok_or_else(|| format!("argument {} does not have its declared type", index + 1))
}

/// Whether an argument of type `given` can be cast to `wanted` without losing information silently.
pub(super) fn fits(given: &DataType, wanted: &DataType) -> bool {
    use DataType::{Date32, LargeUtf8, Null, Timestamp, Utf8, Utf8View};
    let is_text = |data_type: &DataType| matches!(data_type, Utf8 | Utf8View | LargeUtf8);
    match (given, wanted) {
        (Null, _) => true,
        (given, wanted) if given == wanted => true,
        // A number that is too large rejects its row.
        (given, wanted) if wanted.is_integer() => given.is_integer(),
        (given, wanted) if wanted.is_floating() => given.is_numeric(),
        (given, wanted) if is_text(wanted) => is_text(given),
        (Timestamp(_, None) | Date32, Timestamp(_, None)) => true,
        _ => false,
    }
}

/// Whether `wanted` has every value of type `given`, so that a cast loses nothing and rejects no row.
pub(super) fn holds(given: &DataType, wanted: &DataType) -> bool {
    use DataType::{Decimal128, Float32, Float64, Timestamp};
    if given == wanted {
        return true;
    }
    // A decimal's digits before and after its point.
    let decimal = |precision: u8, scale: i8| (i32::from(precision) - i32::from(scale), scale);
    match (given, wanted) {
        (Float32, Float64) => true,
        // As many digits as a number of floating point always keeps.
        (Decimal128(precision, _), Float32) => *precision <= 6,
        (Decimal128(precision, _), Float64) => *precision <= 15,
        (Decimal128(precision, scale), Decimal128(most, most_scale)) => {
            let (whole, fraction) = decimal(*precision, *scale);
            let (most_whole, most_fraction) = decimal(*most, *most_scale);
            whole <= most_whole && fraction <= most_fraction
        }
        (Timestamp(unit, None), Timestamp(finer, None)) => unit <= finer,
        (given, wanted) if given.is_integer() => match wanted {
            Decimal128(precision, scale) => integer_digits(given) <= decimal(*precision, *scale).0,
            Float32 => integer_bits(given) <= 24,
            Float64 => integer_bits(given) <= 53,
            wanted if wanted.is_integer() => {
                let is_signed = wanted.is_signed_integer() || given.is_unsigned_integer();
                is_signed && integer_bits(given) <= integer_bits(wanted)
            }
            _ => false,
        },
        (given, _) if given.is_numeric() => false,
        // Everything else loses nothing, or can't be cast.
        (given, wanted) => fits(given, wanted),
    }
}

/// The bits of the largest value of a type of integers.
fn integer_bits(data_type: &DataType) -> usize {
    let bits = 8 * data_type.primitive_width().unwrap_or(16);
    bits - usize::from(data_type.is_signed_integer())
}

/// The digits of the largest value of a type of integers.
fn integer_digits(data_type: &DataType) -> i32 {
    let digits = integer_bits(data_type) as f64 * std::f64::consts::LOG10_2;
    digits as i32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_holds_the_values_of_another_or_not() {
        use DataType::{
            Date32, Decimal128, Float32, Float64, Int8, Int16, Int32, Int64, UInt32, UInt64,
            Utf8View,
        };
        let of = |unit| DataType::Timestamp(unit, None);
        let (ms, us) = (of(TimeUnit::Millisecond), of(TimeUnit::Microsecond));
        let held = [
            (Int32, Int32),
            (Int32, Int64),
            (UInt32, Int64),
            (Int16, Float32),
            (Int32, Float64),
            (Float32, Float64),
            (Int64, Decimal128(19, 0)),
            (Int8, Decimal128(5, 2)),
            (Decimal128(10, 2), Decimal128(12, 2)),
            (Decimal128(10, 2), Decimal128(12, 4)),
            (Decimal128(15, 2), Float64),
            (Date32, ms.clone()),
            (DataType::Utf8, Utf8View),
            (DataType::Null, Int8),
        ];
        for (given, wanted) in held {
            assert!(holds(&given, &wanted), "{given} to {wanted}");
        }
        let others = [
            (Int64, Int32),
            (Int32, UInt64),
            (UInt64, Int64),
            (Int32, Float32),
            (Int64, Float64),
            (Float64, Float32),
            (Float64, Int64),
            (Int64, Decimal128(18, 0)),
            (Int8, Decimal128(4, 2)),
            (Decimal128(10, 2), Decimal128(12, 5)),
            (Decimal128(10, 2), Decimal128(12, 1)),
            (Decimal128(10, 0), Int64),
            (Decimal128(16, 2), Float64),
            (us.clone(), ms.clone()),
            (Utf8View, Float64),
            (ms.clone(), Date32),
        ];
        for (given, wanted) in others {
            assert!(!holds(&given, &wanted), "{given} to {wanted}");
        }
        assert!(holds(&ms, &us));
    }
}
