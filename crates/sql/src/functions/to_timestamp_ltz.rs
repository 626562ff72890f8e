//! `TO_TIMESTAMP_LTZ`: times from counts.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, TimeUnit};
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use crate::error::SqlError;
use crate::types::sql_name;

/// `TO_TIMESTAMP_LTZ(number, precision)`: a count of seconds (precision 0) or milliseconds
/// (precision 3) since 1970 as a timestamp; as in Flink, but also for 6 and 9.
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
        wrong("TO_TIMESTAMP_LTZ needs its precision as a number", FORM)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let precision = match args.scalar_arguments.get(1).copied().flatten() {
            Some(ScalarValue::Int64(Some(precision))) => *precision,
            _ => return wrong("TO_TIMESTAMP_LTZ needs its precision as a number", FORM),
        };
        let unit = match precision {
            0 => TimeUnit::Second,
            3 => TimeUnit::Millisecond,
            6 => TimeUnit::Microsecond,
            9 => TimeUnit::Nanosecond,
            other => {
                return wrong(
                    &format!("TO_TIMESTAMP_LTZ has no precision {other}"),
                    "0 for seconds, 3 for milliseconds, 6 and 9 for finer units",
                );
            }
        };
        let from = args.arg_fields[0].data_type();
        if !(from.is_integer() || matches!(from, DataType::Null | DataType::Decimal128(_, _))) {
            return wrong(
                &format!(
                    "TO_TIMESTAMP_LTZ takes a whole number, not {}",
                    sql_name(from)
                ),
                "CAST(… AS BIGINT) makes one; TO_TIMESTAMP reads texts",
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
