//! `FOR SYSTEM_TIME AS OF PROCTIME()`: the rows that a table has at the moment when a row is processed.
//!
//! The condition that represents it names a column of each side, so that the planner leaves it at the join.

use datafusion_common::{ScalarValue, tree_node::TreeNode, tree_node::TreeNodeRecursion};
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{Expr, LogicalPlan};
use sqlparser::ast::{Expr as AstExpr, FunctionArguments, Ident, Spanned, Value};

use crate::error::{Result, SqlError};
use crate::names::SYSTEM_TIME_AS_OF;
use crate::table::{Table, TableColumn, TableHandle};
use crate::walk::{self, Look, Next, ON};

/// The function that returns the time at which a row is processed.
const PROCTIME: &str = "proctime";

/// Whether an expression is `PROCTIME()`.
pub(super) fn is_call(time: &AstExpr) -> bool {
    let AstExpr::Function(call) = time else {
        return false;
    };
    let name = match &call.name.0[..] {
        [name] => name.as_ident(),
        _ => None,
    };
    let has_none = match &call.args {
        FunctionArguments::None => true,
        FunctionArguments::List(list) => list.args.is_empty(),
        FunctionArguments::Subquery(_) => false,
    };
    has_none && name.is_some_and(|name| name.value.eq_ignore_ascii_case(PROCTIME))
}

/// The condition of a join `on` with the current rows of `table`, which the query calls `qualifier`.
pub(super) fn condition(
    time: AstExpr,
    on: &AstExpr,
    qualifier: &Ident,
    table: &Table,
) -> Result<AstExpr> {
    let mut columns = Columns {
        qualifier,
        table,
        of_table: None,
        of_stream: None,
    };
    walk::look(on, &mut columns)?;
    let first = || {
        let name = table.schema.field(0).name();
        AstExpr::CompoundIdentifier(vec![qualifier.clone(), Ident::with_quote('"', name)])
    };
    let of_table = columns.of_table.unwrap_or_else(first);
    let is_said = is_call(&time);
    let time = match (is_said, columns.of_stream) {
        (false, _) => time,
        (true, Some(column)) => column,
        (true, None) => {
            let error =
                "FOR SYSTEM_TIME AS OF needs an equality between a key of the table and the stream";
            let hint = "for example ON s.customer = c.id";
            return Err(SqlError::new(error).at(time.span()).hint(hint));
        }
    };
    let is_said = AstExpr::Value(Value::Boolean(is_said).into());
    Ok(super::condition(vec![time, of_table, is_said]))
}

/// Finds a column of each side in the condition of a join.
struct Columns<'a> {
    qualifier: &'a Ident,
    table: &'a Table,
    of_table: Option<AstExpr>,
    of_stream: Option<AstExpr>,
}

impl Look for Columns<'_> {
    fn expression(&mut self, expression: &AstExpr) -> Next {
        let is_known = |name: &Ident| self.table.schema.index_of(&name.value).is_ok();
        let is_of_table = match expression {
            AstExpr::CompoundIdentifier(parts) => {
                parts.len() > 1 && parts[parts.len() - 2].value == self.qualifier.value
            }
            AstExpr::Identifier(name) => is_known(name),
            _ => return ON,
        };
        let found = match is_of_table {
            true => &mut self.of_table,
            false => &mut self.of_stream,
        };
        found.get_or_insert_with(|| expression.clone());
        ON
    }
}

/// The column that must be `PROCTIME()`, if the join names one, and the rest of the condition. `None` for any
/// other join.
pub fn split(filter: Option<&Expr>) -> Option<(Option<Expr>, Option<Expr>)> {
    let parts = split_conjunction(filter?);
    let time = parts.iter().find_map(|part| match part {
        Expr::ScalarFunction(call) if call.name() == SYSTEM_TIME_AS_OF => {
            match call.args.as_slice() {
                [time, _, Expr::Literal(ScalarValue::Boolean(is_said), _)] => {
                    Some((*is_said != Some(true)).then(|| time.clone()))
                }
                _ => None,
            }
        }
        _ => None,
    })?;
    let rest = parts.into_iter().filter(|part| !super::is_call(part));
    let rest = rest.cloned();
    Some((time, conjunction(rest)))
}

/// Whether an expression over a plan is `PROCTIME()`, also through views and subqueries.
pub fn is_now(expression: &Expr, plan: &LogicalPlan) -> bool {
    match expression {
        Expr::Alias(alias) => is_now(&alias.expr, plan),
        Expr::Cast(cast) => is_now(&cast.expr, plan),
        Expr::ScalarFunction(call) => call.name() == PROCTIME,
        Expr::Column(column) => match plan.schema().index_of_column(column) {
            Ok(index) => is_column_now(index, plan),
            Err(_) => false,
        },
        _ => false,
    }
}

fn is_column_now(index: usize, plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let Some(handle) = scan.source.downcast_ref::<TableHandle>() else {
                return false;
            };
            let projected = scan.projection.as_ref();
            let index = projected.map_or(Some(index), |columns| columns.get(index).copied());
            match index.and_then(|index| handle.0.columns.get(index)) {
                Some(TableColumn::Computed(expression)) => is_only_now(expression),
                _ => false,
            }
        }
        LogicalPlan::Projection(projection) => (projection.expr.get(index))
            .is_some_and(|expression| is_now(expression, &projection.input)),
        LogicalPlan::SubqueryAlias(alias) => is_column_now(index, &alias.input),
        LogicalPlan::Filter(filter) => is_column_now(index, &filter.input),
        LogicalPlan::Join(join) => match index.checked_sub(join.left.schema().fields().len()) {
            None => is_column_now(index, &join.left),
            Some(index) => is_column_now(index, &join.right),
        },
        // The first columns of windows and versions are those of their input.
        LogicalPlan::Extension(extension) => {
            (extension.node.inputs().first()).is_some_and(|input| {
                index < input.schema().fields().len() && is_column_now(index, input)
            })
        }
        _ => false,
    }
}

/// Whether an expression is `PROCTIME()`, possibly in casts.
fn is_only_now(expression: &Expr) -> bool {
    let mut is_now = true;
    let visited = expression.apply(|part| {
        is_now &= match part {
            Expr::ScalarFunction(call) => call.name() == PROCTIME,
            Expr::Cast(_) | Expr::Alias(_) => true,
            _ => false,
        };
        Ok(TreeNodeRecursion::Continue)
    });
    visited.is_ok() && is_now
}
