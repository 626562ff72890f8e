//! `SPLIT(TABLE t, 'a', condition, 'b', condition, 'rest') OUTPUT a`: a row goes to every output whose
//! condition holds (UPM-CEP: demux). Each output is a filter, so that an output that nothing reads costs
//! nothing, and the table is read once for all.

use arrow_schema::DataType;
use datafusion_common::Result;
use datafusion_expr::planner::RelationPlannerContext;
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder};
use sqlparser::ast::{Expr as AstExpr, Spanned, Value};
use sqlparser::tokenizer::Span;

use super::arguments::{Arguments, failed};
use crate::error::{SqlError, nearest};
use crate::types::sql_name;

const FORM: &str = "SPLIT(TABLE t, 'big', amount > 100, 'small', amount <= 100) OUTPUT big; a last name \
                    without a condition is the output of all other rows";

/// An output.
struct Branch {
    name: String,
    condition: Option<Expr>,
}

/// The plan of a call.
pub fn split(
    span: Span,
    arguments: Arguments,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let wrong = |error: String| failed(SqlError::new(error).at(span).hint(FORM));
    let [table] = arguments.tables.as_slice() else {
        let tables = arguments.tables.len();
        return wrong(format!("SPLIT takes one table, not {tables}"));
    };
    if table.partition_by.is_some() || table.order_by.is_some() {
        return wrong(
            "SPLIT looks at each row alone, and has no PARTITION BY and ORDER BY".to_string(),
        );
    }
    let input = table.plan(context)?;
    let mut branches = Vec::<Branch>::new();
    let mut values = arguments.values.iter();
    while let Some((_, name)) = values.next() {
        let AstExpr::Value(value) = name else {
            return wrong(format!("'{name}' is not the name of an output: a string"));
        };
        let Value::SingleQuotedString(name) = &value.value else {
            return wrong(format!("{value} is not the name of an output: a string"));
        };
        if branches.iter().any(|branch| branch.name == *name) {
            return wrong(format!("SPLIT has two outputs '{name}'"));
        }
        let condition = match values.next() {
            None => None,
            Some((_, ast)) => {
                let condition = context.sql_to_expr(ast.clone(), input.schema())?;
                let data_type = condition.get_type(input.schema())?;
                if data_type != DataType::Boolean {
                    let is = sql_name(&data_type);
                    let error = format!("the condition of output '{name}' is {is}, not BOOLEAN");
                    return failed(SqlError::new(error).at(ast.span()).hint(FORM));
                }
                Some(condition)
            }
        };
        branches.push(Branch {
            name: name.clone(),
            condition,
        });
    }
    let names = branches.iter().map(|branch| branch.name.clone());
    let names = names.collect::<Vec<String>>();
    if names.is_empty() {
        return wrong("SPLIT has no outputs".to_string());
    }
    let Some(output) = &arguments.output else {
        let error = format!("SPLIT has several outputs: {}", names.join(", "));
        let hint = format!("say which one is read: SPLIT(…) OUTPUT {}", names[0]);
        return failed(SqlError::new(error).at(span).hint(hint));
    };
    let found = names.iter().position(|name| *name == output.value);
    let Some(found) = found else {
        return failed(no_output("SPLIT", &output.value, &names).at(output.span));
    };
    let condition = match &branches[found].condition {
        Some(condition) => condition.clone(),
        // No condition is true: NULL counts as false.
        None => {
            let others = branches
                .iter()
                .filter_map(|branch| branch.condition.clone());
            let others = others.map(Expr::is_not_true).reduce(Expr::and);
            match others {
                Some(condition) => condition,
                None => return Ok(input),
            }
        }
    };
    LogicalPlanBuilder::from(input).filter(condition)?.build()
}

/// The error for an output that does not exist.
pub fn no_output(function: &str, name: &str, outputs: &[String]) -> SqlError {
    let error = SqlError::new(format!("{function} has no output '{name}'"));
    match nearest(name, outputs) {
        Some(near) => error.hint(format!("did you mean '{near}'?")),
        None => error.hint(format!("its outputs are {}", outputs.join(", "))),
    }
}
