//! The arguments of a call, as they are written.

use datafusion_common::{DataFusionError, Result};
use datafusion_expr::LogicalPlan;
use datafusion_expr::planner::RelationPlannerContext;
use sqlparser::ast::{
    Expr as AstExpr, FunctionArg, FunctionArgExpr, FunctionArgOperator, Ident, ObjectName, Spanned,
    TableFactor,
};
use sqlparser::tokenizer::Span;

use crate::check::tables::arguments_of;
use crate::error::SqlError;
use crate::names::{ORDER_BY, OUTPUT_OF, PARTITION_BY, TABLE_OF};

/// The result of an error in SQL for the planner.
pub fn failed<T>(error: SqlError) -> Result<T> {
    Err(DataFusionError::External(Box::new(error)))
}

/// A call of a table function.
#[derive(Default)]
pub struct Arguments {
    pub tables: Vec<TableArgument>,
    /// The other arguments, with their names.
    pub values: Vec<(Option<Ident>, AstExpr)>,
    /// The output that is read.
    pub output: Option<Ident>,
}

/// A table.
pub struct TableArgument {
    value: AstExpr,
    pub partition_by: Option<Vec<AstExpr>>,
    pub order_by: Option<AstExpr>,
}

impl TableArgument {
    /// The plan of the table.
    pub fn plan(&self, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
        context.plan(match &self.value {
            AstExpr::Identifier(table) => table_factor(vec![table.clone()]),
            AstExpr::CompoundIdentifier(parts) => table_factor(parts.clone()),
            AstExpr::Subquery(query) => TableFactor::Derived {
                lateral: false,
                subquery: query.clone(),
                alias: None,
                sample: None,
            },
            other => {
                let error = SqlError::new("TABLE must be followed by a table or a query");
                return failed(
                    error
                        .at(other.span())
                        .hint("use TABLE t, or TABLE (SELECT …)"),
                );
            }
        })
    }
}

impl Arguments {
    /// The arguments of the call of `name` at `span`.
    pub fn new(name: &str, span: Span, arguments: &[FunctionArg]) -> Result<Arguments> {
        let mut read = Arguments::default();
        for argument in arguments {
            let (given_name, value) = match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (None, value),
                FunctionArg::Named {
                    name,
                    arg: FunctionArgExpr::Expr(value),
                    operator: FunctionArgOperator::RightArrow,
                } => (Some(name.clone()), value),
                FunctionArg::ExprNamed {
                    name: AstExpr::Identifier(name),
                    arg: FunctionArgExpr::Expr(value),
                    operator: FunctionArgOperator::RightArrow,
                } => (Some(name.clone()), value),
                other => {
                    let error = format!("'{other}' is not an argument of {name}");
                    return failed(SqlError::new(error).at(span));
                }
            };
            read.add(name, span, given_name, value)?;
        }
        Ok(read)
    }

    /// Whether the first argument may be a second column of PARTITION BY: it follows the first one.
    pub fn may_be_key(&self, first: &AstExpr) -> bool {
        let Some(table) = self.tables.last() else {
            return false;
        };
        let is_before = |time: &AstExpr| first.span().start < time.span().start;
        table.partition_by.is_some() && table.order_by.as_ref().is_none_or(is_before)
    }

    fn add(&mut self, name: &str, span: Span, named: Option<Ident>, value: &AstExpr) -> Result<()> {
        if let Some(table) = arguments_of(value, TABLE_OF) {
            let [FunctionArg::Unnamed(FunctionArgExpr::Expr(table))] = table else {
                let error = SqlError::new("TABLE must be followed by a table or a query");
                return failed(
                    error
                        .at(value.span())
                        .hint("use TABLE t, or TABLE (SELECT …)"),
                );
            };
            self.tables.push(TableArgument {
                value: table.clone(),
                partition_by: None,
                order_by: None,
            });
            return Ok(());
        }
        let keys = arguments_of(value, PARTITION_BY);
        let time = arguments_of(value, ORDER_BY);
        if let Some(columns) = keys.or(time) {
            let columns = columns.iter().filter_map(expression).collect::<Vec<_>>();
            let clause = if keys.is_some() {
                "PARTITION BY"
            } else {
                "ORDER BY"
            };
            let Some(table) = self.tables.last_mut() else {
                let error = format!("{clause} must come after a table");
                let hint = format!("for example {name}(TABLE t {clause} …)");
                return failed(SqlError::new(error).at(value.span()).hint(hint));
            };
            let is_twice = match clause {
                "PARTITION BY" => table.partition_by.replace(columns).is_some(),
                _ => match <[AstExpr; 1]>::try_from(columns) {
                    Ok([column]) => table.order_by.replace(column).is_some(),
                    Err(_) => {
                        let error = "rows can only be ordered by the event time";
                        return failed(SqlError::new(error).at(span).hint("ORDER BY ts"));
                    }
                },
            };
            if is_twice {
                let error = format!("{clause} is given twice for a table");
                return failed(SqlError::new(error).at(span));
            }
            return Ok(());
        }
        if let Some([FunctionArg::Unnamed(FunctionArgExpr::Expr(AstExpr::Identifier(output)))]) =
            arguments_of(value, OUTPUT_OF)
        {
            self.output = Some(output.clone());
            return Ok(());
        }
        self.values.push((named, value.clone()));
        Ok(())
    }
}

/// The expression of an argument without a name.
pub fn expression(argument: &FunctionArg) -> Option<AstExpr> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    }
}

fn table_factor(parts: Vec<Ident>) -> TableFactor {
    TableFactor::Table {
        name: ObjectName::from(parts),
        alias: None,
        args: None,
        with_hints: vec![],
        version: None,
        with_ordinality: false,
        partitions: vec![],
        json_path: None,
        sample: None,
        index_hints: vec![],
    }
}
