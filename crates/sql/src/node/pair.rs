//! What joins of two streams share: the columns of both sides, the condition over them, and their description
//! in EXPLAIN.

use std::fmt::Debug;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use datafusion_expr::logical_plan::Join;
use datafusion_expr::{Expr, LogicalPlan, Operator};
use datafusion_physical_expr::expressions::BinaryExpr;
use slackwater_engine::expression::Expression;
use slackwater_engine::operator::join::JoinKind;

use super::stream::{Role, Stream};
use super::translator::refuse_subqueries;
use crate::error::Result;
use crate::expression::{Physical, PhysicalExpression, column, physical, replace_columns};

/// The columns of both sides of a join, side by side.
pub struct Pair<'a> {
    join: &'a Join,
    /// The columns of both nodes.
    pub schema: SchemaRef,
    /// The index of each side's first column.
    pub starts: [usize; 2],
    /// The columns of the join in SQL's order: those of both plans, without columns that were added.
    pub columns: Vec<Physical>,
}

/// The plans of both sides of a join.
pub fn plans(join: &Join) -> [&LogicalPlan; 2] {
    [join.left.as_ref(), join.right.as_ref()]
}

impl<'a> Pair<'a> {
    /// The pair of two nodes with these columns: those of the join's sides, followed by added ones.
    pub fn new(join: &'a Join, sides: [&SchemaRef; 2]) -> Pair<'a> {
        let fields = sides.iter().flat_map(|side| side.fields().iter().cloned());
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let starts = [0, sides[0].fields().len()];
        let columns = starts.into_iter().zip(plans(join));
        let columns = columns.flat_map(|(start, plan)| {
            let of_plan = 0..plan.schema().fields().len();
            of_plan.map(move |at| start + at)
        });
        Pair {
            join,
            starts,
            columns: columns.map(|at| column(at, &schema)).collect(),
            schema,
        }
    }

    /// A condition of the join over its columns.
    pub fn condition(&self, filter: Option<&Expr>) -> Result<Option<Arc<dyn Expression>>> {
        let Some(filter) = filter else {
            return Ok(None);
        };
        refuse_subqueries(filter)?;
        let both = self.join.left.schema().join(self.join.right.schema())?;
        let bound = replace_columns(&physical(filter, &both)?, &self.columns)?;
        Ok(Some(PhysicalExpression::over(bound, &self.schema)?))
    }

    /// The columns of the output, with their roles: a side that may be padded with NULL has no event time and
    /// no window after the join.
    pub fn output(self, kind: JoinKind, streams: &[Stream; 2]) -> (Vec<Physical>, Vec<Role>) {
        let roles = streams.iter().zip(padded(kind));
        let roles = roles.flat_map(|(stream, padded)| {
            let roles = stream.roles.iter();
            roles.map(move |role| if padded { Role::Plain } else { *role })
        });
        let (mut columns, mut roles) = (self.columns, roles.collect::<Vec<Role>>());
        if kind.is_of_left() {
            let of_left = self.join.left.schema().fields().len();
            columns.truncate(of_left);
            roles.truncate(of_left);
        }
        (columns, roles)
    }
}

/// Whether each side is padded with NULL for rows without a partner.
pub fn padded(kind: JoinKind) -> [bool; 2] {
    [
        matches!(kind, JoinKind::Right | JoinKind::Full),
        matches!(kind, JoinKind::Left | JoinKind::Full),
    ]
}

/// Several conditions combined with AND.
pub fn all_of(
    conditions: Vec<Physical>,
    schema: &SchemaRef,
) -> Result<Option<Arc<dyn Expression>>> {
    let and = |one, other| Arc::new(BinaryExpr::new(one, Operator::And, other)) as Physical;
    match conditions.into_iter().reduce(and) {
        None => Ok(None),
        Some(all) => Ok(Some(PhysicalExpression::over(all, schema)?)),
    }
}

/// The conditions of a join in EXPLAIN: pairs of equal columns, by their indices on both sides, and the other
/// condition.
pub fn shown(
    keys: [&[usize]; 2],
    schemas: [&Schema; 2],
    condition: Option<&impl Debug>,
) -> Vec<String> {
    let name = |side: usize, index: usize| schemas[side].field(index).name();
    let pairs = keys[0].iter().zip(keys[1]);
    let pairs = pairs.map(|(&left, &right)| format!("{} = {}", name(0, left), name(1, right)));
    let condition = condition.map(|condition| format!("{condition:#?}"));
    pairs.chain(condition).collect()
}
