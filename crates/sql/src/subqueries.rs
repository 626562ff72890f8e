//! Subqueries inside of expressions: which ones become joins, and what is lost on the way is put right or
//! refused.
//!
//! DataFusion's rules turn `IN (SELECT …)` and `EXISTS` into semi and anti joins, and subqueries that are
//! values into left joins. They assume what an aggregate over nothing gives: `COUNT` 0 and the others NULL.
//! Here such an aggregate gives no row until the first comes, which a join turns into NULL. So COUNT needs
//! care, and so does whatever asks whether the one row of an aggregate exists.

use datafusion_common::DataFusionError;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::expr::{Exists, InSubquery};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::logical_plan::{Aggregate, Subquery};
use datafusion_expr::{Expr, LogicalPlan, lit};

use crate::error::{Result, SqlError, to_span};

/// Checks the subqueries in the expressions of a plan, and lets a COUNT over nothing be 0.
pub fn prepare(plan: LogicalPlan) -> Result<LogicalPlan> {
    let failed = |error: SqlError| DataFusionError::External(Box::new(error));
    let prepared = plan.transform_up_with_subqueries(|node| {
        // An expression that is changed keeps its column's name.
        let preserver = NamePreserver::new(&node);
        node.map_expressions(|expression| {
            let name = preserver.save(&expression);
            let changed = expression.transform_up(|part| prepare_part(part).map_err(failed))?;
            Ok(changed.update_data(|expression| name.restore(expression)))
        })
    })?;
    Ok(prepared.data)
}

fn prepare_part(part: Expr) -> Result<Transformed<Expr>> {
    match &part {
        Expr::Exists(Exists { subquery, .. }) if aggregate_of(&subquery.subquery).is_some() => {
            Err(SqlError::new(
                "EXISTS of an aggregate without GROUP BY is always true: that has one row",
            )
            .near("EXISTS")
            .mend("EXISTS (SELECT 1 FROM t WHERE t.a = o.a), or compare the aggregate itself"))
        }
        Expr::InSubquery(InSubquery { subquery, .. })
            if !subquery.outer_ref_columns.is_empty()
                && aggregate_of(&subquery.subquery).is_some() =>
        {
            Err(SqlError::new(
                "IN takes rows, and this subquery is one value for each row of the query",
            )
            .near("IN")
            .mend("compare with it: x = (SELECT MAX(…) …)"))
        }
        Expr::ScalarSubquery(subquery) => scalar(subquery),
        _ => Ok(Transformed::no(part)),
    }
}

/// A subquery that is a value.
fn scalar(subquery: &Subquery) -> Result<Transformed<Expr>> {
    let whole = Expr::ScalarSubquery(subquery.clone());
    let Some(aggregate) = aggregate_of(&subquery.subquery) else {
        let error = "a subquery that is a value has to have one row, and this one may have more";
        let error = SqlError::new(error)
            .mend("take an aggregate without GROUP BY: (SELECT MAX(x) FROM t), or join with it");
        return Err(match subquery.spans.first() {
            Some(span) => error.at(to_span(span)),
            None => error.near("SELECT"),
        });
    };
    // Of one that depends on the row the rule itself knows what it is over nothing.
    if !subquery.outer_ref_columns.is_empty() || !aggregate.aggr_expr.iter().any(is_count) {
        return Ok(Transformed::no(whole));
    }
    let is_alone = aggregate.aggr_expr.len() == 1 && computes_nothing(&subquery.subquery);
    if !is_alone {
        return Err(
            SqlError::new("a subquery with COUNT beside other values is not known here")
                .near("COUNT")
                .mend("compute outside of it: 2 * (SELECT COUNT(*) FROM t)"),
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

/// The aggregate without GROUP BY that a subquery's one row comes from.
fn aggregate_of(plan: &LogicalPlan) -> Option<&Aggregate> {
    match plan {
        LogicalPlan::Projection(projection) => aggregate_of(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => aggregate_of(&alias.input),
        LogicalPlan::Filter(filter) => aggregate_of(&filter.input),
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => Some(aggregate),
        _ => None,
    }
}

/// Whether nothing is computed from the aggregate, and no condition drops it.
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
