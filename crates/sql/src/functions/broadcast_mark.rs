//! The function that stands for the hint BROADCAST in the condition of a join, until the join is translated.

use arrow_schema::DataType;
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};

use crate::error::SqlError;
use crate::names::BROADCAST_MARK;

/// The function, of the name of the side, the place of the hint and columns of both sides. It is never
/// called.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct BroadcastMark {
    signature: Signature,
}

impl BroadcastMark {
    /// The function.
    pub fn new() -> BroadcastMark {
        BroadcastMark {
            signature: Signature::variadic_any(Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for BroadcastMark {
    fn name(&self) -> &str {
        BROADCAST_MARK
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let error = SqlError::new("the hint BROADCAST is only supported in joins");
        Err(DataFusionError::External(Box::new(error)))
    }
}
