//! DataFusion's physical expressions as the engine's.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema, SchemaRef};
use datafusion_common::DFSchema;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::Expr;
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_physical_expr::expressions::{BinaryExpr, Column};
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr};
use slackwater_engine::expression::Expression;

use crate::error::Result;

/// A physical expression.
pub type Physical = Arc<dyn PhysicalExpr>;

/// The physical form of an expression over `schema`. Arithmetic fails on overflow instead of
/// wrapping (I4).
pub fn physical(expression: &Expr, schema: &DFSchema) -> Result<Physical> {
    let properties = ExecutionProps::new();
    let context = PhysicalPlanningContext::default();
    let made = create_physical_expr(expression, schema, &properties, &context)?;
    let checked = made.transform_up(|part| {
        let binary = (part.as_ref() as &dyn Any).downcast_ref::<BinaryExpr>();
        Ok(
            match binary.map(|binary| binary.clone().with_fail_on_overflow(true)) {
                Some(checked) => Transformed::yes(Arc::new(checked) as Physical),
                None => Transformed::no(part),
            },
        )
    })?;
    Ok(checked.data)
}

/// The expression with each column `i` replaced by `columns[i]`.
pub fn replace_columns(expression: &Physical, columns: &[Physical]) -> Result<Physical> {
    let replaced = expression.clone().transform_down(|part| {
        match column_index(&part) {
            // The replacement is over other columns: it must not be looked into.
            Some(index) => Ok(Transformed::new(
                columns[index].clone(),
                true,
                datafusion_common::tree_node::TreeNodeRecursion::Jump,
            )),
            None => Ok(Transformed::no(part)),
        }
    })?;
    Ok(replaced.data)
}

/// The index of the column that the expression is.
pub fn column_index(expression: &Physical) -> Option<usize> {
    (expression.as_ref() as &dyn Any)
        .downcast_ref::<Column>()
        .map(|column| column.index())
}

/// Column `index` of `schema`.
pub fn column(index: usize, schema: &Schema) -> Physical {
    Arc::new(Column::new(schema.field(index).name(), index))
}

/// A physical expression over batches of a given schema, for the engine.
pub struct PhysicalExpression {
    expression: Physical,
    data_type: DataType,
}

impl PhysicalExpression {
    /// For batches of `schema`.
    pub fn over(expression: Physical, schema: &SchemaRef) -> Result<Arc<dyn Expression>> {
        let data_type = expression.data_type(schema)?;
        Ok(Arc::new(PhysicalExpression {
            expression,
            data_type,
        }))
    }
}

impl fmt::Debug for PhysicalExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.expression)
    }
}

impl Expression for PhysicalExpression {
    fn evaluate(&self, batch: &RecordBatch) -> slackwater_engine::Result<ArrayRef> {
        let value = self
            .expression
            .evaluate(batch)
            .and_then(|v| v.into_array(batch.num_rows()));
        value.map_err(|error| {
            let error = crate::error::SqlError::from(error);
            slackwater_engine::Error::new(self.expression.to_string(), error.message)
        })
    }

    fn data_type(&self) -> DataType {
        self.data_type.clone()
    }

    fn column(&self) -> Option<usize> {
        column_index(&self.expression)
    }
}
