//! TO_TIMESTAMP and TO_DATE with Java's patterns, in addition to DataFusion's: a pattern that contains `%` is
//! one of DataFusion's.

use std::sync::Arc;

use arrow_array::types::{Date32Type, TimestampMillisecondType};
use arrow_array::{Array, ArrayRef, PrimitiveArray, StringViewArray};
use arrow_schema::{DataType, Field, FieldRef, TimeUnit};
use chrono::Datelike;
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

use super::pattern::Pattern;
use crate::error::SqlError;

/// Days from year 0 to 1970.
const EPOCH_DAYS: i32 = 719_163;

/// A function that takes both kinds of patterns.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct WithPattern {
    inner: Arc<ScalarUDF>,
    /// The type of the result for one of Java's patterns.
    result: DataType,
}

/// TO_TIMESTAMP and TO_DATE, wrapped around those among `functions`.
pub(super) fn functions(functions: &[Arc<ScalarUDF>]) -> Vec<Arc<ScalarUDF>> {
    let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
    let results = [("to_timestamp", millis), ("to_date", DataType::Date32)];
    let wrapped = results.into_iter().filter_map(|(name, result)| {
        let inner = functions
            .iter()
            .find(|function| function.name() == name)?
            .clone();
        Some(Arc::new(ScalarUDF::new_from_impl(WithPattern {
            inner,
            result,
        })))
    });
    wrapped.collect()
}

fn java_pattern(second: Option<&ScalarValue>, arguments: usize) -> Option<&str> {
    let pattern = second?.try_as_str()??;
    (arguments == 2 && !pattern.contains('%')).then_some(pattern)
}

impl WithPattern {
    fn read(&self, strings: &ArrayRef, pattern: &str) -> std::result::Result<ArrayRef, String> {
        let strings =
            arrow_cast::cast(strings, &DataType::Utf8View).map_err(|error| error.to_string())?;
        let strings =
            super::values::downcast::<StringViewArray>(std::slice::from_ref(&strings), 0)?.clone();
        let pattern = Pattern::cached(pattern)?;
        let times = (0..strings.len()).map(|row| match strings.is_valid(row) {
            true => pattern.read(strings.value(row)).map(Some),
            false => Ok(None),
        });
        let times = times.collect::<std::result::Result<Vec<_>, String>>()?;
        Ok(match self.result {
            DataType::Date32 => {
                let days = times.iter();
                let days = days.map(|time| time.map(|time| time.num_days_from_ce() - EPOCH_DAYS));
                Arc::new(PrimitiveArray::<Date32Type>::from_iter(days))
            }
            _ => {
                let millis = times.iter();
                let millis = millis.map(|time| time.map(|time| time.and_utc().timestamp_millis()));
                Arc::new(PrimitiveArray::<TimestampMillisecondType>::from_iter(
                    millis,
                ))
            }
        })
    }
}

impl ScalarUDFImpl for WithPattern {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(given)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let second = args.scalar_arguments.get(1).copied().flatten();
        let Some(pattern) = java_pattern(second, args.arg_fields.len()) else {
            return self.inner.return_field_from_args(args);
        };
        let wrong = |reason| {
            let error = SqlError::new(reason).near(self.name().to_uppercase());
            DataFusionError::External(Box::new(error))
        };
        Pattern::new(pattern).map_err(wrong)?;
        Ok(Arc::new(Field::new(self.name(), self.result.clone(), true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let second = match args.args.get(1) {
            Some(ColumnarValue::Scalar(value)) => Some(value),
            _ => None,
        };
        let Some(pattern) = java_pattern(second, args.args.len()) else {
            return self.inner.invoke_with_args(args);
        };
        let strings = args.args[0].to_array(args.number_rows)?;
        let name = self.name().to_uppercase();
        let failed = |reason| DataFusionError::Execution(format!("{name}: {reason}"));
        Ok(ColumnarValue::Array(
            self.read(&strings, pattern).map_err(failed)?,
        ))
    }
}
