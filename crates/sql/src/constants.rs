//! Rejects constants that can't be computed, and invalid regular expressions, before the query runs.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, DataFusionError};
use datafusion_expr::{Expr, LogicalPlan, Operator};

use crate::error::{Result, SqlError};
use crate::explain;
use crate::expression::{constant, physical, reason};
use crate::simplify::computable;

/// Rejects a plan with a constant that overflows (the optimizer would compute it with wrapping arithmetic),
/// or with an invalid regular expression.
pub fn check(plan: &LogicalPlan) -> Result<()> {
    let mut overflow = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| match check_constant(part) {
                Some(Ok(())) => Ok(TreeNodeRecursion::Jump),
                None => Ok(TreeNodeRecursion::Continue),
                Some(Err(error)) => {
                    overflow = Some(error);
                    Ok(TreeNodeRecursion::Stop)
                }
            })
        })
    })?;
    overflow.map_or(Ok(()), Err)
}

/// Computes a sum, difference or product of constants; `None` for any other expression.
fn check_constant(part: &Expr) -> Option<Result<()>> {
    let Expr::BinaryExpr(binary) = part else {
        return None;
    };
    if let Some(error) = wrong_pattern(binary) {
        return Some(Err(error));
    }
    let wraps = matches!(
        binary.op,
        Operator::Plus | Operator::Minus | Operator::Multiply
    );
    if !wraps || part.is_volatile() || part.any_column_refs() {
        return None;
    }
    // An expression that can't be computed is not a constant, or is rejected by the planner.
    let part = computable(part, &DFSchema::empty()).ok()?;
    let computed = physical(&part, &DFSchema::empty()).ok()?;
    let error = constant(&part).err()?;
    let place = explain::expression(&computed);
    let message = format!("{place}: {}", reason(error));
    Some(Err(SqlError::new(message).hint(
        "use a constant that fits its type, or CAST its operands to a wider type",
    )))
}

/// The error for a constant that is not a valid regular expression.
fn wrong_pattern(binary: &datafusion_expr::BinaryExpr) -> Option<SqlError> {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    let matches = [RegexMatch, RegexIMatch, RegexNotMatch, RegexNotIMatch];
    let mut right = binary.right.as_ref();
    while let Expr::Cast(cast) = right {
        right = &cast.expr;
    }
    let Expr::Literal(pattern, _) = right else {
        return None;
    };
    let pattern = pattern.try_as_str()??;
    if !matches.contains(&binary.op) {
        return None;
    }
    let error = regex::Regex::new(pattern).err()?;
    Some(SqlError::from(DataFusionError::Plan(error.to_string())))
}
