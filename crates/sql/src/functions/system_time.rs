//! The function that stands for FOR SYSTEM_TIME AS OF in the condition of a join, until the join is
//! translated.

use arrow_schema::DataType;
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

use crate::error::SqlError;
use crate::names::SYSTEM_TIME_AS_OF;

/// The function. It is never called.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct SystemTimeAsOf {
    signature: Signature,
}

impl SystemTimeAsOf {
    /// The function, with two or three arguments.
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
        let error = SqlError::new("FOR SYSTEM_TIME AS OF is only supported in joins");
        Err(DataFusionError::External(Box::new(error)))
    }
}
