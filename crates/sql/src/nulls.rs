//! Expressions that are never NULL, as far as a plan shows it: columns can't be declared NOT NULL in plans.

use datafusion_common::Column;
use datafusion_expr::utils::split_conjunction;
use datafusion_expr::{Expr, JoinType, LogicalPlan, Operator};

use crate::prune::InTimeNode;
use crate::window::WindowNode;

/// Functions that return their first argument that is not NULL.
const FIRST_VALUE_OF: [&str; 3] = ["coalesce", "ifnull", "nvl"];

/// Whether an expression over a plan's columns is never NULL.
pub fn is_never_null(expression: &Expr, plan: &LogicalPlan) -> bool {
    match expression {
        Expr::Alias(alias) => is_never_null(&alias.expr, plan),
        // A failing cast rejects its row.
        Expr::Cast(cast) => is_never_null(&cast.expr, plan),
        Expr::Literal(value, _) => !value.is_null(),
        Expr::ScalarFunction(call) if FIRST_VALUE_OF.contains(&call.name()) => call
            .args
            .iter()
            .any(|argument| is_never_null(argument, plan)),
        Expr::Case(case) => {
            let thens = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            let mut values = thens.chain(case.else_expr.as_deref());
            case.else_expr.is_some() && values.all(|value| is_never_null(value, plan))
        }
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
            let column = Expr::Column(Column::from(plan.schema().qualified_field(index)));
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
            if let Some(node) = InTimeNode::of(extension) {
                return is_column_never_null(index, &node.input);
            }
            match extension.node.as_any().downcast_ref::<WindowNode>() {
                Some(window) if index < window.input.schema().fields().len() => {
                    is_column_never_null(index, &window.input)
                }
                // The edges of the window.
                Some(_) => true,
                None => false,
            }
        }
        _ => false,
    }
}

/// Whether a condition is never true for rows in which the value is NULL.
pub fn needs_value(condition: &Expr, value: &Expr) -> bool {
    let value = uncast(value);
    let is_it = |expression: &Expr| uncast(expression) == value && !value.is_volatile();
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

/// The expression without casts: a failing cast rejects its row, so the result is NULL only if the value is.
fn uncast(mut expression: &Expr) -> &Expr {
    while let Expr::Cast(cast) = expression {
        expression = &cast.expr;
    }
    expression
}
