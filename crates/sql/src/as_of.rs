//! `JOIN table FOR SYSTEM_TIME AS OF stream.ts`: the version of each row that was valid at that time.
//!
//! In the plan, a node of its own ([`VersionsNode`]) stands above the table. A condition on the table must be
//! evaluated after the join: below it, the condition would remove newer versions, and older ones would be
//! joined instead.
//!
//! The parser gets the time as an argument of the table (`statement/rewrite.rs`). The planner doesn't support
//! such joins either, so the time becomes a condition of the join that names both event times; the
//! translation removes it again.

pub mod now;

use std::cmp::Ordering;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchemaRef, DataFusionError, Result as PlanResult};
use datafusion_expr::logical_plan::{Extension, Filter, Join};
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};
use sqlparser::ast::{
    BinaryOperator, Expr as AstExpr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, JoinConstraint, JoinOperator, ObjectName, Query, Select, Spanned,
    TableFactor, TableWithJoins,
};

use crate::broadcast;
use crate::error::{Result, SqlError};
use crate::names::{SYSTEM_TIME_AS_OF, VERSION};
use crate::table::Table;
use crate::walk::{self, Change, Next, ON};

/// Moves each FOR SYSTEM_TIME AS OF into the condition of its join. `table` finds a table by name.
pub fn rewrite(query: &mut Query, table: &dyn Fn(&str) -> Result<Arc<Table>>) -> Result<()> {
    walk::change(query, &mut Rewrite { table })
}

struct Rewrite<'a> {
    table: &'a dyn Fn(&str) -> Result<Arc<Table>>,
}

impl Change for Rewrite<'_> {
    fn select(&mut self, select: &mut Select) -> Next {
        for from in &mut select.from {
            if let Err(error) = self.from(from) {
                return ControlFlow::Break(error);
            }
        }
        ON
    }
}

impl Rewrite<'_> {
    fn from(&self, from: &mut TableWithJoins) -> Result<()> {
        if let Some(time) = take_version(&mut from.relation)? {
            return Err(
                SqlError::new("FOR SYSTEM_TIME AS OF is only allowed on the joined table")
                    .at(time.span())
                    .hint("FROM stream AS s JOIN table FOR SYSTEM_TIME AS OF s.ts AS t ON …"),
            );
        }
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = &mut from.relation
        {
            self.from(table_with_joins)?;
        }
        for join in &mut from.joins {
            let Some(time) = take_version(&mut join.relation)? else {
                continue;
            };
            let versions = self.versions_of(&join.relation, &time)?;
            let on = match &mut join.join_operator {
                JoinOperator::Join(JoinConstraint::On(on))
                | JoinOperator::Inner(JoinConstraint::On(on))
                | JoinOperator::Left(JoinConstraint::On(on))
                | JoinOperator::LeftOuter(JoinConstraint::On(on)) => on,
                _ => {
                    return Err(SqlError::new(
                        "FOR SYSTEM_TIME AS OF is only supported in INNER JOIN … ON and LEFT JOIN … ON",
                    )
                    .at(time.span())
                    .hint("JOIN table FOR SYSTEM_TIME AS OF s.ts AS t ON s.key = t.key"));
                }
            };
            let condition = match versions {
                Versions::ByTime(versions) => condition(vec![time, versions]),
                Versions::Now(qualifier, table) => now::condition(time, on, &qualifier, &table)?,
            };
            let left = std::mem::replace(on, condition.clone());
            *on = AstExpr::BinaryOp {
                left: Box::new(AstExpr::Nested(Box::new(left))),
                op: BinaryOperator::And,
                right: Box::new(condition),
            };
        }
        Ok(())
    }

    /// The rows of the table that are joined.
    fn versions_of(&self, relation: &TableFactor, time: &AstExpr) -> Result<Versions> {
        let TableFactor::Table { name, alias, .. } = relation else {
            let error = SqlError::new("FOR SYSTEM_TIME AS OF can only be applied to a table");
            return Err(error.at(time.span()));
        };
        let known = name.0.last().and_then(|part| part.as_ident());
        let place = known.map_or(time.span(), |known| known.span);
        let known = known.map(|name| name.value.clone()).unwrap_or_default();
        let table = (self.table)(&known).map_err(|error| error.at(place))?;
        let mut qualifier = Ident::new(known);
        if let Some(alias) = alias {
            qualifier = alias.name.clone();
        }
        if let AstExpr::CompoundIdentifier(parts) = time
            && parts
                .first()
                .is_some_and(|part| part.value == qualifier.value)
        {
            let error = format!("'{time}' is the event time of the table itself");
            return Err(SqlError::new(error)
                .at(time.span())
                .hint("use the event time of the stream: FOR SYSTEM_TIME AS OF s.ts"));
        }
        match table.event_time {
            Some((column, _)) if !now::is_call(time) => {
                let column = Ident::with_quote('"', table.schema.field(column).name());
                let column = AstExpr::CompoundIdentifier(vec![qualifier, column]);
                Ok(Versions::ByTime(column))
            }
            _ => Ok(Versions::Now(qualifier, table)),
        }
    }
}

/// Which rows of a table are joined.
// Short-lived: there is one value for each join.
#[allow(clippy::large_enum_variant)]
enum Versions {
    /// The rows that were valid at a time; the expression is the event time of the table.
    ByTime(AstExpr),
    /// The current rows; the name of the table in the query, and the table.
    Now(Ident, Arc<Table>),
}

/// Removes the time after FOR SYSTEM_TIME AS OF from a table, and returns it.
fn take_version(relation: &mut TableFactor) -> Result<Option<AstExpr>> {
    let TableFactor::Table { args, .. } = relation else {
        return Ok(None);
    };
    let Some([FunctionArg::Named { name, arg, .. }]) = args.as_ref().map(|args| &args.args[..])
    else {
        return Ok(None);
    };
    if name.value != VERSION {
        return Ok(None);
    }
    let time = match arg {
        FunctionArgExpr::Expr(time @ (AstExpr::Identifier(_) | AstExpr::CompoundIdentifier(_))) => {
            time.clone()
        }
        FunctionArgExpr::Expr(time) if now::is_call(time) => time.clone(),
        _ => {
            return Err(SqlError::new(
                "FOR SYSTEM_TIME AS OF accepts only the event time of the stream, or PROCTIME()",
            )
            .at(name.span)
            .hint("FOR SYSTEM_TIME AS OF s.ts"));
        }
    };
    *args = None;
    Ok(Some(time))
}

fn condition(arguments: Vec<AstExpr>) -> AstExpr {
    let argument = |expression| FunctionArg::Unnamed(FunctionArgExpr::Expr(expression));
    AstExpr::Function(Function {
        name: ObjectName::from(vec![Ident::new(SYSTEM_TIME_AS_OF)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.into_iter().map(argument).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// The event times of the stream and the table if this is a join with versions, and the rest of its
/// condition.
pub fn split(filter: Option<&Expr>) -> Option<([Expr; 2], Option<Expr>)> {
    let parts = split_conjunction(filter?);
    let times = parts.iter().find_map(|part| match part {
        Expr::ScalarFunction(call) if call.name() == SYSTEM_TIME_AS_OF => {
            match call.args.as_slice() {
                [time, versions] => Some([time.clone(), versions.clone()]),
                _ => None,
            }
        }
        _ => None,
    })?;
    let rest = parts.into_iter().filter(|part| !is_call(part)).cloned();
    Some((times, conjunction(rest)))
}

/// The versions of a table that is joined as of a time. Conditions on it stay above this node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VersionsNode {
    /// The plan of the table.
    pub input: LogicalPlan,
}

impl VersionsNode {
    /// Whether a plan node is a [`VersionsNode`].
    pub fn is(extension: &Extension) -> bool {
        extension.node.as_any().is::<VersionsNode>()
    }
}

impl PartialOrd for VersionsNode {
    fn partial_cmp(&self, _: &VersionsNode) -> Option<Ordering> {
        None
    }
}

impl UserDefinedLogicalNodeCore for VersionsNode {
    fn name(&self) -> &str {
        "Versions"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Versions")
    }

    fn with_exprs_and_inputs(
        &self,
        _: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> PlanResult<VersionsNode> {
        let input = inputs.pop();
        let input = input.ok_or_else(|| DataFusionError::Internal("versions of nothing".into()))?;
        Ok(VersionsNode { input })
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![output_columns.to_vec()])
    }
}

fn is_versioned(join: &Join) -> bool {
    let filter = join.filter.as_ref();
    split(filter).is_some() || now::split(filter).is_some()
}

/// Puts a [`VersionsNode`] above each table that is joined as of a time.
pub fn guard(plan: LogicalPlan) -> Result<LogicalPlan> {
    let guarded = plan.transform_up_with_subqueries(|part| match part {
        LogicalPlan::Join(mut join) if is_versioned(&join) => {
            let input = Arc::unwrap_or_clone(join.right);
            let node = Arc::new(VersionsNode { input });
            join.right = Arc::new(LogicalPlan::Extension(Extension { node }));
            Ok(Transformed::yes(LogicalPlan::Join(join)))
        }
        // The function was written by the user: copies by the optimizer appear only later.
        LogicalPlan::Filter(filter)
            if split_conjunction(&filter.predicate)
                .into_iter()
                .any(is_call) =>
        {
            let error = SqlError::new("FOR SYSTEM_TIME AS OF is only supported in joins");
            Err(DataFusionError::External(Box::new(error)))
        }
        part => Ok(Transformed::no(part)),
    })?;
    Ok(guarded.data)
}

/// Removes the optimizer's copies of that condition, and of the hint BROADCAST. From a condition on key
/// columns the optimizer infers one on the other side's columns, and pushes it below the join if it names one
/// side only.
pub fn without_copies(plan: LogicalPlan) -> Result<LogicalPlan> {
    let cleared = plan.transform_up(|part| {
        let LogicalPlan::Filter(filter) = &part else {
            return Ok(Transformed::no(part));
        };
        let parts = split_conjunction(&filter.predicate);
        let rest = parts.iter().copied();
        let rest = rest.filter(|part| !is_call(part) && !broadcast::is_mark(part));
        let rest = rest.cloned().collect::<Vec<Expr>>();
        if rest.len() == parts.len() {
            return Ok(Transformed::no(part));
        }
        let input = Arc::unwrap_or_clone(Arc::clone(&filter.input));
        Ok(Transformed::yes(match conjunction(rest) {
            None => input,
            Some(rest) => LogicalPlan::Filter(Filter::try_new(rest, Arc::new(input))?),
        }))
    })?;
    Ok(cleared.data)
}

fn is_call(part: &Expr) -> bool {
    matches!(part, Expr::ScalarFunction(call) if call.name() == SYSTEM_TIME_AS_OF)
}
