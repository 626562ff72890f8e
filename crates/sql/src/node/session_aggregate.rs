//! GROUP BY the edges of sessions: the aggregation merges the sessions itself, and keeps no rows.

use arrow_schema::SchemaRef;
use datafusion_expr::{Expr, LogicalPlan};
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::aggregate::AggregateSpec;
use slackwater_engine::operator::session::{SessionAggregate, SessionSpec};
use slackwater_engine::operator::window::WindowKind;

use super::facts::{
    Behind, Changelog, Cost, Emission, Facts, Growth, Node, Order, Sorted, State, by_key,
};
use super::identity;
use super::saved::Saved;
use crate::window::WindowNode;

/// Aggregation in sessions.
pub struct SessionAggregateNode {
    /// The keys and aggregates.
    pub spec: AggregateSpec,
    /// The gap and the keys of the sessions.
    pub sessions: SessionSpec,
    /// The columns of the input.
    pub input: SchemaRef,
}

impl Node for SessionAggregateNode {
    fn schema(&self) -> &SchemaRef {
        &self.spec.schema
    }

    fn exchange(&self, _: usize) -> Exchange {
        by_key(&self.sessions.keys)
    }

    fn state(&self) -> Option<State> {
        Some(State {
            kind: Saved::SessionAggregate,
            identity: identity::session_aggregate(&self.spec, &self.input),
            is_read_whole: false,
        })
    }

    fn changelog(&self, _: bool) -> Changelog {
        Changelog::appends()
    }

    fn settle(&mut self, _: bool) {}

    fn growth(&self, _: &str) -> Vec<Growth> {
        Vec::new()
    }

    fn facts(&self) -> Facts<'_> {
        let calls = &self.spec.calls;
        let order = match calls.iter().all(|call| call.is_exact(&self.input)) {
            true => Order::Unseen,
            false => Order::Seen,
        };
        Facts {
            order,
            sorted: Sorted::No,
            orders_by_origin: calls.iter().any(|call| call.function.needs_order()),
            may_be_dealt: false,
            first_input: None,
            behind: Behind::ByWindow,
            rejects_input_rows: false,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(10_000.0, 200.0, Cost::ROWS_OUT_STATE),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        let (spec, sessions) = (self.spec.clone(), self.sessions.clone());
        Ok(Operator::stateful(SessionAggregate::new(
            spec,
            sessions,
            &self.input,
        )?))
    }
}

/// Whether an aggregation can merge sessions itself: its keys are the edges and the partition of the
/// sessions, and it uses nothing else of them.
pub fn can_merge_sessions(keys: &[Expr], calls: &[Expr], plan: &LogicalPlan) -> bool {
    let mut places = Vec::new();
    for key in keys {
        let Expr::Column(column) = key else {
            return false;
        };
        let Ok(index) = plan.schema().index_of_column(column) else {
            return false;
        };
        match origin(plan, index) {
            Some((window, at)) if window.windows.kind == WindowKind::Session => {
                places.push((window, at));
            }
            _ => return false,
        }
    }
    let Some(&(window, _)) = places.first() else {
        return false;
    };
    let width = window.input.schema().fields().len();
    let is_edge = |at: usize| at == width || at == width + 1;
    let partition = window.partition_by.iter();
    let partition = partition.map(|column| window.input.schema().index_of_column(column).ok());
    let Some(partition) = partition.collect::<Option<Vec<usize>>>() else {
        return false;
    };
    let has = |wanted: usize| places.iter().any(|(_, at)| *at == wanted);
    let mut own = places.iter().map(|(_, at)| *at);
    own.all(|at| is_edge(at) || partition.contains(&at))
        && places.iter().any(|(_, at)| is_edge(*at))
        && partition.into_iter().all(has)
        && calls.iter().all(|call| reads_input(plan, call))
}

/// The window function of which a plan only renames columns, and the index of the column in its output.
fn origin(plan: &LogicalPlan, index: usize) -> Option<(&WindowNode, usize)> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => origin(&alias.input, index),
        LogicalPlan::Projection(projection) => {
            let mut expression = projection.expr.get(index)?;
            while let Expr::Alias(alias) = expression {
                expression = &alias.expr;
            }
            let below = projection.input.schema();
            let index = below.index_of_column(expression.try_as_col()?).ok()?;
            origin(&projection.input, index)
        }
        LogicalPlan::Extension(extension) => {
            let window = extension.node.as_any().downcast_ref::<WindowNode>()?;
            Some((window, index))
        }
        _ => None,
    }
}

/// Whether an expression over a plan that [`origin`] accepts reads only columns of the window's input.
fn reads_input(plan: &LogicalPlan, expression: &Expr) -> bool {
    let mut columns = expression.column_refs().into_iter();
    columns.all(|column| {
        let Ok(index) = plan.schema().index_of_column(column) else {
            return false;
        };
        match plan {
            LogicalPlan::SubqueryAlias(alias) => {
                let column = alias.input.schema().columns().into_iter().nth(index);
                column.is_some_and(|column| reads_input(&alias.input, &Expr::Column(column)))
            }
            LogicalPlan::Projection(projection) => {
                reads_input(&projection.input, &projection.expr[index])
            }
            LogicalPlan::Extension(extension) => {
                let window = extension.node.as_any().downcast_ref::<WindowNode>();
                window.is_some_and(|window| index < window.input.schema().fields().len())
            }
            _ => false,
        }
    })
}
