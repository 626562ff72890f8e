//! Removes columns that are never read, with DataFusion's rule. The rule would also remove operators whose
//! columns are never read, although they have an effect of their own: OVER drops late rows, and an aggregate
//! without GROUP BY returns one row. Nodes that the rule does not know keep both.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow_schema::DataType;
use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, DFSchemaRef, DataFusionError, Result};
use datafusion_expr::expr::Sort;
use datafusion_expr::logical_plan::{Aggregate, Extension, Projection, Window};
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion_optimizer::optimize_projections::OptimizeProjections;
use datafusion_optimizer::optimizer::ApplyOrder;
use datafusion_optimizer::{OptimizerConfig, OptimizerRule};

/// The optimizer rule.
#[derive(Debug, Default)]
pub struct Prune {
    inner: OptimizeProjections,
}

impl OptimizerRule for Prune {
    fn name(&self) -> &str {
        "prune"
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
        let guarded = plan.transform_up_with_subqueries(guard)?.data;
        let pruned = self.inner.rewrite(guarded, config)?;
        let plan = pruned.data.transform_up_with_subqueries(release)?.data;
        Ok(Transformed::new_transformed(plan, pruned.transformed))
    }
}

/// Drops rows that are late for an OVER, whether or not its values are read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InTimeNode {
    /// The plan below.
    pub input: LogicalPlan,
    /// The column by which OVER orders the rows.
    pub time: Column,
}

/// An aggregate without GROUP BY, of which at least one value must be computed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TotalNode {
    input: LogicalPlan,
    /// The index of the cheapest value.
    value: usize,
}

impl InTimeNode {
    /// The [`InTimeNode`] in an extension.
    pub fn of(extension: &Extension) -> Option<&InTimeNode> {
        extension.node.as_any().downcast_ref()
    }
}

impl PartialOrd for InTimeNode {
    fn partial_cmp(&self, _: &InTimeNode) -> Option<Ordering> {
        None
    }
}

impl PartialOrd for TotalNode {
    fn partial_cmp(&self, _: &TotalNode) -> Option<Ordering> {
        None
    }
}

impl UserDefinedLogicalNodeCore for InTimeNode {
    fn name(&self) -> &str {
        "InTime"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![Expr::Column(self.time.clone())]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "InTime: {}", self.time)
    }

    fn with_exprs_and_inputs(
        &self,
        mut expressions: Vec<Expr>,
        inputs: Vec<LogicalPlan>,
    ) -> Result<InTimeNode> {
        match expressions.pop() {
            Some(Expr::Column(time)) => Ok(InTimeNode {
                input: only(inputs)?,
                time,
            }),
            _ => Err(DataFusionError::Internal(
                "an event time is a column".into(),
            )),
        }
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let mut needed = output_columns.to_vec();
        needed.push(self.input.schema().index_of_column(&self.time).ok()?);
        needed.sort_unstable();
        needed.dedup();
        Some(vec![needed])
    }
}

impl UserDefinedLogicalNodeCore for TotalNode {
    fn name(&self) -> &str {
        "Total"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Total")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<TotalNode> {
        Ok(TotalNode {
            input: only(inputs)?,
            value: self.value,
        })
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![match output_columns {
            [] => vec![self.value],
            some => some.to_vec(),
        }])
    }
}

fn only(mut inputs: Vec<LogicalPlan>) -> Result<LogicalPlan> {
    let input = inputs.pop();
    input.ok_or_else(|| DataFusionError::Internal("a node without its input".into()))
}

fn extension(node: impl UserDefinedLogicalNodeCore) -> LogicalPlan {
    let node = Arc::new(node);
    LogicalPlan::Extension(Extension { node })
}

fn guard(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
            let value = cheapest(&aggregate);
            let input = LogicalPlan::Aggregate(aggregate);
            Ok(Transformed::yes(extension(TotalNode { input, value })))
        }
        LogicalPlan::Window(mut window) => {
            let Some(time) = order(&window) else {
                return Ok(Transformed::no(LogicalPlan::Window(window)));
            };
            let input = Arc::unwrap_or_clone(window.input);
            window.input = Arc::new(extension(InTimeNode { input, time }));
            Ok(Transformed::yes(LogicalPlan::Window(window)))
        }
        plan => Ok(Transformed::no(plan)),
    }
}

/// Removes nodes that turn out to be unnecessary: the aggregate still exists, or OVER itself drops late rows.
fn release(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Window(mut window) => {
            let Some(time) = order(&window) else {
                return Ok(Transformed::no(LogicalPlan::Window(window)));
            };
            window.input = Arc::new(without(Arc::unwrap_or_clone(window.input), &time)?);
            Ok(Transformed::yes(LogicalPlan::Window(window)))
        }
        LogicalPlan::Extension(custom) => {
            if let Some(total) = custom.node.as_any().downcast_ref::<TotalNode>() {
                return Ok(Transformed::yes(total.input.clone()));
            }
            match InTimeNode::of(&custom) {
                // Several OVERs with one order need only one node.
                Some(node) => {
                    let input = without(node.input.clone(), &node.time)?;
                    let time = node.time.clone();
                    Ok(Transformed::yes(extension(InTimeNode { input, time })))
                }
                None => Ok(Transformed::no(LogicalPlan::Extension(custom))),
            }
        }
        plan => Ok(Transformed::no(plan)),
    }
}

/// The plan without the [`InTimeNode`] for rows that are late by `time`.
fn without(plan: LogicalPlan, time: &Column) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Extension(custom) => match InTimeNode::of(&custom) {
            Some(node) if node.time == *time => without(node.input.clone(), time),
            _ => Ok(LogicalPlan::Extension(custom)),
        },
        // The rule adds a projection that removes columns.
        LogicalPlan::Projection(projection)
            if projection
                .expr
                .iter()
                .all(|expression| matches!(expression, Expr::Column(_))) =>
        {
            let input = without(Arc::unwrap_or_clone(projection.input), time)?;
            let projection = Projection::try_new(projection.expr, Arc::new(input))?;
            Ok(LogicalPlan::Projection(projection))
        }
        plan => Ok(plan),
    }
}

/// The time column by which OVER orders its rows, if it does.
fn order(window: &Window) -> Option<Column> {
    let mut expression = window.window_expr.first()?;
    while let Expr::Alias(alias) = expression {
        expression = &alias.expr;
    }
    let Expr::WindowFunction(call) = expression else {
        return None;
    };
    let [
        Sort {
            expr, asc: true, ..
        },
    ] = call.params.order_by.as_slice()
    else {
        return None;
    };
    let mut expression = expr;
    loop {
        match expression {
            Expr::Alias(alias) => expression = &alias.expr,
            Expr::Cast(cast) => expression = &cast.expr,
            Expr::Column(column) => {
                let data_type = expression.get_type(window.input.schema()).ok()?;
                let is_time = matches!(data_type, DataType::Timestamp(_, _));
                return is_time.then(|| column.clone());
            }
            _ => return None,
        }
    }
}

/// The value of an aggregate to compute if none is read: a COUNT has the smallest state.
fn cheapest(aggregate: &Aggregate) -> usize {
    let is_count = |call: &Expr| match call.clone().unalias() {
        Expr::AggregateFunction(call) => call.func.name() == "count" && !call.params.distinct,
        _ => false,
    };
    aggregate.aggr_expr.iter().position(is_count).unwrap_or(0)
}
