//! Floating-point numbers as they are compared: -0 equals 0; NaN equals itself, whatever its sign and
//! payload, and is greater than every other number. Arrow's kernels compare bits: -0 would be less than 0,
//! and the NaN of `0.0 / 0.0`, whose sign bit is set on x86, less than every number.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{ColumnarValue, Operator};
use datafusion_physical_expr::expressions::{BinaryExpr, CaseExpr, InListExpr, Literal, in_list};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use slackwater_engine::key;

use super::Physical;

/// Functions that compare their arguments.
const COMPARING: [&str; 3] = ["nullif", "greatest", "least"];

/// The expression with comparable operands; `None` if there is nothing to change.
pub fn compared(expression: &Physical, schema: &Schema) -> Result<Option<Physical>> {
    let any = expression.as_ref() as &dyn Any;
    let children = expression.children();
    let is_compared: Vec<bool> = if let Some(binary) = any.downcast_ref::<BinaryExpr>() {
        vec![is_comparison(*binary.op()); children.len()]
    } else if let Some(case) = any.downcast_ref::<CaseExpr>() {
        // CASE x WHEN a THEN b WHEN c THEN d ELSE e: x, a and c.
        let arms = 2 * case.when_then_expr().len();
        let is_when = |child: usize| child == 0 || (child <= arms && child % 2 == 1);
        (0..children.len())
            .map(|child| case.expr().is_some() && is_when(child))
            .collect()
    } else if any.is::<InListExpr>() {
        vec![true; children.len()]
    } else if let Some(function) = any.downcast_ref::<ScalarFunctionExpr>() {
        vec![COMPARING.contains(&function.name()); children.len()]
    } else {
        return Ok(None);
    };
    let (mut made, mut is_other) = (Vec::with_capacity(children.len()), false);
    for (child, is_compared) in children.into_iter().zip(is_compared) {
        let comparable = match is_compared {
            true => comparable(child, schema)?,
            false => None,
        };
        is_other |= comparable.is_some();
        made.push(comparable.unwrap_or_else(|| child.clone()));
    }
    if !is_other {
        return Ok(None);
    }
    // The constants of an IN list are in a hash table that is built with the expression.
    if let Some(list) = any.downcast_ref::<InListExpr>() {
        let value = made.remove(0);
        return in_list(value, made, &list.negated(), schema).map(Some);
    }
    Arc::clone(expression).with_new_children(made).map(Some)
}

fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(
        operator,
        Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom
    )
}

/// A floating-point number in the form in which it is compared; `None` if it already has that form.
fn comparable(expression: &Physical, schema: &Schema) -> Result<Option<Physical>> {
    let data_type = expression.data_type(schema)?;
    let any = expression.as_ref() as &dyn Any;
    if !matches!(data_type, DataType::Float32 | DataType::Float64) || any.is::<Comparable>() {
        return Ok(None);
    }
    let Some(constant) = any.downcast_ref::<Literal>() else {
        let expression = Arc::clone(expression);
        return Ok(Some(Arc::new(Comparable { expression })));
    };
    let value = canonical_value(constant.value().clone())?;
    Ok(Some(Arc::new(Literal::new(value))))
}

/// A column as its values compare.
fn canonical(column: ArrayRef) -> ArrayRef {
    Arc::clone(&key::Comparable::new(&[column]).columns()[0])
}

fn canonical_value(value: ScalarValue) -> Result<ScalarValue> {
    let column = value.to_array()?;
    ScalarValue::try_from_array(&canonical(column), 0)
}

/// A floating-point number with -0 replaced by 0 and all NaN replaced by one.
#[derive(Debug, Clone, Eq)]
struct Comparable {
    expression: Physical,
}

impl PartialEq for Comparable {
    fn eq(&self, other: &Comparable) -> bool {
        self.expression.eq(&other.expression)
    }
}

impl Hash for Comparable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expression.hash(state);
    }
}

impl fmt::Display for Comparable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt(f)
    }
}

impl PhysicalExpr for Comparable {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.expression.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.expression.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        Ok(match self.expression.evaluate(batch)? {
            ColumnarValue::Array(column) => ColumnarValue::Array(canonical(column)),
            ColumnarValue::Scalar(value) => ColumnarValue::Scalar(canonical_value(value)?),
        })
    }

    fn children(&self) -> Vec<&Physical> {
        vec![&self.expression]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Physical>) -> Result<Physical> {
        match children.pop() {
            Some(expression) => Ok(Arc::new(Comparable { expression })),
            None => Ok(self),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt_sql(f)
    }
}
