//! Removes casts from comparisons with constants: `CAST(k AS BIGINT) > 5` becomes `k > 5`.
//!
//! That is correct if the cast keeps different values different, keeps their order and can't fail, and if the
//! constant has a value in the original type.

use arrow_schema::{DataType, TimeUnit};
use datafusion_common::tree_node::Transformed;
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::expr::InList;
use datafusion_expr::{Expr, ExprSchemable, lit};

/// The expression inside a cast, and the constant with its type.
pub fn remove(cast: &Expr, value: &ScalarValue, schema: &DFSchema) -> Option<(Expr, ScalarValue)> {
    let (inner, to) = match cast {
        Expr::Cast(cast) => (cast.expr.as_ref(), cast.field.data_type()),
        Expr::TryCast(cast) => (cast.expr.as_ref(), cast.field.data_type()),
        _ => return None,
    };
    let from = inner.get_type(schema).ok()?;
    if value.is_null() || value.data_type() != *to || !is_wider(&from, to) {
        return None;
    }
    let narrow = value.cast_to(&from).ok()?;
    let back = narrow.cast_to(to).ok()?;
    (back == *value).then(|| (inner.clone(), narrow))
}

/// Removes the cast of an IN list, for all of its values.
pub fn remove_from_list(list: InList, schema: &DFSchema) -> Transformed<Expr> {
    let mut inner = None;
    let values = list.list.iter().map(|value| match value {
        Expr::Literal(value, _) => {
            let (without_cast, value) = remove(&list.expr, value, schema)?;
            inner = Some(without_cast);
            Some(lit(value))
        }
        _ => None,
    });
    let values = values.collect::<Option<Vec<Expr>>>();
    match (inner, values) {
        (Some(inner), Some(values)) => Transformed::yes(Expr::InList(InList::new(
            Box::new(inner),
            values,
            list.negated,
        ))),
        _ => Transformed::no(Expr::InList(list)),
    }
}

/// Whether a cast keeps different values different and in the same order, and never fails.
pub fn is_wider(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Date32, Decimal128, Float32, Float64, Int8, Int16, Int32, LargeUtf8, Timestamp, Utf8,
        Utf8View,
    };
    match (from, to) {
        (from, to) if from == to => true,
        (from, to) if from.is_integer() && to.is_integer() => {
            match (from.is_signed_integer(), to.is_signed_integer()) {
                (true, false) => false,
                // The sign takes a bit.
                (false, true) => from.primitive_width() < to.primitive_width(),
                _ => from.primitive_width() <= to.primitive_width(),
            }
        }
        // An unsigned integer is compared with a BIGINT as a DECIMAL.
        (from, Decimal128(digits, scale)) if from.is_integer() => {
            digits_of(from).is_some_and(|needed| i16::from(*digits) - i16::from(*scale) >= needed)
        }
        (Decimal128(digits, scale), Decimal128(to_digits, to_scale)) => {
            let whole = |digits: u8, scale: i8| i16::from(digits) - i16::from(scale);
            scale <= to_scale && whole(*digits, *scale) <= whole(*to_digits, *to_scale)
        }
        (Int8 | Int16, Float32 | Float64) | (Int32 | Float32, Float64) => true,
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => true,
        // Nanoseconds end in 2262: later times can't be cast to them.
        (Timestamp(unit, None), Timestamp(to_unit, None)) => {
            per_second(unit) <= per_second(to_unit) && *to_unit != TimeUnit::Nanosecond
        }
        (Date32, Timestamp(unit, None)) => *unit != TimeUnit::Nanosecond,
        _ => false,
    }
}

/// The number of digits of the largest value of a type.
fn digits_of(integer: &DataType) -> Option<i16> {
    match integer {
        DataType::Int8 | DataType::UInt8 => Some(3),
        DataType::Int16 | DataType::UInt16 => Some(5),
        DataType::Int32 | DataType::UInt32 => Some(10),
        DataType::Int64 => Some(19),
        DataType::UInt64 => Some(20),
        _ => None,
    }
}

fn per_second(unit: &TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}
