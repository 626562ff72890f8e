//! Matches the columns of a query with those of a view, or of the table that it is written to.

use arrow_schema::{DataType, Fields};
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast, lit};
use sqlparser::ast::Ident;
use sqlparser::tokenizer::Span;

use crate::error::{Result, SqlError, nearest};
use crate::table::Table;
use crate::types::{arrow_cast_ok, sql_name};

fn count(columns: usize) -> String {
    match columns {
        1 => "1 column".to_string(),
        more => format!("{more} columns"),
    }
}

/// The plan with its columns renamed.
pub fn rename(plan: LogicalPlan, names: &[Ident]) -> Result<LogicalPlan> {
    let columns = plan.schema().columns();
    if columns.len() != names.len() {
        return Err(SqlError::new(format!(
            "the view has {} in its list, but its query returns {}",
            count(names.len()),
            columns.len()
        )));
    }
    let renamed = columns
        .into_iter()
        .zip(names)
        .map(|(c, name)| Expr::Column(c).alias(&name.value));
    Ok(LogicalPlanBuilder::from(plan)
        .project(renamed.collect::<Vec<_>>())?
        .build()?)
}

/// The plan with the columns of a table, matched by position and cast if a type differs. `places` are the
/// places of the query's columns, if they are known.
pub fn fit(
    plan: LogicalPlan,
    table: &Table,
    names: &[Ident],
    places: &[Span],
) -> Result<LogicalPlan> {
    let targets = table.physical.fields();
    let order = match names {
        [] => (0..targets.len()).collect::<Vec<usize>>(),
        names => {
            let index_of = |name: &Ident| {
                table.physical.index_of(&name.value).map_err(|_| {
                    let known = targets
                        .iter()
                        .map(|field| field.name().clone())
                        .collect::<Vec<_>>();
                    let error = SqlError::new(format!(
                        "table '{}' has no column '{}'",
                        table.name, name.value
                    ))
                    .at(name.span);
                    match nearest(&name.value, &known) {
                        Some(near) => error.hint(format!("did you mean '{near}'?")),
                        None => error.hint(format!("the columns are: {}", known.join(", "))),
                    }
                })
            };
            let order = names.iter().map(index_of).collect::<Result<Vec<usize>>>()?;
            if let Some(twice) = (1..order.len()).find(|&i| order[..i].contains(&order[i])) {
                let name = &names[twice];
                return Err(
                    SqlError::new(format!("column '{}' is named twice", name.value)).at(name.span),
                );
            }
            order
        }
    };
    let columns = plan.schema().columns();
    if columns.len() != order.len() {
        return Err(SqlError::new(format!(
            "the query returns {}, but '{}' has {}",
            count(columns.len()),
            table.name,
            count(order.len())
        ))
        .hint(format!(
            "the table's columns are: {}",
            targets
                .iter()
                .map(|field| field.name().as_str())
                .collect::<Vec<_>>()
                .join(", ")
        )));
    }
    let mut fitted = Vec::new();
    for (target, field) in targets.iter().enumerate() {
        let Some(position) = order.iter().position(|&index| index == target) else {
            let null = datafusion_common::ScalarValue::try_from(field.data_type())?;
            fitted.push(lit(null).alias(field.name()));
            continue;
        };
        let column = Expr::Column(columns[position].clone());
        let from = column.get_type(plan.schema())?;
        let value = if &from == field.data_type() {
            column
        } else if arrow_cast_ok(&from, field.data_type()) {
            cast(column, field.data_type().clone())
        } else {
            let error = SqlError::new(format!(
                "column {} of the query is {}, but column '{}' of '{}' is {}",
                position + 1,
                sql_name(&from),
                field.name(),
                table.name,
                sql_name(field.data_type())
            ));
            let error = match places.get(position) {
                Some(place) => error.at(*place),
                None => error,
            };
            return Err(match field.data_type() {
                DataType::Struct(fields) => error.hint(format!(
                    "use {}, or declare the table's column with that type",
                    row_of(fields)
                )),
                DataType::List(_) => error.hint("declare the table's column with that type"),
                _ => error.hint("CAST it, or declare the table's column with that type"),
            });
        };
        fitted.push(value.alias(field.name()));
    }
    Ok(LogicalPlanBuilder::from(plan).project(fitted)?.build()?)
}

/// The expression that makes a ROW with these fields.
fn row_of(fields: &Fields) -> String {
    let fields = fields.iter().map(|field| {
        let value = match field.data_type() {
            DataType::Struct(inner) => row_of(inner),
            DataType::List(_) => "…".to_string(),
            scalar => format!("CAST(… AS {})", sql_name(scalar)),
        };
        format!("'{}', {value}", field.name())
    });
    format!("named_struct({})", fields.collect::<Vec<_>>().join(", "))
}
