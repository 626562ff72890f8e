//! Sums, differences and products of exact numbers that need more than 38 digits fail.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_schema::{DataType, Schema};
use datafusion_common::Result;
use datafusion_expr::ColumnarValue;
use datafusion_physical_expr::PhysicalExpr;

use super::Physical;

/// The most digits of a DECIMAL.
const DIGITS: u8 = arrow_schema::DECIMAL128_MAX_PRECISION;

/// Wraps arithmetic of exact numbers whose result may need more digits than its type has: 128 bits hold some
/// numbers of 39 digits, and Arrow's kernels don't mind.
pub fn checked(expression: Physical, schema: &Schema) -> Result<Physical> {
    match expression.data_type(schema)? {
        DataType::Decimal128(DIGITS, _) => Ok(Arc::new(WithinDigits { expression })),
        _ => Ok(expression),
    }
}

#[derive(Debug, Clone, Eq)]
struct WithinDigits {
    expression: Physical,
}

impl PartialEq for WithinDigits {
    fn eq(&self, other: &WithinDigits) -> bool {
        self.expression.eq(&other.expression)
    }
}

impl Hash for WithinDigits {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expression.hash(state);
    }
}

impl fmt::Display for WithinDigits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt(f)
    }
}

impl PhysicalExpr for WithinDigits {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.expression.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.expression.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let value = self.expression.evaluate(batch)?;
        let array = value.to_array(1)?;
        if let Some(numbers) = array.as_primitive_opt::<Decimal128Type>() {
            numbers.validate_decimal_precision(DIGITS)?;
        }
        Ok(value)
    }

    fn children(&self) -> Vec<&Physical> {
        vec![&self.expression]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Physical>) -> Result<Physical> {
        match children.pop() {
            Some(expression) => Ok(Arc::new(WithinDigits { expression })),
            None => Ok(self),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt_sql(f)
    }
}
