//! Tables for late rows: `SET 'late_rows' = 'table'`, or the option `late_rows` of a source's table.
//!
//! A table gets the late rows as they arrive at a window function: its columns are matched by name with those
//! of the function's input. The plan notes them, so that they are read even if the query itself doesn't use
//! them.

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DataFusionError};
use datafusion_expr::{Extension, LogicalPlan};
use slackwater_engine::operator::late_rows::Lateness;
use sqlparser::tokenizer::Span;

use crate::error::{Result, SqlError, nearest};
use crate::node::NodeSpec;

use crate::session::Session;
use crate::table::{LATE_ROWS, Table, TableHandle};
use crate::types::{arrow_cast_ok, sql_name};
use crate::window::{LateTable, WindowNode};

/// A warning about late rows that the table does not get: those that are not dropped by a window function.
pub fn only_counted(nodes: &[NodeSpec], session: &Session) -> Option<String> {
    let mut sources = nodes.iter().filter_map(NodeSpec::as_source);
    let of_table = sources.find_map(|source| source.table.options.get(LATE_ROWS));
    let name = of_table.or(session.settings.late_rows.as_ref());
    let name = name.filter(|name| *name != "none")?;
    // Window functions do, too, and their rows are kept.
    let leaves_out = |node: &NodeSpec| {
        let judges = node.facts().judges;
        judges.is_some_and(|lateness| !matches!(lateness, Lateness::Windows(..)))
    };
    nodes.iter().any(leaves_out).then(|| {
        format!(
            "'late_rows' = '{name}' only keeps late rows of window functions: those of OVER, interval joins \
             and temporal joins are counted, but not kept"
        )
    })
}

/// The plan with the tables for the late rows of its window functions.
pub fn mark(plan: LogicalPlan, session: &Session) -> Result<LogicalPlan> {
    let marked = plan.transform_up_with_subqueries(|part| {
        let LogicalPlan::Extension(extension) = &part else {
            return Ok(Transformed::no(part));
        };
        let window = extension.node.as_any().downcast_ref::<WindowNode>();
        let Some(window) = window.filter(|window| window.late.is_none()) else {
            return Ok(Transformed::no(part));
        };
        let failed = |error: SqlError| DataFusionError::External(Box::new(error));
        match late_table(window, session).map_err(failed)? {
            None => Ok(Transformed::no(part)),
            Some(late) => {
                let node = Arc::new(window.clone().with_late_rows(late));
                let extension = LogicalPlan::Extension(Extension { node });
                Ok(Transformed::yes(extension))
            }
        }
    });
    Ok(marked?.data)
}

/// The table for the late rows of a window function, and the columns that it gets.
fn late_table(window: &WindowNode, session: &Session) -> Result<Option<LateTable>> {
    // The option of a source table takes precedence over the setting.
    let mut chosen = None;
    let visited = window.input.apply(|part| {
        if let LogicalPlan::TableScan(scan) = part
            && let Some(handle) = scan.source.downcast_ref::<TableHandle>()
            && let Some(name) = handle.0.options.get(LATE_ROWS)
        {
            let place = handle.0.option_places.get(LATE_ROWS);
            chosen = Some((name.clone(), place.copied().unwrap_or(handle.0.span)));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    visited?;
    let of_query = session.settings.late_rows.clone();
    let chosen = chosen.or_else(|| Some((of_query?, Span::empty())));
    let Some((name, span)) = chosen.filter(|(name, _)| name != "none") else {
        return Ok(None);
    };
    session.uses(&name);
    let Some(table) = session.tables.get(&name) else {
        let error = SqlError::new(format!("'late_rows': there is no table '{name}'")).at(span);
        let mut names = session.tables.keys().cloned().collect::<Vec<_>>();
        names.sort();
        return Err(match nearest(&name, &names) {
            Some(near) => error.hint(format!("did you mean '{near}'?")),
            None => error.hint("declare it first, with the columns to keep"),
        });
    };
    let columns = columns(window, table).map_err(|error| error.at(span))?;
    Ok(Some(LateTable { name, columns }))
}

/// The column of the input for each column of the table.
fn columns(window: &WindowNode, table: &Table) -> Result<Vec<Column>> {
    let input = window.input.schema();
    let columns = table.physical.fields().iter().map(|wanted| {
        let mut found = input
            .iter()
            .filter(|(_, field)| field.name() == wanted.name());
        let Some((qualifier, field)) = found.next() else {
            let names = input.fields().iter().map(|field| field.name().clone());
            let names = names.collect::<Vec<_>>();
            let error = format!(
                "'late_rows': table '{}' has a column '{}', but the late rows do not",
                table.name,
                wanted.name()
            );
            return Err(
                SqlError::new(error).hint(format!("their columns are: {}", names.join(", ")))
            );
        };
        if !arrow_cast_ok(field.data_type(), wanted.data_type())
            && field.data_type() != wanted.data_type()
        {
            let error = format!(
                "'late_rows': column '{}' of '{}' is {}, but in the late rows it is {}",
                wanted.name(),
                table.name,
                sql_name(wanted.data_type()),
                sql_name(field.data_type())
            );
            return Err(
                SqlError::new(error).hint("declare the column with the type of the late rows")
            );
        }
        Ok(Column::new(qualifier.cloned(), field.name()))
    });
    columns.collect()
}
