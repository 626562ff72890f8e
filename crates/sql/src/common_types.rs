//! The types in which values are compared or combined into one column, where DataFusion's choice gives wrong
//! answers:
//!
//! - DECIMAL with DOUBLE or FLOAT is DOUBLE. As DECIMAL(30, 15), NaN and 1e300 have no value and 1e-300 is 0.
//! - INT and BIGINT with FLOAT are compared as DOUBLE. A FLOAT has 24 bits of precision.
//! - TIMESTAMP with DATE is a TIMESTAMP of the same unit; with a constant string it is one of microseconds.
//!   Nanoseconds end in 2262.
//! - A difference of times with an INTERVAL is a duration of days and nanoseconds. Months have no fixed
//!   length, so they are compared with months only.
//!
//! Everything else is left to DataFusion's type coercion, which runs afterwards.

use std::sync::Arc;

use arrow_cast::parse::string_to_datetime;
use arrow_schema::{DataType, FieldRef, TimeUnit};
use chrono::{Timelike, Utc};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion_expr::conditional_expressions::CaseBuilder;
use datafusion_expr::expr::{Between, Case, InList, InSubquery, ScalarFunction};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::expr_schema::cast_subquery;
use datafusion_expr::logical_plan::{Join, Union};
use datafusion_expr::type_coercion::functions::fields_with_udf;
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast, lit,
};

use crate::error::SqlError;
use crate::simplify::is_comparison;
use crate::types::INTERVAL;

/// The plan with casts where values of different types meet.
pub fn unify(plan: LogicalPlan) -> Result<LogicalPlan> {
    Ok(plan.transform_up_with_subqueries(node)?.data)
}

fn node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    let names = NamePreserver::new(&plan);
    let plan = plan.map_expressions(|expression| {
        let name = names.save(&expression);
        let unified = expression.transform_up(|part| part_of(part, &schema))?;
        Ok(unified.update_data(|expression| name.restore(expression)))
    })?;
    plan.map_data(|plan| match plan {
        LogicalPlan::Join(join) => keys(join),
        LogicalPlan::Union(inputs) => union(inputs),
        other => other.recompute_schema(),
    })
}

/// The keys of JOIN … USING, and of subqueries that become joins.
fn keys(mut join: Join) -> Result<LogicalPlan> {
    for (left, right) in &mut join.on {
        let types = [
            left.get_type(join.left.schema())?,
            right.get_type(join.right.schema())?,
        ];
        if let Some(common) = compared(&types) {
            *left = left.clone().cast_to(&common, join.left.schema())?;
            *right = right.clone().cast_to(&common, join.right.schema())?;
        }
    }
    LogicalPlan::Join(join).recompute_schema()
}

/// The union with casts, where this module chooses a common type.
fn union(union: Union) -> Result<LogicalPlan> {
    let mut inputs = union.inputs;
    let columns = inputs[0].schema().fields().len();
    let mut wanted = vec![None; columns];
    for (column, wanted) in wanted.iter_mut().enumerate() {
        let types = inputs.iter().filter_map(|input| {
            let field = input.schema().fields().get(column)?;
            Some(field.data_type().clone())
        });
        *wanted = united(&types.collect::<Vec<DataType>>());
    }
    if wanted.iter().any(Option::is_some) {
        for input in &mut inputs {
            let schema = input.schema().clone();
            let columns = schema.columns().into_iter().zip(&wanted);
            let columns = columns.map(|(column, wanted)| {
                let name = column.name.clone();
                let column = Expr::Column(column);
                match wanted {
                    Some(to) if column.get_type(&schema)? != *to => {
                        Ok(cast(column, to.clone()).alias(name))
                    }
                    _ => Ok(column),
                }
            });
            let columns = columns.collect::<Result<Vec<Expr>>>()?;
            let plan = LogicalPlanBuilder::from(input.as_ref().clone());
            *input = Arc::new(plan.project(columns)?.build()?);
        }
    }
    let union = Union::try_new_with_loose_types(inputs)?;
    Ok(LogicalPlan::Union(union))
}

/// Rewrites an expression whose parts are already rewritten.
fn part_of(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match part {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            let mut both = [*left, *right];
            let changed = compare(&mut both.iter_mut().collect::<Vec<_>>(), schema)?;
            let [left, right] = both.map(Box::new);
            let comparison = Expr::BinaryExpr(BinaryExpr { left, op, right });
            Ok(Transformed::new_transformed(comparison, changed))
        }
        Expr::Between(mut between) => {
            let Between {
                expr, low, high, ..
            } = &mut between;
            let changed = compare(&mut [expr, low, high], schema)?;
            let between = Expr::Between(between);
            Ok(Transformed::new_transformed(between, changed))
        }
        Expr::InList(mut list) => {
            let InList {
                expr, list: values, ..
            } = &mut list;
            let mut all = values.iter_mut().collect::<Vec<_>>();
            all.push(expr);
            let changed = compare(&mut all, schema)?;
            Ok(Transformed::new_transformed(Expr::InList(list), changed))
        }
        Expr::InSubquery(subquery) => in_subquery(subquery, schema),
        Expr::Case(expression) => case(expression, schema),
        Expr::ScalarFunction(function) => call(function, schema),
        part => Ok(Transformed::no(part)),
    }
}

fn in_subquery(in_subquery: InSubquery, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let InSubquery {
        expr,
        subquery,
        negated,
    } = in_subquery;
    let column = subquery.subquery.schema().field(0).data_type().clone();
    let Some(common) = compared(&[expr.get_type(schema)?, column]) else {
        let same = InSubquery::new(expr, subquery, negated);
        return Ok(Transformed::no(Expr::InSubquery(same)));
    };
    let expr = Box::new(expr.cast_to(&common, schema)?);
    let subquery = cast_subquery(subquery, &common)?;
    let rewritten = InSubquery::new(expr, subquery, negated);
    Ok(Transformed::yes(Expr::InSubquery(rewritten)))
}

fn case(mut case: Case, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut changed = false;
    if let Some(value) = &mut case.expr {
        let whens = case.when_then_expr.iter_mut();
        let mut all = whens.map(|(when, _)| when.as_mut()).collect::<Vec<_>>();
        all.push(value);
        changed |= compare(&mut all, schema)?;
    }
    let thens = case.when_then_expr.iter_mut();
    let mut all = thens.map(|(_, then)| then.as_mut()).collect::<Vec<_>>();
    all.extend(case.else_expr.as_deref_mut());
    changed |= unite(&mut all, schema)?;
    Ok(Transformed::new_transformed(Expr::Case(case), changed))
}

fn call(mut function: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let first = match function.func.name() {
        "coalesce" | "nvl" | "ifnull" | "greatest" | "least" | "make_array" => 0,
        "nvl2" | "if" => 1,
        "nullif" => return null_if(function, schema),
        // As a cast they round down; these functions would round towards 1970.
        "to_unixtime" => return to_unit(function, TimeUnit::Second, schema),
        "to_timestamp_seconds" => return to_unit(function, TimeUnit::Second, schema),
        "to_timestamp_millis" => return to_unit(function, TimeUnit::Millisecond, schema),
        "to_timestamp_micros" => return to_unit(function, TimeUnit::Microsecond, schema),
        _ => return constants(function, schema),
    };
    let mut all = function.args.iter_mut().skip(first).collect::<Vec<_>>();
    let changed = unite(&mut all, schema)?;
    let function = Expr::ScalarFunction(function);
    Ok(Transformed::new_transformed(function, changed))
}

/// Constant arguments with the types that the function takes: `round(d, 0)` derives its type from the
/// constant, which it doesn't find in a cast.
fn constants(mut function: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let fields = function
        .args
        .iter()
        .map(|argument| argument.to_field(schema));
    let fields = fields.map(|field| field.ok().map(|(_, field)| field));
    let fields = fields.collect::<Option<Vec<FieldRef>>>();
    let taken = fields.and_then(|fields| fields_with_udf(&fields, function.func.as_ref()).ok());
    let mut changed = false;
    for (argument, taken) in function.args.iter_mut().zip(taken.into_iter().flatten()) {
        if let Expr::Literal(value, _) = argument
            && value.data_type() != *taken.data_type()
            && let Ok(value) = value.cast_to(taken.data_type())
        {
            *argument = lit(value);
            changed = true;
        }
    }
    let function = Expr::ScalarFunction(function);
    Ok(Transformed::new_transformed(function, changed))
}

/// A function that converts a time to another unit, as a cast.
fn to_unit(
    function: ScalarFunction,
    unit: TimeUnit,
    schema: &DFSchema,
) -> Result<Transformed<Expr>> {
    if let [time] = function.args.as_slice()
        && let DataType::Timestamp(_, None) = time.get_type(schema)?
    {
        let time = cast(time.clone(), DataType::Timestamp(unit, None));
        return Ok(Transformed::yes(match function.func.name() {
            "to_unixtime" => cast(time, DataType::Int64),
            _ => time,
        }));
    }
    Ok(Transformed::no(Expr::ScalarFunction(function)))
}

/// NULLIF compares in another type than that of its result: `NULLIF(amount, 0.5)` is a DECIMAL.
fn null_if(function: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if let [value, other] = function.args.as_slice()
        && !value.is_volatile()
        && compared(&[value.get_type(schema)?, other.get_type(schema)?]).is_some()
    {
        let same = part_of(value.clone().eq(other.clone()), schema)?.data;
        let null = lit(ScalarValue::try_from(&value.get_type(schema)?)?);
        let otherwise = Some(Box::new(value.clone()));
        let case = CaseBuilder::new(None, vec![same], vec![null], otherwise).end()?;
        return Ok(Transformed::yes(case));
    }
    Ok(Transformed::no(Expr::ScalarFunction(function)))
}

/// Casts values that are compared. Returns whether it has changed anything.
fn compare(values: &mut [&mut Expr], schema: &DFSchema) -> Result<bool> {
    let Some(types) = types(values, schema) else {
        return Ok(false);
    };
    if types.iter().any(is_length) {
        refuse_months(values)?;
    }
    if is_time_with_strings(values, &types) {
        return cast_all(values, &types, &MICROSECONDS, is_string);
    }
    match compared(&types) {
        Some(common) => cast_all(values, &types, &common, |_| true),
        None => Ok(false),
    }
}

/// Casts values that become one column. Returns whether it has changed anything.
fn unite(values: &mut [&mut Expr], schema: &DFSchema) -> Result<bool> {
    let types = types(values, schema);
    match types.and_then(|types| Some((united(&types)?, types))) {
        Some((common, types)) => cast_all(values, &types, &common, |_| true),
        None => Ok(false),
    }
}

const MICROSECONDS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// The types of the values; `None` if one is invalid, which the planner reports later.
fn types(values: &[&mut Expr], schema: &DFSchema) -> Option<Vec<DataType>> {
    let types = values.iter().map(|value| value.get_type(schema).ok());
    types.collect()
}

fn cast_all(
    values: &mut [&mut Expr],
    types: &[DataType],
    to: &DataType,
    which: fn(&DataType) -> bool,
) -> Result<bool> {
    let mut changed = false;
    for (value, data_type) in values.iter_mut().zip(types) {
        if data_type != to && which(data_type) {
            **value = cast(std::mem::take(*value), to.clone());
            changed = true;
        }
    }
    Ok(changed)
}

/// The type in which values of these types are compared; `None` where DataFusion chooses the right one.
fn compared(types: &[DataType]) -> Option<DataType> {
    let any = |is: fn(&DataType) -> bool| types.iter().any(is);
    let is_wide = |data_type: &DataType| matches!(data_type, DataType::Int32 | DataType::Int64);
    let is_single = |data_type: &DataType| matches!(data_type, DataType::Float32);
    let all_numbers = types
        .iter()
        .all(|data_type| data_type.is_numeric() || data_type.is_null());
    match all_numbers && any(is_wide) && any(is_single) {
        true => Some(DataType::Float64),
        false => united(types),
    }
}

/// The type of a column with values of these types; `None` where DataFusion chooses the right one.
fn united(types: &[DataType]) -> Option<DataType> {
    let any = |is: fn(&DataType) -> bool| types.iter().any(is);
    let all = |is: fn(&DataType) -> bool| {
        types
            .iter()
            .all(|data_type| is(data_type) || data_type.is_null())
    };
    if all(DataType::is_numeric) && any(DataType::is_decimal) && any(DataType::is_floating) {
        return Some(DataType::Float64);
    }
    let is_date = |data_type: &DataType| matches!(data_type, DataType::Date32);
    let is_time = |data_type: &DataType| matches!(data_type, DataType::Timestamp(_, None));
    if all(|data_type| matches!(data_type, DataType::Date32 | DataType::Timestamp(_, None)))
        && any(is_date)
        && any(is_time)
    {
        let units = types.iter().filter_map(|data_type| match data_type {
            DataType::Timestamp(unit, None) => Some(*unit),
            _ => None,
        });
        // Finer units are greater.
        return Some(DataType::Timestamp(units.max()?, None));
    }
    let mut lengths = types.iter().filter(|data_type| !data_type.is_null());
    let first = lengths.next()?;
    (all(is_length) && lengths.any(|data_type| data_type != first)).then_some(INTERVAL)
}

fn is_length(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_) | DataType::Duration(_))
}

fn is_string(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8
    )
}

/// Whether times in microseconds or coarser units are compared with constants without finer digits.
fn is_time_with_strings(values: &[&mut Expr], types: &[DataType]) -> bool {
    let mut times = 0;
    let all = values
        .iter()
        .zip(types)
        .all(|(value, data_type)| match data_type {
            DataType::Timestamp(TimeUnit::Nanosecond, _) => false,
            DataType::Timestamp(_, None) => {
                times += 1;
                true
            }
            DataType::Null => true,
            data_type if is_string(data_type) => match &**value {
                Expr::Literal(value, _) => value.try_as_str().flatten().is_some_and(|text| {
                    let time = string_to_datetime(&Utc, text);
                    time.is_ok_and(|time| time.nanosecond() % 1_000 == 0)
                }),
                _ => false,
            },
            _ => false,
        });
    all && times > 0 && types.iter().any(is_string)
}

/// Rejects a comparison of months with a difference of times.
fn refuse_months(values: &[&mut Expr]) -> Result<()> {
    let (mut months, mut others) = (false, false);
    for value in values {
        value.apply(|part| match part {
            Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) => {
                months |= interval.months != 0;
                others |= interval.days != 0 || interval.nanoseconds != 0;
                Ok(TreeNodeRecursion::Continue)
            }
            // The operands of a difference of times may have any type.
            Expr::BinaryExpr(difference) if is_of_times(difference) => {
                others = true;
                Ok(TreeNodeRecursion::Jump)
            }
            Expr::Column(_) => {
                others = true;
                Ok(TreeNodeRecursion::Continue)
            }
            _ => Ok(TreeNodeRecursion::Continue),
        })?;
    }
    if !(months && others) {
        return Ok(());
    }
    let error = "an INTERVAL of months or years has no fixed length, so it can't be compared";
    let error = SqlError::new(error)
        .near("INTERVAL")
        .hint("compare times: a.ts > b.ts + INTERVAL '1' MONTH; or use days: INTERVAL '30' DAY");
    Err(DataFusionError::External(Box::new(error)))
}

/// Whether neither operand is itself a duration.
fn is_of_times(difference: &BinaryExpr) -> bool {
    let has_length = |side: &Expr| {
        let is_interval = |part: &Expr| {
            Ok(matches!(
                part,
                Expr::Literal(ScalarValue::IntervalMonthDayNano(_), _)
            ))
        };
        matches!(side, Expr::Literal(..)) && side.exists(is_interval).unwrap_or(true)
    };
    difference.op == datafusion_expr::Operator::Minus
        && !has_length(&difference.left)
        && !has_length(&difference.right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finer_units_are_greater() {
        assert!(TimeUnit::Second < TimeUnit::Millisecond);
        assert!(TimeUnit::Millisecond < TimeUnit::Microsecond);
        assert!(TimeUnit::Microsecond < TimeUnit::Nanosecond);
    }
}
