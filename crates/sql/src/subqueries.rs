//! Subqueries in expressions: which ones become joins; what DataFusion's rules get wrong for streams is
//! corrected or rejected.
//!
//! DataFusion's rules turn `IN (SELECT …)` and `EXISTS` into semi and anti joins, and scalar subqueries into
//! left joins. They assume that an aggregate over no rows returns one row: 0 for `COUNT`, NULL for the
//! others. Here it returns no row until the first input row arrives, and the join turns that into NULL. So
//! COUNT needs a correction, and so does EXISTS of an aggregate.

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, DataFusionError, ExprSchema};
use datafusion_expr::expr::{Exists, InSubquery};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::logical_plan::{Aggregate, Filter, Subquery};
use datafusion_expr::utils::{conjunction, split_conjunction_owned};
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};

use crate::error::{Result, SqlError, to_span};
use crate::nulls::{is_never_null, needs_value};

/// Checks the subqueries in the expressions of a plan, and makes a COUNT over no rows 0.
pub fn prepare(plan: LogicalPlan) -> Result<LogicalPlan> {
    let failed = |error: SqlError| DataFusionError::External(Box::new(error));
    let prepared = plan.transform_up_with_subqueries(|node| {
        // A rewritten expression keeps the name of its column.
        let preserver = NamePreserver::new(&node);
        let node = match node {
            LogicalPlan::Filter(filter) => without_nulls(filter)?,
            node => node,
        };
        node.map_expressions(|expression| {
            let name = preserver.save(&expression);
            let changed = expression.transform_up(|part| prepare_part(part).map_err(failed))?;
            Ok(changed.update_data(|expression| name.restore(expression)))
        })
    })?;
    Ok(prepared.data)
}

/// The condition with NOT EXISTS instead of a NOT IN whose sides can't be NULL, which is equivalent. This is
/// done before conditions are moved, while they are where the query has them.
fn without_nulls(mut filter: Filter) -> datafusion_common::Result<LogicalPlan> {
    let conditions = split_conjunction_owned(filter.predicate);
    let mut parts = Vec::new();
    for (at, part) in conditions.iter().enumerate() {
        let mut others = conditions
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at);
        let is_value = |value: &Expr| {
            others.any(|(_, other)| needs_value(other, value))
                || is_never_null(value, &filter.input)
        };
        parts.push(match part {
            Expr::InSubquery(subquery) if subquery.negated => {
                match not_exists(subquery, &filter.input, is_value)? {
                    Some(part) => part,
                    None => part.clone(),
                }
            }
            part => part.clone(),
        });
    }
    filter.predicate = conjunction(parts).expect("a condition has a part");
    Ok(LogicalPlan::Filter(filter))
}

/// The name of the column that a NOT IN searches.
const AMONG: &str = "__value";

/// `x NOT IN (SELECT y …)` as `NOT EXISTS (SELECT … WHERE y = x)`, if no value can be NULL.
fn not_exists(
    in_subquery: &InSubquery,
    outer: &LogicalPlan,
    mut is_value: impl FnMut(&Expr) -> bool,
) -> datafusion_common::Result<Option<Expr>> {
    let plan = in_subquery.subquery.subquery.as_ref();
    let column = Expr::Column(Column::from(plan.schema().qualified_field(0)));
    // DataFusion's rule would ignore a LIMIT in the subquery of EXISTS.
    let has_limit = plan.exists(|node| Ok(matches!(node, LogicalPlan::Limit(_))))?;
    if has_limit
        || in_subquery.expr.contains_outer()
        || aggregate_of(plan).is_some()
        || !is_value(&in_subquery.expr)
        || !is_never_null(&column, plan)
    {
        return Ok(None);
    }
    let mut outer_ref_columns = in_subquery.subquery.outer_ref_columns.clone();
    let value = in_subquery
        .expr
        .as_ref()
        .clone()
        .transform_up(|part| match part {
            Expr::Column(column) => {
                let field = Arc::clone(outer.schema().field_from_column(&column)?);
                let part = Expr::OuterReferenceColumn(field, column);
                outer_ref_columns.push(part.clone());
                Ok(Transformed::yes(part))
            }
            part => Ok(Transformed::no(part)),
        })?;
    // An alias, because the query may read the same table, and the subquery may use the column itself.
    let among = LogicalPlanBuilder::from(plan.clone()).project(vec![column.alias(AMONG)])?;
    let among = among.build()?;
    let column = Expr::Column(Column::from_name(AMONG));
    let found = Filter::try_new(column.eq(value.data), Arc::new(among))?;
    let subquery = Subquery {
        subquery: Arc::new(LogicalPlan::Filter(found)),
        outer_ref_columns,
        spans: in_subquery.subquery.spans.clone(),
    };
    Ok(Some(Expr::Exists(Exists {
        subquery,
        negated: true,
    })))
}

fn prepare_part(part: Expr) -> Result<Transformed<Expr>> {
    match &part {
        Expr::Exists(Exists { subquery, .. }) if aggregate_of(&subquery.subquery).is_some() => {
            Err(SqlError::new(
                "EXISTS is always true for an aggregate without GROUP BY, which has exactly one row",
            )
            .near("EXISTS")
            .hint("use EXISTS (SELECT 1 FROM t WHERE t.a = o.a), or compare the aggregate itself"))
        }
        Expr::InSubquery(InSubquery { subquery, .. })
            if !subquery.outer_ref_columns.is_empty()
                && aggregate_of(&subquery.subquery).is_some() =>
        {
            Err(SqlError::new(
                "IN needs a subquery with rows, and this one returns one value for each row of the query",
            )
            .near("IN")
            .hint("compare with it: x = (SELECT MAX(…) …)"))
        }
        Expr::ScalarSubquery(subquery) => scalar(subquery),
        _ => Ok(Transformed::no(part)),
    }
}

/// Checks a scalar subquery.
fn scalar(subquery: &Subquery) -> Result<Transformed<Expr>> {
    let whole = Expr::ScalarSubquery(subquery.clone());
    let Some(aggregate) = aggregate_of(&subquery.subquery) else {
        let error = "a scalar subquery must return one row, and this one may return more";
        let error = SqlError::new(error)
            .hint("use an aggregate without GROUP BY: (SELECT MAX(x) FROM t), or a join");
        return Err(match subquery.spans.first() {
            Some(span) => error.at(to_span(span)),
            None => error.near("SELECT"),
        });
    };
    // For a correlated subquery the rule itself computes the value over no rows.
    if !subquery.outer_ref_columns.is_empty() || !aggregate.aggr_expr.iter().any(is_count) {
        return Ok(Transformed::no(whole));
    }
    let is_alone = aggregate.aggr_expr.len() == 1 && computes_nothing(&subquery.subquery);
    if !is_alone {
        return Err(
            SqlError::new("a subquery with COUNT and other values is not supported")
                .near("COUNT")
                .hint("compute outside of the subquery: 2 * (SELECT COUNT(*) FROM t)"),
        );
    }
    let coalesce = datafusion_functions::core::coalesce();
    Ok(Transformed::yes(coalesce.call(vec![whole, lit(0_i64)])))
}

fn is_count(aggregate: &Expr) -> bool {
    match aggregate.clone().unalias() {
        Expr::AggregateFunction(call) => call.func.name() == "count",
        _ => false,
    }
}

/// The aggregate without GROUP BY that returns the single row of a subquery.
fn aggregate_of(plan: &LogicalPlan) -> Option<&Aggregate> {
    match plan {
        LogicalPlan::Projection(projection) => aggregate_of(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => aggregate_of(&alias.input),
        LogicalPlan::Filter(filter) => aggregate_of(&filter.input),
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => Some(aggregate),
        _ => None,
    }
}

/// Whether nothing is computed from the aggregate, and no condition removes it.
fn computes_nothing(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            let mut expressions = projection.expr.iter();
            let is_column =
                |expression: &Expr| matches!(expression.clone().unalias(), Expr::Column(_));
            expressions.all(is_column) && computes_nothing(&projection.input)
        }
        LogicalPlan::SubqueryAlias(alias) => computes_nothing(&alias.input),
        LogicalPlan::Filter(_) => false,
        _ => true,
    }
}
