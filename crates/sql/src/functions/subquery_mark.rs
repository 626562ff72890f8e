//! The function that stands for the hint SUBQUERY in a condition, until the condition is translated.

use arrow_schema::DataType;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

use crate::names::SUBQUERY_MARK;

/// The function, of the name of the subquery. It counts as volatile, so that no rule moves it. Where a plan
/// is read without a graph, every row meets it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct SubqueryMark {
    signature: Signature,
}

impl SubqueryMark {
    /// The function.
    pub fn new() -> SubqueryMark {
        SubqueryMark {
            signature: Signature::new(TypeSignature::Any(1), Volatility::Volatile),
        }
    }
}

impl ScalarUDFImpl for SubqueryMark {
    fn name(&self) -> &str {
        SUBQUERY_MARK
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))))
    }
}
