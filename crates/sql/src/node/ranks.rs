//! Conditions on ROW_NUMBER(), and the rows that it numbers.

use datafusion_common::{Column, ScalarValue};
use datafusion_expr::expr::WindowFunction;
use datafusion_expr::logical_plan::{Projection, Window};
use datafusion_expr::utils::split_conjunction;
use datafusion_expr::{Expr, LogicalPlan, Operator, WindowFunctionDefinition};

use crate::error::{Result, SqlError};

/// The maximum N of `ROW_NUMBER() <= N`: state holds N rows of each partition.
const LIMIT_MAX: u64 = 1_000_000;

/// A condition of the form ROW_NUMBER() <= N.
pub struct Top<'f> {
    pub limit: usize,
    /// The other conditions that must hold.
    pub rest: Vec<&'f Expr>,
}

/// Rows with their row numbers.
pub struct Numbered<'p> {
    pub window: &'p Window,
    pub call: &'p WindowFunction,
    /// The projections between the window and the condition, from below; the optimizer leaves out columns
    /// that are not used.
    pub projections: Vec<&'p Projection>,
    /// The index of the row number's column, above the projections.
    pub rank: usize,
}

/// The numbered rows that a plan reads, if it reads any.
pub fn numbered(plan: &LogicalPlan) -> Result<Option<Numbered<'_>>> {
    match plan {
        LogicalPlan::Window(window) => {
            let [expression] = window.window_expr.as_slice() else {
                return Ok(None);
            };
            let call = rank_call(expression);
            Ok(call.map(|call| Numbered {
                window,
                call,
                projections: Vec::new(),
                rank: window.schema.fields().len() - 1,
            }))
        }
        LogicalPlan::SubqueryAlias(alias) => numbered(&alias.input),
        LogicalPlan::Projection(projection) => {
            let Some(mut numbered) = numbered(&projection.input)? else {
                return Ok(None);
            };
            let below = projection.input.schema();
            let is_rank = |expression: &Expr| {
                let column = expression.clone().unalias();
                let column = column
                    .try_as_col()
                    .and_then(|c| below.maybe_index_of_column(c));
                column == Some(numbered.rank)
            };
            let Some(rank) = projection.expr.iter().position(is_rank) else {
                return Ok(None);
            };
            numbered.rank = rank;
            numbered.projections.push(projection);
            Ok(Some(numbered))
        }
        _ => Ok(None),
    }
}

/// The call of the function that numbers the rows.
fn rank_call(mut expression: &Expr) -> Option<&WindowFunction> {
    while let Expr::Alias(alias) = expression {
        expression = &alias.expr;
    }
    let Expr::WindowFunction(call) = expression else {
        return None;
    };
    let WindowFunctionDefinition::WindowUDF(function) = &call.fun else {
        return None;
    };
    ["row_number", "rank", "dense_rank"]
        .contains(&function.name())
        .then_some(call)
}

/// Finds `rank <= N` in a condition; `None` if the condition does not limit the rank.
pub fn top<'f>(predicate: &'f Expr, is_rank: &impl Fn(&Column) -> bool) -> Result<Option<Top<'f>>> {
    let (mut limit, mut rest) = (None::<u64>, Vec::new());
    for part in split_conjunction(predicate) {
        match limit_of(part, is_rank) {
            Some(of_part) => limit = Some(limit.map_or(of_part, |limit| limit.min(of_part))),
            // Always true: every rank is at least 1.
            None if is_always(part, is_rank) => {}
            None => rest.push(part),
        }
    }
    let Some(limit) = limit else {
        return Ok(None);
    };
    if limit == 0 || limit > LIMIT_MAX {
        let error = format!("ROW_NUMBER() <= {limit}: the limit must be between 1 and {LIMIT_MAX}");
        return Err(SqlError::new(error).near("ROW_NUMBER"));
    }
    let limit = limit as usize;
    Ok(Some(Top { limit, rest }))
}

/// The comparison of the rank with a number, with the rank on the left.
fn comparison(part: &Expr, is_rank: &impl Fn(&Column) -> bool) -> Option<(Operator, i128)> {
    let Expr::BinaryExpr(binary) = part else {
        return None;
    };
    let is_rank = |side: &Expr| uncast(side).try_as_col().is_some_and(is_rank);
    let (operator, number) = if is_rank(&binary.left) {
        (binary.op, &binary.right)
    } else if is_rank(&binary.right) {
        (binary.op.swap()?, &binary.left)
    } else {
        return None;
    };
    let Expr::Literal(value, _) = uncast(number) else {
        return None;
    };
    Some((operator, whole(value)?))
}

fn limit_of(part: &Expr, is_rank: &impl Fn(&Column) -> bool) -> Option<u64> {
    let (operator, number) = comparison(part, is_rank)?;
    let limit = match operator {
        Operator::LtEq => number,
        Operator::Lt => number - 1,
        Operator::Eq if number == 1 => 1,
        _ => return None,
    };
    Some(u64::try_from(limit).unwrap_or(0))
}

fn is_always(part: &Expr, is_rank: &impl Fn(&Column) -> bool) -> bool {
    matches!(
        comparison(part, is_rank),
        Some((Operator::GtEq, ..=1) | (Operator::Gt, ..=0))
    )
}

fn uncast(expression: &Expr) -> &Expr {
    match expression {
        Expr::Cast(cast) => uncast(&cast.expr),
        other => other,
    }
}

fn whole(value: &ScalarValue) -> Option<i128> {
    Some(match value {
        ScalarValue::Int8(Some(n)) => i128::from(*n),
        ScalarValue::Int16(Some(n)) => i128::from(*n),
        ScalarValue::Int32(Some(n)) => i128::from(*n),
        ScalarValue::Int64(Some(n)) => i128::from(*n),
        ScalarValue::UInt64(Some(n)) => i128::from(*n),
        _ => return None,
    })
}
