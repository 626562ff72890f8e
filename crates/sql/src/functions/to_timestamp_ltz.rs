//! `TO_TIMESTAMP_LTZ`: times from numbers.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, TimeUnit};
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use crate::error::SqlError;
use crate::types::sql_name;

/// `TO_TIMESTAMP_LTZ(number, precision)`: a number of seconds (precision 0) or milliseconds (precision 3)
/// since 1970 as a timestamp, as in Flink; precisions 6 and 9 are supported, too.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ToTimestampLtz {
    signature: Signature,
}

impl ToTimestampLtz {
    pub(super) fn new() -> ToTimestampLtz {
        ToTimestampLtz {
            signature: Signature::any(2, Volatility::Immutable),
        }
    }
}

const FORM: &str = "TO_TIMESTAMP_LTZ(x, 3)";

fn wrong<T>(message: &str, hint: &str) -> Result<T> {
    let error = SqlError::new(message).near("TO_TIMESTAMP_LTZ").hint(hint);
    Err(DataFusionError::External(Box::new(error)))
}

impl ScalarUDFImpl for ToTimestampLtz {
    fn name(&self) -> &str {
        "to_timestamp_ltz"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        wrong(
            "the second argument of TO_TIMESTAMP_LTZ must be a constant number",
            FORM,
        )
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let precision = match args.scalar_arguments.get(1).copied().flatten() {
            Some(ScalarValue::Int64(Some(precision))) => *precision,
            _ => {
                return wrong(
                    "the second argument of TO_TIMESTAMP_LTZ must be a constant number",
                    FORM,
                );
            }
        };
        let unit = match precision {
            0 => TimeUnit::Second,
            3 => TimeUnit::Millisecond,
            6 => TimeUnit::Microsecond,
            9 => TimeUnit::Nanosecond,
            other => {
                return wrong(
                    &format!("TO_TIMESTAMP_LTZ does not support precision {other}"),
                    "use 0 for seconds, 3 for milliseconds, 6 for microseconds, or 9 for nanoseconds",
                );
            }
        };
        let from = args.arg_fields[0].data_type();
        if !(from.is_integer() || matches!(from, DataType::Null | DataType::Decimal128(_, _))) {
            return wrong(
                &format!("TO_TIMESTAMP_LTZ needs an integer, not {}", sql_name(from)),
                "use CAST(… AS BIGINT), or TO_TIMESTAMP to read a string",
            );
        }
        Ok(Arc::new(Field::new(
            self.name(),
            DataType::Timestamp(unit, None),
            true,
        )))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let number = args.args[0].cast_to(&DataType::Int64, None)?;
        number.cast_to(args.return_field.data_type(), None)
    }
}
