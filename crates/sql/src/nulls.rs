//! Which expressions are never NULL, as far as a plan says: columns can't be declared so.

use datafusion_common::Column;
use datafusion_expr::utils::split_conjunction;
use datafusion_expr::{Expr, JoinType, LogicalPlan, Operator};

use crate::window::WindowNode;

/// Whether an expression over a plan's columns is never NULL.
pub fn is_never_null(expression: &Expr, plan: &LogicalPlan) -> bool {
    match expression {
        Expr::Alias(alias) => is_never_null(&alias.expr, plan),
        // A cast that fails condemns its row.
        Expr::Cast(cast) => is_never_null(&cast.expr, plan),
        Expr::Literal(value, _) => !value.is_null(),
        Expr::Column(column) => {
            let index = plan.schema().maybe_index_of_column(column);
            index.is_some_and(|index| is_column_never_null(index, plan))
        }
        _ => false,
    }
}

fn is_column_never_null(index: usize, plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            is_never_null(&projection.expr[index], &projection.input)
        }
        LogicalPlan::SubqueryAlias(alias) => is_column_never_null(index, &alias.input),
        LogicalPlan::Filter(filter) => {
            let column = Column::from(plan.schema().qualified_field(index));
            let mut conditions = split_conjunction(&filter.predicate).into_iter();
            conditions.any(|condition| needs_value(condition, &column))
                || is_column_never_null(index, &filter.input)
        }
        LogicalPlan::Aggregate(aggregate) => {
            let keys = aggregate.group_expr.len();
            match aggregate.group_expr.get(index) {
                Some(Expr::GroupingSet(_)) => false,
                Some(key) => is_never_null(key, &aggregate.input),
                None => match aggregate.aggr_expr[index - keys].clone().unalias() {
                    Expr::AggregateFunction(call) => call.func.name() == "count",
                    _ => false,
                },
            }
        }
        LogicalPlan::Join(join) => {
            let left = join.left.schema().fields().len();
            match join.join_type {
                JoinType::Inner if index >= left => is_column_never_null(index - left, &join.right),
                JoinType::Inner | JoinType::LeftSemi | JoinType::LeftAnti => {
                    is_column_never_null(index, &join.left)
                }
                JoinType::Left if index < left => is_column_never_null(index, &join.left),
                _ => false,
            }
        }
        LogicalPlan::Extension(extension) => {
            match extension.node.as_any().downcast_ref::<WindowNode>() {
                Some(window) if index < window.input.schema().fields().len() => {
                    is_column_never_null(index, &window.input)
                }
                // The window's edges.
                Some(_) => true,
                None => false,
            }
        }
        _ => false,
    }
}

/// Whether a condition holds for no row in which the column is NULL.
fn needs_value(condition: &Expr, column: &Column) -> bool {
    let is_it = |expression: &Expr| match expression {
        Expr::Cast(cast) => matches!(cast.expr.as_ref(), Expr::Column(of) if of == column),
        Expr::Column(of) => of == column,
        _ => false,
    };
    match condition {
        Expr::IsNotNull(expression) => is_it(expression),
        Expr::BinaryExpr(binary) => {
            let compares = matches!(
                binary.op,
                Operator::Eq
                    | Operator::NotEq
                    | Operator::Lt
                    | Operator::LtEq
                    | Operator::Gt
                    | Operator::GtEq
            );
            compares && (is_it(&binary.left) || is_it(&binary.right))
        }
        Expr::Like(like) => is_it(&like.expr),
        Expr::Between(between) => is_it(&between.expr),
        Expr::InList(list) => is_it(&list.expr),
        _ => false,
    }
}
