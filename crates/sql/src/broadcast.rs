//! `SELECT /*+ BROADCAST(b) */ … FROM a JOIN b ON …`: every instance of the join gets all rows of `b`.
//!
//! In the plan the hint is a condition of the join: a function of the name, the place of the hint, and
//! columns of both sides, so that the planner leaves it at the join ([`crate::statement`] adds it). The first
//! of these columns belongs to the side ([`guard`]), which can then be found wherever the optimizer moves the
//! join to.

use std::sync::Arc;

use datafusion_common::tree_node::Transformed;
use datafusion_common::{DataFusionError, TableReference};
use datafusion_expr::logical_plan::Join;
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{Expr, LogicalPlan};
use sqlparser::tokenizer::{Location, Span};

use crate::error::{Result, SqlError};
use crate::names::BROADCAST_MARK;

/// The hint of a join.
pub struct Hint {
    /// The side that every instance gets: 0 is the left one, 1 the right one.
    pub side: usize,
    name: String,
    span: Span,
}

impl Hint {
    /// The error for a hint that can't be followed.
    pub fn refused(&self, reason: &str) -> SqlError {
        let name = &self.name;
        SqlError::new(format!(
            "'{name}' can't be broadcast to this join: {reason}"
        ))
        .at(self.span)
        .hint("remove the hint BROADCAST: the answer is the same without it")
    }

    /// Checks that the hint asks for what the join does anyway: it sends `side` to every instance.
    pub fn check(&self, side: usize, what: &str) -> Result<()> {
        match self.side == side {
            true => Ok(()),
            false => Err(self.refused(&format!(
                "every instance gets the other side, which is {what}"
            ))),
        }
    }
}

/// Whether a condition is a hint.
pub fn is_mark(condition: &Expr) -> bool {
    matches!(condition, Expr::ScalarFunction(call) if call.name() == BROADCAST_MARK)
}

/// The name, the place and the columns of a hint.
fn parts(condition: &Expr) -> Option<(String, Span, &[Expr])> {
    let Expr::ScalarFunction(call) = condition else {
        return None;
    };
    let text = |argument: &Expr| match argument {
        Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_string),
        _ => None,
    };
    let [name, place, columns @ ..] = call.args.as_slice() else {
        return None;
    };
    let place = text(place)?;
    let numbers = place
        .split([':', ' '])
        .map(|number| number.parse::<u64>().ok());
    let numbers = numbers.collect::<Option<Vec<u64>>>()?;
    let [line, column, line_end, column_end] = *numbers.as_slice() else {
        return None;
    };
    let span = Span::new(
        Location { line, column },
        Location {
            line: line_end,
            column: column_end,
        },
    );
    Some((text(name)?, span, columns))
}

fn has_column(plan: &LogicalPlan, expression: &Expr) -> bool {
    let columns = expression.column_refs();
    let mut columns = columns.into_iter().peekable();
    columns.peek().is_some() && columns.all(|column| plan.schema().index_of_column(column).is_ok())
}

fn reserved() -> SqlError {
    SqlError::new(format!(
        "{BROADCAST_MARK} is not a function that a query can call"
    ))
    .hint("use SELECT /*+ BROADCAST(b) */ … FROM a JOIN b ON …")
}

/// Puts a column of the side first in each hint of a plan that is not optimized yet.
pub fn guard(plan: LogicalPlan) -> Result<LogicalPlan> {
    let guarded = plan.transform_up_with_subqueries(|part| match part {
        LogicalPlan::Join(mut join) if join.filter.as_ref().is_some_and(has_mark) => {
            let filter = join.filter.take();
            let filter = filter.iter().flat_map(split_conjunction).cloned();
            let filter = filter.map(|condition| match is_mark(&condition) {
                true => with_side(condition, &join),
                false => Ok(condition),
            });
            let filter = filter.collect::<Result<Vec<Expr>>>();
            let filter = filter.map_err(|error| DataFusionError::External(Box::new(error)))?;
            join.filter = conjunction(filter);
            Ok(Transformed::yes(LogicalPlan::Join(join)))
        }
        LogicalPlan::Filter(filter) if has_mark(&filter.predicate) => {
            Err(DataFusionError::External(Box::new(reserved())))
        }
        part => Ok(Transformed::no(part)),
    })?;
    Ok(guarded.data)
}

fn has_mark(condition: &Expr) -> bool {
    split_conjunction(condition).into_iter().any(is_mark)
}

fn with_side(mut condition: Expr, join: &Join) -> Result<Expr> {
    let (name, span, columns) = parts(&condition).ok_or_else(reserved)?;
    let plans = [join.left.as_ref(), join.right.as_ref()];
    let of_table = TableReference::bare(name.clone());
    let is_side = |plan: &&LogicalPlan| !plan.schema().fields_with_qualified(&of_table).is_empty();
    let hint = |side| Hint { side, name, span };
    let Some(side) = plans.iter().position(is_side) else {
        return Err(hint(0).refused("neither side has columns of that name"));
    };
    let of_side = columns
        .iter()
        .position(|column| has_column(plans[side], column));
    let of_other = columns
        .iter()
        .any(|column| has_column(plans[1 - side], column));
    let (Some(first), true) = (of_side, of_other) else {
        return Err(hint(side).refused("its ON does not compare both sides"));
    };
    if let Expr::ScalarFunction(call) = &mut condition {
        // The name and the place come before the columns.
        call.args.swap(2, 2 + first);
    }
    Ok(condition)
}

/// The hint of a join, and the join without it.
pub fn take(join: &Join) -> Result<(Join, Option<Hint>)> {
    let mut join = join.clone();
    let Some(filter) = join.filter.take_if(|filter| has_mark(filter)) else {
        return Ok((join, None));
    };
    let plans = [Arc::clone(&join.left), Arc::clone(&join.right)];
    let (mut hint, mut rest) = (None::<Hint>, Vec::new());
    for condition in split_conjunction(&filter) {
        if !is_mark(condition) {
            rest.push(condition.clone());
            continue;
        }
        let (name, span, columns) = parts(condition).ok_or_else(reserved)?;
        let side = |column: &Expr| plans.iter().position(|plan| has_column(plan, column));
        let side = columns.first().and_then(side).ok_or_else(reserved)?;
        let found = Hint { side, name, span };
        if hint.as_ref().is_some_and(|hint| hint.side != side) {
            return Err(
                found.refused("only one side can be in every instance, and the hint names both")
            );
        }
        hint = Some(found);
    }
    join.filter = conjunction(rest);
    Ok((join, hint))
}
