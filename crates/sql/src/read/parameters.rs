//! Parameters of a read: `$1`, `$2`, …

use std::sync::Arc;

use arrow_schema::{DataType, Field};
use datafusion_common::metadata::ScalarAndMetadata;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{ParamValues, ScalarValue};
use datafusion_expr::expr::Placeholder;
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::{Expr, LogicalPlan, cast, lit};
use sqlparser::ast::{Query, Value, ValueWithSpan};

use crate::error::{Result, SqlError};
use crate::expression::constant;
use crate::types::sql_name;
use crate::walk::{self, Look, Next, ON};

/// The most parameters of a read: PostgreSQL's protocol counts them in 16 bits.
pub const PARAMETERS_MAX: usize = u16::MAX as usize;

/// The largest number of a parameter.
pub fn count(query: &Query) -> Result<usize> {
    let mut largest = Largest(0);
    walk::look(query, &mut largest)?;
    Ok(largest.0)
}

struct Largest(usize);

impl Look for Largest {
    fn value(&mut self, value: &ValueWithSpan) -> Next {
        let Value::Placeholder(name) = &value.value else {
            return ON;
        };
        match number(name) {
            Some(number) => {
                self.0 = self.0.max(number);
                ON
            }
            None => Next::Break(
                SqlError::new(format!("'{name}' is not a parameter"))
                    .at(value.span)
                    .hint(format!("parameters are $1 to ${PARAMETERS_MAX}")),
            ),
        }
    }
}

/// The number in a parameter's name, from 1.
fn number(name: &str) -> Option<usize> {
    let number = name.strip_prefix('$')?.parse::<usize>().ok()?;
    (1..=PARAMETERS_MAX).contains(&number).then_some(number)
}

/// The types of the parameters: by CAST, by what they are compared or computed with, else strings.
pub fn types(plan: &LogicalPlan, count: usize) -> Result<Vec<DataType>> {
    let mut types = vec![None; count];
    let mut note = |parameter: &Placeholder, data_type: Option<DataType>| {
        if let Some(number) = number(&parameter.id) {
            let known = &mut types[number - 1];
            *known = known.take().or(data_type);
        }
    };
    plan.apply_with_subqueries(|node| {
        let is_limit = matches!(node, LogicalPlan::Limit(_));
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                match part {
                    Expr::Cast(cast) => {
                        if let Expr::Placeholder(parameter) = cast.expr.as_ref() {
                            note(parameter, Some(cast.field.data_type().clone()));
                        }
                    }
                    Expr::Placeholder(parameter) if is_limit => {
                        note(parameter, Some(DataType::Int64));
                    }
                    Expr::Placeholder(parameter) => {
                        let field = parameter.field.as_ref();
                        let data_type = field.map(|field| field.data_type().clone());
                        note(
                            parameter,
                            data_type.filter(|known| *known != DataType::Null),
                        );
                    }
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    let types = types.into_iter();
    Ok(types
        .map(|known| known.unwrap_or(DataType::Utf8View))
        .collect())
}

/// The plan with the types of its parameters.
pub fn typed(plan: LogicalPlan, types: &[DataType]) -> Result<LogicalPlan> {
    let field = |data_type: &DataType| Arc::new(Field::new("", data_type.clone(), true));
    let fields = types.iter().map(field).collect::<Vec<_>>();
    let typed = plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        let node = node.map_expressions(|expression| {
            let name = names.save(&expression);
            let typed = expression.transform_up(|part| match part {
                Expr::Placeholder(parameter) if number(&parameter.id).is_some() => {
                    let at = number(&parameter.id).expect("just parsed") - 1;
                    let field = Some(Arc::clone(&fields[at]));
                    let typed = Placeholder::new_with_field(parameter.id, field);
                    Ok(Transformed::yes(Expr::Placeholder(typed)))
                }
                part => Ok(Transformed::no(part)),
            })?;
            Ok(typed.update_data(|expression| name.restore(expression)))
        })?;
        node.map_data(LogicalPlan::recompute_schema)
    })?;
    Ok(typed.data)
}

/// NULL for each parameter.
pub fn nulls(types: &[DataType]) -> Result<Vec<ScalarValue>> {
    let nulls = types.iter().map(ScalarValue::try_from);
    Ok(nulls.collect::<datafusion_common::Result<_>>()?)
}

/// The plan with values in place of parameters.
pub fn replaced(plan: LogicalPlan, values: &[ScalarValue]) -> Result<LogicalPlan> {
    let values = values.iter().cloned().map(ScalarAndMetadata::from);
    let values = ParamValues::List(values.collect());
    Ok(plan.replace_params_with_values(&values)?)
}

/// The values of parameters, which are given as text.
///
/// # Errors
///
/// If there are more or fewer values than parameters, or one is not a value of its type.
pub fn values(types: &[DataType], strings: &[Option<String>]) -> Result<Vec<ScalarValue>> {
    if types.len() != strings.len() {
        let (wanted, given) = (types.len(), strings.len());
        let error = match wanted {
            1 => format!("the statement has 1 parameter, and {given} values were given"),
            _ => format!("the statement has {wanted} parameters, and {given} values were given"),
        };
        return Err(SqlError::new(error));
    }
    let pairs = types.iter().zip(strings).enumerate();
    let values = pairs.map(|(at, (data_type, text))| match text {
        None => Ok(ScalarValue::try_from(data_type)?),
        Some(text) => constant(&cast(lit(text.as_str()), data_type.clone())).map_err(|_| {
            let number = at + 1;
            let wanted = sql_name(data_type);
            SqlError::new(format!(
                "parameter ${number}: '{text}' is not a valid {wanted}"
            ))
        }),
    });
    values.collect()
}
