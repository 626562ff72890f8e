//! Subqueries inside of expressions: which ones become joins, and what is lost on the way is put right or
//! refused.
//!
//! DataFusion's rules turn `IN (SELECT …)` and `EXISTS` into semi and anti joins, and subqueries that are
//! values into left joins. They assume what an aggregate over nothing gives: `COUNT` 0 and the others NULL.
//! Here such an aggregate gives no row until the first comes, which a join turns into NULL. So COUNT needs
//! care, and so does whatever asks whether the one row of an aggregate exists.

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

/// Checks the subqueries in the expressions of a plan, and lets a COUNT over nothing be 0.
pub fn prepare(plan: LogicalPlan) -> Result<LogicalPlan> {
    let failed = |error: SqlError| DataFusionError::External(Box::new(error));
    let prepared = plan.transform_up_with_subqueries(|node| {
        // An expression that is changed keeps its column's name.
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

/// The condition with NOT EXISTS in the place of a NOT IN neither side of which can be NULL: they say the same
/// then. This is looked at before anything is moved, where the query says it.
fn without_nulls(mut filter: Filter) -> datafusion_common::Result<LogicalPlan> {
    let conditions = split_conjunction_owned(filter.predicate);
    let mut parts = Vec::new();
    for (at, part) in conditions.iter().enumerate() {
        let mut others = conditions.iter().enumerate().filter(|(of, _)| *of != at);
        let is_value = |value: &Expr| {
            others.any(|(_, other)| needs_value(other, value))
                || is_never_null(value, &filter.input)
        };
        parts.push(match part {
            Expr::InSubquery(of) if of.negated => match not_exists(of, &filter.input, is_value)? {
                Some(part) => part,
                None => part.clone(),
            },
            part => part.clone(),
        });
    }
    filter.predicate = conjunction(parts).expect("a condition has a part");
    Ok(LogicalPlan::Filter(filter))
}

/// The name of the column that a NOT IN looks among.
const AMONG: &str = "__value";

/// `x NOT IN (SELECT y …)` as `NOT EXISTS (SELECT … WHERE y = x)`, if there is no NULL.
fn not_exists(
    of: &InSubquery,
    outer: &LogicalPlan,
    mut is_value: impl FnMut(&Expr) -> bool,
) -> datafusion_common::Result<Option<Expr>> {
    let plan = of.subquery.subquery.as_ref();
    let column = Expr::Column(Column::from(plan.schema().qualified_field(0)));
    // The rule leaves LIMIT out of what is only looked for.
    let has_limit = plan.exists(|node| Ok(matches!(node, LogicalPlan::Limit(_))))?;
    if has_limit
        || of.expr.contains_outer()
        || aggregate_of(plan).is_some()
        || !is_value(&of.expr)
        || !is_never_null(&column, plan)
    {
        return Ok(None);
    }
    let mut outer_ref_columns = of.subquery.outer_ref_columns.clone();
    let value = of.expr.as_ref().clone().transform_up(|part| match part {
        Expr::Column(column) => {
            let field = Arc::clone(outer.schema().field_from_column(&column)?);
            let part = Expr::OuterReferenceColumn(field, column);
            outer_ref_columns.push(part.clone());
            Ok(Transformed::yes(part))
        }
        part => Ok(Transformed::no(part)),
    })?;
    // The query may read the same table, and the subquery may compare the column itself.
    let among = LogicalPlanBuilder::from(plan.clone()).project(vec![column.alias(AMONG)])?;
    let among = among.build()?;
    let column = Expr::Column(Column::from_name(AMONG));
    let found = Filter::try_new(column.eq(value.data), Arc::new(among))?;
    let subquery = Subquery {
        subquery: Arc::new(LogicalPlan::Filter(found)),
        outer_ref_columns,
        spans: of.subquery.spans.clone(),
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
                "EXISTS of an aggregate without GROUP BY is always true: that has one row",
            )
            .near("EXISTS")
            .hint("EXISTS (SELECT 1 FROM t WHERE t.a = o.a), or compare the aggregate itself"))
        }
        Expr::InSubquery(InSubquery { subquery, .. })
            if !subquery.outer_ref_columns.is_empty()
                && aggregate_of(&subquery.subquery).is_some() =>
        {
            Err(SqlError::new(
                "IN takes rows, and this subquery is one value for each row of the query",
            )
            .near("IN")
            .hint("compare with it: x = (SELECT MAX(…) …)"))
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
            .hint("take an aggregate without GROUP BY: (SELECT MAX(x) FROM t), or join with it");
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
                .hint("compute outside of it: 2 * (SELECT COUNT(*) FROM t)"),
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
