//! What stands in a join's condition for FOR SYSTEM_TIME AS OF, until the join is translated.

use arrow_schema::DataType;
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

use crate::error::SqlError;
use crate::names::SYSTEM_TIME_AS_OF;

/// The function. Nothing ever calls it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct SystemTimeAsOf {
    signature: Signature,
}

impl SystemTimeAsOf {
    /// With the two or three arguments that the condition has.
    pub fn new() -> SystemTimeAsOf {
        SystemTimeAsOf {
            signature: Signature::one_of(
                vec![TypeSignature::Any(2), TypeSignature::Any(3)],
                Volatility::Immutable,
            ),
        }
    }
}

impl ScalarUDFImpl for SystemTimeAsOf {
    fn name(&self) -> &str {
        SYSTEM_TIME_AS_OF
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let error = SqlError::new("FOR SYSTEM_TIME AS OF is known in joins only");
        Err(DataFusionError::External(Box::new(error)))
    }
}
