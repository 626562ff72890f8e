//! Adjusts values before they are used, where DataFusion or Arrow do not compute what SQL says.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, Int64Type, IntervalMonthDayNanoType,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray, RecordBatch};
use arrow_buffer::IntervalMonthDayNano;
use arrow_cast::{CastOptions, cast, cast_with_options};
use arrow_schema::{ArrowError, DataType, Schema, TimeUnit};
use datafusion_common::Result;
use datafusion_common::ScalarValue;
use datafusion_expr::ColumnarValue;
use datafusion_physical_expr::PhysicalExpr;

use super::Physical;
use crate::types::INTERVAL;

/// The maximum number of digits of a DECIMAL.
const DIGITS: u8 = arrow_schema::DECIMAL128_MAX_PRECISION;

const DAY_NS: i64 = 86_400_000_000_000;

/// How the values are adjusted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Step {
    /// Exact numbers with more than 38 digits fail: 128 bits hold some numbers with 39 digits, and Arrow's
    /// kernels don't check it.
    WithinDigits,
    /// Values are cast to the declared type: some functions return DECIMALs with another scale.
    OfType(DataType),
    /// Times are rounded down to the unit. Arrow's casts round towards 1970.
    Floor(TimeUnit),
    /// Intervals are normalized: less than a day in nanoseconds, the rest in days. Arrow compares months,
    /// then days, then nanoseconds, so that 24 hours would be less than a day.
    Interval,
}

/// Exact arithmetic that fails if the result has more digits than its type.
pub fn within_digits(expression: Physical, schema: &Schema) -> Result<Physical> {
    match expression.data_type(schema)? {
        DataType::Decimal128(DIGITS, _) => Ok(after(expression, Step::WithinDigits)),
        _ => Ok(expression),
    }
}

/// An expression whose values have the type that it declares.
pub fn of_declared_type(expression: Physical, schema: &Schema) -> Result<Physical> {
    let declared = expression.data_type(schema)?;
    Ok(after(expression, Step::OfType(declared)))
}

/// The expression whose values are given a declared type, if this is what `expression` does.
pub fn inner_of_declared_type(expression: &Physical) -> Option<&Physical> {
    let checked = (expression.as_ref() as &dyn Any).downcast_ref::<Checked>()?;
    matches!(checked.step, Step::OfType(_)).then_some(&checked.expression)
}

/// The cast of a time to a coarser unit, rounding down; `None` for other casts.
pub fn floor(from: &Physical, to: &DataType, schema: &Schema) -> Result<Option<Physical>> {
    let data_type = from.data_type(schema)?;
    Ok(match (data_type, to) {
        (DataType::Timestamp(unit, None), DataType::Timestamp(to, None))
            if per_second(&unit) > per_second(to) =>
        {
            Some(after(from.clone(), Step::Floor(*to)))
        }
        _ => None,
    })
}

/// An interval, or a difference of times, in the form in which it can be compared.
pub fn interval(expression: Physical) -> Physical {
    after(expression, Step::Interval)
}

/// The form in which a constant interval can be compared.
pub fn interval_value(value: &ScalarValue) -> Option<ScalarValue> {
    match value {
        ScalarValue::IntervalMonthDayNano(Some(interval)) => {
            let whole = whole_days(*interval).ok()?;
            Some(ScalarValue::IntervalMonthDayNano(Some(whole)))
        }
        _ => None,
    }
}

fn after(expression: Physical, step: Step) -> Physical {
    Arc::new(Checked { expression, step })
}

fn per_second(unit: &TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// The same interval with less than a day in nanoseconds. Both parts have the same sign, so that of two
/// intervals with equal months the longer one has more days, or equal days and more nanoseconds.
fn whole_days(
    interval: IntervalMonthDayNano,
) -> std::result::Result<IntervalMonthDayNano, ArrowError> {
    let IntervalMonthDayNano {
        months,
        days,
        nanoseconds,
    } = interval;
    let all = i128::from(days) * i128::from(DAY_NS) + i128::from(nanoseconds);
    let too_long = || ArrowError::ComputeError("an INTERVAL is longer than 2^31 days".to_string());
    let days = i32::try_from(all / i128::from(DAY_NS)).map_err(|_| too_long())?;
    let nanoseconds = (all % i128::from(DAY_NS)) as i64;
    Ok(IntervalMonthDayNano::new(months, days, nanoseconds))
}

/// A difference of times as an interval.
fn from_duration<D: ArrowPrimitiveType<Native = i64>>(
    durations: &dyn Array,
    unit: &TimeUnit,
) -> Result<ArrayRef> {
    let per_day = 86_400 * per_second(unit);
    let tick_ns = 1_000_000_000 / per_second(unit);
    let of_one = |ticks: i64| {
        let days = i32::try_from(ticks / per_day).map_err(|_| {
            ArrowError::ComputeError("a difference of times is longer than 2^31 days".to_string())
        })?;
        let nanoseconds = (ticks % per_day) * tick_ns;
        Ok::<_, ArrowError>(IntervalMonthDayNano::new(0, days, nanoseconds))
    };
    let durations = durations.as_primitive::<D>();
    let intervals: PrimitiveArray<IntervalMonthDayNanoType> = durations.try_unary(of_one)?;
    Ok(Arc::new(intervals))
}

impl Step {
    fn apply(&self, values: &ArrayRef) -> Result<ArrayRef> {
        match self {
            Step::WithinDigits => {
                if let Some(numbers) = values.as_primitive_opt::<Decimal128Type>() {
                    numbers.validate_decimal_precision(DIGITS)?;
                }
                Ok(values.clone())
            }
            Step::OfType(declared) if values.data_type() == declared => Ok(values.clone()),
            Step::OfType(declared) => {
                let strict = CastOptions {
                    safe: false,
                    ..CastOptions::default()
                };
                Ok(cast_with_options(values, declared, &strict)?)
            }
            Step::Floor(to) => {
                let DataType::Timestamp(unit, None) = values.data_type() else {
                    return Ok(values.clone());
                };
                let ticks = per_second(unit) / per_second(to);
                let times = cast(values, &DataType::Int64)?;
                let times = times.as_primitive::<Int64Type>();
                let times: PrimitiveArray<Int64Type> = times.unary(|time| time.div_euclid(ticks));
                Ok(cast(&times, &DataType::Timestamp(*to, None))?)
            }
            Step::Interval => match values.data_type() {
                DataType::Duration(unit) => match unit {
                    TimeUnit::Second => from_duration::<DurationSecondType>(values, unit),
                    TimeUnit::Millisecond => from_duration::<DurationMillisecondType>(values, unit),
                    TimeUnit::Microsecond => from_duration::<DurationMicrosecondType>(values, unit),
                    TimeUnit::Nanosecond => from_duration::<DurationNanosecondType>(values, unit),
                },
                data_type if *data_type == INTERVAL => {
                    let intervals = values.as_primitive::<IntervalMonthDayNanoType>();
                    let whole: PrimitiveArray<IntervalMonthDayNanoType> =
                        intervals.try_unary(whole_days)?;
                    Ok(Arc::new(whole))
                }
                _ => Ok(cast(values, &INTERVAL)?),
            },
        }
    }
}

#[derive(Debug, Clone, Eq)]
struct Checked {
    expression: Physical,
    step: Step,
}

impl PartialEq for Checked {
    fn eq(&self, other: &Checked) -> bool {
        self.expression.eq(&other.expression) && self.step == other.step
    }
}

impl Hash for Checked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expression.hash(state);
        self.step.hash(state);
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.step {
            Step::Floor(to) => {
                let to = DataType::Timestamp(*to, None);
                write!(f, "CAST({} AS {to})", self.expression)
            }
            _ => self.expression.fmt(f),
        }
    }
}

impl PhysicalExpr for Checked {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        match &self.step {
            Step::WithinDigits => self.expression.data_type(schema),
            Step::OfType(declared) => Ok(declared.clone()),
            Step::Floor(to) => Ok(DataType::Timestamp(*to, None)),
            Step::Interval => Ok(INTERVAL),
        }
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.expression.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        Ok(match self.expression.evaluate(batch)? {
            ColumnarValue::Array(values) => ColumnarValue::Array(self.step.apply(&values)?),
            ColumnarValue::Scalar(value) => {
                let values = self.step.apply(&value.to_array()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?)
            }
        })
    }

    fn children(&self) -> Vec<&Physical> {
        vec![&self.expression]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Physical>) -> Result<Physical> {
        match children.pop() {
            Some(expression) => Ok(after(expression, self.step.clone())),
            None => Ok(self),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
