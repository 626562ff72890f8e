//! Semi and anti joins, written as such or as `IN (SELECT …)` and `EXISTS`: the steps before they are
//! translated like other joins.

use std::sync::Arc;

use datafusion_common::JoinType;
use datafusion_expr::logical_plan::Join;
use datafusion_expr::utils::split_conjunction;
use datafusion_expr::{Expr, Operator};
use slackwater_engine::operator::join::JoinKind;
use slackwater_engine::operator::table_join::Only;

use super::filter::is_true;
use crate::check::misplaced;
use crate::error::{Result, SqlError};
use crate::nulls::is_never_null;

/// The engine's kind of a join, if it is supported.
pub fn kind(join: &Join) -> Result<JoinKind> {
    Ok(match join.join_type {
        JoinType::Inner => JoinKind::Inner,
        JoinType::Left => JoinKind::Left,
        JoinType::Right => JoinKind::Right,
        JoinType::Full => JoinKind::Full,
        JoinType::LeftSemi | JoinType::RightSemi => JoinKind::Semi,
        JoinType::LeftAnti | JoinType::RightAnti => JoinKind::Anti,
        JoinType::LeftMark | JoinType::RightMark => return Err(misplaced()),
    })
}

/// The join with its sides exchanged so that the left rows are kept, and without a condition that is always
/// true; `None` if nothing changes.
pub fn in_order(join: &Join) -> Option<Join> {
    let turned = match join.join_type {
        JoinType::RightSemi => Some(JoinType::LeftSemi),
        JoinType::RightAnti => Some(JoinType::LeftAnti),
        _ => None,
    };
    let always = join.filter.as_ref().is_some_and(is_true);
    if turned.is_none() && !always {
        return None;
    }
    let mut join = join.clone();
    if always {
        join.filter = None;
    }
    if let Some(turned) = turned {
        join.join_type = turned;
        std::mem::swap(&mut join.left, &mut join.right);
        let on = join.on.into_iter();
        join.on = on.map(|(left, right)| (right, left)).collect();
        join.schema = Arc::clone(join.left.schema());
    }
    Some(join)
}

/// Which rows of the stream a join with a table returns, if it returns only columns of the stream.
pub fn only(join: &Join, kind: JoinKind) -> Result<Option<Only>> {
    Ok(match kind {
        JoinKind::Semi => Some(Only::WithPartner),
        JoinKind::Anti if !join.null_aware || has_no_nulls(join) => Some(Only::WithoutPartner),
        JoinKind::Anti if join.on.len() == 1 && join.filter.is_none() => Some(Only::NotAmong),
        JoinKind::Anti => return Err(not_in()),
        _ => None,
    })
}

/// Rejects a NOT IN of streams if a value may be NULL: a NULL on the right side makes every answer unknown,
/// also those that were already emitted.
pub fn check_not_in(join: &Join) -> Result<()> {
    match join.null_aware && !has_no_nulls(join) {
        true => Err(not_in()),
        false => Ok(()),
    }
}

fn not_in() -> SqlError {
    SqlError::new("NOT IN returns no rows if there is a NULL on its right side")
        .near("IN")
        .hint(
            "use NOT EXISTS (SELECT 1 FROM t WHERE t.y = o.x), or exclude NULL on both sides: \
            WHERE x IS NOT NULL AND x NOT IN (SELECT y FROM t WHERE y IS NOT NULL)",
        )
}

/// Whether neither side of a NOT IN can be NULL. Which of several equal pairs belongs to NOT IN is no longer
/// known, so all are checked.
fn has_no_nulls(join: &Join) -> bool {
    let is_equation =
        |part: &Expr| matches!(part, Expr::BinaryExpr(binary) if binary.op == Operator::Eq);
    let filters = join.filter.iter().flat_map(split_conjunction);
    let mut pairs = join.on.iter();
    !join.on.is_empty()
        && filters.into_iter().all(|part| !is_equation(part))
        && pairs.all(|(left, right)| {
            is_never_null(left, &join.left) && is_never_null(right, &join.right)
        })
}
