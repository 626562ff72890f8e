//! Pushes conditions down in the order in which they are written.
//!
//! DataFusion's rule moves comparisons of a column with a constant behind the others, and function calls
//! behind all. `WHERE kind = 'number' AND CAST(value AS INT) > 5` would then reject the rows that its first
//! condition filters out. It also removes one of two conditions on a column, which is wrong for some NULLs.
//! The rule has no option to turn this off, so it only sees conditions that it can't tell apart: each is an
//! argument of the function [`AsWritten`], which is removed afterwards.

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DataFusionError, Result, exec_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::logical_plan::{Filter, Join};
use datafusion_expr::utils::{conjunction, split_conjunction_owned};
use datafusion_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion_optimizer::optimizer::ApplyOrder;
use datafusion_optimizer::push_down_filter::PushDownFilter;
use datafusion_optimizer::{OptimizerConfig, OptimizerRule};

use arrow_schema::DataType;

/// The optimizer rule.
#[derive(Debug, Default)]
pub struct PushDown {
    inner: PushDownFilter,
}

impl OptimizerRule for PushDown {
    fn name(&self) -> &str {
        "push_down"
    }

    /// The rule visits the plan itself.
    fn apply_order(&self) -> Option<ApplyOrder> {
        None
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let plan = plan.transform_up_with_subqueries(hide)?.data;
        let pushed = plan.transform_down_with_subqueries(|node| match is_over_total(&node) {
            true => Ok(Transformed::no(node)),
            false => self.inner.rewrite(node, config),
        })?;
        let shown = pushed.data.transform_up_with_subqueries(show)?.data;
        Ok(Transformed::new_transformed(shown, pushed.transformed))
    }
}

/// Whether a node is a condition on an aggregate without GROUP BY. It has a row even if its input has none,
/// so a constant condition can't be pushed below it.
fn is_over_total(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Filter(filter) => match filter.input.as_ref() {
            LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
            input => is_over_total(input),
        },
        _ => false,
    }
}

fn hide(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let hidden = |condition: Expr| {
        let parts = split_conjunction_owned(condition).into_iter();
        conjunction(parts.map(AsWritten::around)).expect("a condition has a part")
    };
    Ok(match plan {
        LogicalPlan::Filter(filter) => {
            let predicate = hidden(filter.predicate);
            Transformed::yes(LogicalPlan::Filter(Filter::try_new(
                predicate,
                filter.input,
            )?))
        }
        LogicalPlan::Join(join) => {
            let filter = join.filter.map(hidden);
            Transformed::yes(LogicalPlan::Join(Join { filter, ..join }))
        }
        plan => Transformed::no(plan),
    })
}

fn show(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.map_expressions(|expression| {
        expression.transform_up(|part| match part {
            Expr::ScalarFunction(mut call) if call.func.inner().is::<AsWritten>() => {
                let condition = call.args.pop();
                let none = || DataFusionError::Internal("a condition is gone".to_string());
                Ok(Transformed::yes(condition.ok_or_else(none)?))
            }
            part => Ok(Transformed::no(part)),
        })
    })
}

/// A function that returns its only argument, a condition.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AsWritten {
    signature: Signature,
}

impl AsWritten {
    fn around(condition: Expr) -> Expr {
        let function = ScalarUDF::new_from_impl(AsWritten {
            signature: Signature::exact(vec![DataType::Boolean], Volatility::Immutable),
        });
        Expr::ScalarFunction(ScalarFunction::new_udf(function.into(), vec![condition]))
    }
}

impl ScalarUDFImpl for AsWritten {
    fn name(&self) -> &str {
        "as_written"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    /// The rule evaluates whether a condition rejects NULL.
    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.pop() {
            Some(condition) => Ok(condition),
            None => exec_err!("as_written needs a condition"),
        }
    }
}
