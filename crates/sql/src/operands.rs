//! Operators and fields with operands of the wrong types: reported while the planner still knows their place.
//! The planner would find most of them later, without a place.

use arrow_schema::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, DataFusionError, Result};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::planner::{
    ExprPlanner, PlannerResult, RawAggregateExpr, RawBinaryExpr, RawFieldAccessExpr, RawWindowExpr,
};
use datafusion_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion_expr::{Expr, ExprSchemable, GetFieldAccess, LogicalPlan, Operator, cast, lit};
use slackwater_engine::hash::DIRECT;
use sqlparser::ast::BinaryOperator;

use crate::error::{SqlError, to_span};
use crate::types::sql_name;

/// Plans field accesses, and checks the operands of operators.
#[derive(Debug)]
pub struct Operands;

fn failed<T>(error: SqlError) -> Result<T> {
    Err(DataFusionError::External(Box::new(error)))
}

impl ExprPlanner for Operands {
    fn plan_binary_op(
        &self,
        mut raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let Some(operator) = operator(&raw.op) else {
            return Ok(PlannerResult::Original(raw));
        };
        if operator.is_numerical_operators() {
            raw.left = as_number(raw.left, schema);
            raw.right = as_number(raw.right, schema);
        }
        // An operand without a type is rejected elsewhere, with a better message.
        let (Ok(left), Ok(right)) = (raw.left.get_type(schema), raw.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(raw));
        };
        if BinaryTypeCoercer::new(&left, &operator, &right)
            .get_input_types()
            .is_ok()
        {
            return Ok(PlannerResult::Original(raw));
        }
        let error = SqlError::new(format!(
            "operator does not exist: {} {} {}",
            sql_name(&left),
            raw.op,
            sql_name(&right)
        ))
        .hint(hint(&operator, &left, &right));
        failed(
            match first_place(&raw.left).or_else(|| first_place(&raw.right)) {
                Some(span) => error.at(to_span(span)),
                None => error,
            },
        )
    }

    fn plan_aggregate(&self, raw: RawAggregateExpr) -> Result<PlannerResult<RawAggregateExpr>> {
        Ok(PlannerResult::Original(RawAggregateExpr {
            args: all_named(raw.args)?,
            filter: boxed_named(raw.filter)?,
            ..raw
        }))
    }

    fn plan_window(&self, raw: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        Ok(PlannerResult::Original(RawWindowExpr {
            args: all_named(raw.args)?,
            partition_by: all_named(raw.partition_by)?,
            filter: boxed_named(raw.filter)?,
            ..raw
        }))
    }

    fn plan_field_access(
        &self,
        raw: RawFieldAccessExpr,
        _: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        Ok(match &raw.field_access {
            GetFieldAccess::NamedStructField { name } => {
                PlannerResult::Planned(field_of(raw.expr.clone(), lit(name.clone())))
            }
            _ => PlannerResult::Original(raw),
        })
    }
}

/// The planner identifies results of aggregates by their names, and omits casts in these: SUM(x) and
/// SUM(CAST(x AS BIGINT)) would be the same. So a cast gets an alias that contains it.
fn with_casts_named(expression: Expr) -> Result<Expr> {
    let named = expression.transform_up(|part| {
        let (word, inner, field) = match &part {
            Expr::Cast(cast) => ("CAST", &cast.expr, &cast.field),
            Expr::TryCast(cast) => ("TRY_CAST", &cast.expr, &cast.field),
            _ => return Ok(Transformed::no(part)),
        };
        // Constant arguments must stay as they are, such as the fraction of a percentile.
        if !inner.any_column_refs() {
            return Ok(Transformed::no(part));
        }
        let data_type = sql_name(field.data_type());
        let name = format!("{word}({} AS {data_type})", inner.schema_name());
        Ok(Transformed::yes(part.alias(name)))
    });
    Ok(named?.data)
}

fn all_named(expressions: Vec<Expr>) -> Result<Vec<Expr>> {
    expressions.into_iter().map(with_casts_named).collect()
}

fn boxed_named(expression: Option<Box<Expr>>) -> Result<Option<Box<Expr>>> {
    let named = expression.map(|expression| with_casts_named(*expression).map(Box::new));
    named.transpose()
}

/// Rejects `FILTER (WHERE x)` if `x` is not a BOOLEAN: the planner would cast it to one.
pub fn check_filters(plan: &LogicalPlan) -> crate::error::Result<()> {
    let mut wrong = None;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node {
            for expression in &aggregate.aggr_expr {
                if let Expr::AggregateFunction(call) = expression.clone().unalias()
                    && let Some(filter) = &call.params.filter
                    && let Ok(data_type) = filter.get_type(aggregate.input.schema())
                    && !matches!(data_type, DataType::Boolean | DataType::Null)
                {
                    wrong = Some(data_type);
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    match wrong {
        None => Ok(()),
        Some(data_type) => Err(SqlError::new(format!(
            "a condition must be a BOOLEAN, and this is {}",
            sql_name(&data_type)
        ))
        .near("FILTER")),
    }
}

fn field_of(row: Expr, name: Expr) -> Expr {
    let get_field = datafusion_functions::core::get_field();
    Expr::ScalarFunction(ScalarFunction::new_udf(get_field, vec![row, name]))
}

fn operator(written: &BinaryOperator) -> Option<Operator> {
    Some(match written {
        BinaryOperator::Plus => Operator::Plus,
        BinaryOperator::Minus => Operator::Minus,
        BinaryOperator::Multiply => Operator::Multiply,
        BinaryOperator::Divide => Operator::Divide,
        BinaryOperator::Modulo => Operator::Modulo,
        BinaryOperator::Eq => Operator::Eq,
        BinaryOperator::NotEq => Operator::NotEq,
        BinaryOperator::Lt => Operator::Lt,
        BinaryOperator::LtEq => Operator::LtEq,
        BinaryOperator::Gt => Operator::Gt,
        BinaryOperator::GtEq => Operator::GtEq,
        BinaryOperator::And => Operator::And,
        BinaryOperator::Or => Operator::Or,
        BinaryOperator::StringConcat => Operator::StringConcat,
        _ => return None,
    })
}

/// The place of the first column in an expression.
fn first_place(expression: &Expr) -> Option<datafusion_common::Span> {
    let mut place = None;
    let searched = expression.apply(|part| {
        if let Expr::Column(column) = part {
            place = place.or(column.spans.first());
        }
        Ok(if place.is_some() {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    });
    searched.ok().and(place)
}

/// The number of a place ([`DIRECT`]) as a BIGINT: of its own type, a difference below 0 would not fit.
fn as_number(operand: Expr, schema: &DFSchema) -> Expr {
    match operand.get_type(schema) {
        Ok(DIRECT) => cast(operand, DataType::Int64),
        _ => operand,
    }
}

fn hint(operator: &Operator, left: &DataType, right: &DataType) -> &'static str {
    let any = |is: fn(&DataType) -> bool| is(left) || is(right);
    let time =
        |data_type: &DataType| matches!(data_type, DataType::Timestamp(_, _) | DataType::Date32);
    let text = |data_type: &DataType| {
        matches!(
            data_type,
            DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8
        )
    };
    let adds = matches!(operator, Operator::Plus | Operator::Minus);
    if matches!(operator, Operator::And | Operator::Or) {
        "AND and OR need conditions, such as x <> 0"
    } else if any(time) && any(DataType::is_numeric) && adds {
        "use a time and an interval: ts + INTERVAL '1' SECOND"
    } else if any(time) && any(DataType::is_numeric) {
        "use TO_TIMESTAMP_LTZ(ms, 3) to convert a number to a time, or CAST(ts AS BIGINT) for the opposite"
    } else if any(text) && any(DataType::is_numeric) {
        "use CAST(text AS DOUBLE) to convert a string to a number"
    } else {
        "CAST one of the operands"
    }
}
