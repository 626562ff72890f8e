//! Columns that nobody reads are left out, by DataFusion's rule. It also leaves out operators of which nobody
//! reads a column, and with them what they say without one: that a row is late for OVER, and that an aggregate
//! without GROUP BY has one row. Nodes that the rule doesn't know keep both.

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

/// The rule.
#[derive(Debug, Default)]
pub struct Prune {
    inner: OptimizeProjections,
}

impl OptimizerRule for Prune {
    fn name(&self) -> &str {
        "prune"
    }

    /// It walks through the plan itself.
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

/// Rows that are late for OVER are left out, whether or not its values are read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InTimeNode {
    /// Where the rows come from.
    pub input: LogicalPlan,
    /// What OVER orders them by.
    pub time: Column,
}

/// An aggregate without GROUP BY, of which at least one value is computed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TotalNode {
    input: LogicalPlan,
    /// The value that costs least.
    value: usize,
}

impl InTimeNode {
    /// The node that an extension is.
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

/// Takes away what wasn't needed: an aggregate that is there, and what OVER itself does.
fn release(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Window(mut window) => {
            let Some(time) = order(&window) else {
                return Ok(Transformed::no(LogicalPlan::Window(window)));
            };
            window.input = Arc::new(without(Arc::unwrap_or_clone(window.input), &time)?);
            Ok(Transformed::yes(LogicalPlan::Window(window)))
        }
        LogicalPlan::Extension(of) => {
            if let Some(total) = of.node.as_any().downcast_ref::<TotalNode>() {
                return Ok(Transformed::yes(total.input.clone()));
            }
            match InTimeNode::of(&of) {
                // Of several OVERs with one order.
                Some(node) => {
                    let input = without(node.input.clone(), &node.time)?;
                    let time = node.time.clone();
                    Ok(Transformed::yes(extension(InTimeNode { input, time })))
                }
                None => Ok(Transformed::no(LogicalPlan::Extension(of))),
            }
        }
        plan => Ok(Transformed::no(plan)),
    }
}

/// The plan without a node of its own for rows that are late by `time`.
fn without(plan: LogicalPlan, time: &Column) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Extension(of) => match InTimeNode::of(&of) {
            Some(node) if node.time == *time => without(node.input.clone(), time),
            _ => Ok(LogicalPlan::Extension(of)),
        },
        // The rule puts one in between that leaves out columns.
        LogicalPlan::Projection(projection)
            if projection
                .expr
                .iter()
                .all(|of| matches!(of, Expr::Column(_))) =>
        {
            let input = without(Arc::unwrap_or_clone(projection.input), time)?;
            let projection = Projection::try_new(projection.expr, Arc::new(input))?;
            Ok(LogicalPlan::Projection(projection))
        }
        plan => Ok(plan),
    }
}

/// The column of times that OVER goes by, where it goes by one.
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
                let of = expression.get_type(window.input.schema()).ok()?;
                let is_time = matches!(of, DataType::Timestamp(_, _));
                return is_time.then(|| column.clone());
            }
            _ => return None,
        }
    }
}

/// Of an aggregate's values the one that is computed if nobody reads any: a COUNT has the least state.
fn cheapest(aggregate: &Aggregate) -> usize {
    let is_count = |call: &Expr| match call.clone().unalias() {
        Expr::AggregateFunction(call) => call.func.name() == "count" && !call.params.distinct,
        _ => false,
    };
    aggregate.aggr_expr.iter().position(is_count).unwrap_or(0)
}
