//! Aggregate functions: the engine's own where it has one, and DataFusion's accumulators for the rest,
//! provided that their state can be saved and restored without changing their value.

mod digests;
mod moments;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef, SortOptions};
use datafusion_common::tree_node::TreeNode;
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::expr::{AggregateFunction as AggregateExpr, NullTreatment, Sort};
use datafusion_expr::{Accumulator as DataFusionAccumulator, AggregateUDF, Expr, ExprSchemable};
use datafusion_physical_expr::PhysicalSortExpr;
use datafusion_physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion_physical_expr::expressions::{Column, Literal};
use slackwater_engine::accumulator::{
    Accumulator, AccumulatorFactory, AggregateFunction, Failures, OrderKey, Signature, Values,
};

use crate::error::{Result, SqlError};
use crate::expression::Physical;
use crate::functions::UserAggregate;
use crate::state::literal;
use digests::{Digests, Percentile};
use moments::{Moment, Moments};

/// A planned aggregate call: the function and the expressions that it is called with.
pub struct PlannedCall {
    /// The aggregate function.
    pub function: AggregateFunction,
    /// The call's arguments.
    pub arguments: Vec<Expr>,
}

/// Functions whose result depends on the order in which rows arrive.
const ORDER_SENSITIVE: &[&str] = &["array_agg", "string_agg", "nth_value", "any_value"];

/// Functions that pick a row by event time.
const FIRST_LAST: &[&str] = &["first_value", "last_value"];

/// Whether an expression calls an aggregate that picks a row by event time.
pub fn orders_rows(expression: &Expr) -> bool {
    let is_first_last = |part: &Expr| match part {
        Expr::AggregateFunction(call) => FIRST_LAST.contains(&call.func.name()),
        _ => false,
    };
    expression
        .exists(|part| Ok(is_first_last(part)))
        .unwrap_or(true)
}

/// Whether a function keeps all values that it has seen, or all distinct ones.
pub fn keeps_values(function: &AggregateFunction) -> bool {
    match function {
        AggregateFunction::Distinct { function, .. } => !function.needs_order(),
        AggregateFunction::Quantile { .. } => true,
        AggregateFunction::Other(factory) => factory.keeps_values(),
        AggregateFunction::Count
        | AggregateFunction::Sum { .. }
        | AggregateFunction::Average
        | AggregateFunction::Extreme { .. }
        | AggregateFunction::FirstLast { .. } => false,
    }
}

/// Plans one aggregate call over an input with `schema`.
pub fn plan(call: &AggregateExpr, schema: &DFSchema) -> Result<PlannedCall> {
    let name = call.func.name().to_lowercase();
    let shown = name.to_uppercase();
    let params = &call.params;
    // `WITHIN GROUP (ORDER BY x)` selects values. It does not depend on the order in which rows arrive.
    let within_group = call.func.supports_within_group_clause();
    if !params.order_by.is_empty() && !within_group {
        return Err(
            SqlError::new(format!("{shown} with ORDER BY is not supported"))
                .near(&shown)
                .hint("use FIRST_VALUE or LAST_VALUE, which order rows by event time"),
        );
    }
    if ORDER_SENSITIVE.contains(&name.as_str()) {
        return Err(SqlError::new(format!(
            "{shown} depends on the order in which rows arrive, which differs from run to run"
        ))
        .near(&shown)
        .hint("use FIRST_VALUE or LAST_VALUE, which order rows by event time"));
    }
    let types = params.args.iter().map(|argument| argument.get_type(schema));
    let types = types.collect::<datafusion_common::Result<Vec<DataType>>>()?;
    let result = {
        let call = Expr::AggregateFunction(call.clone());
        call.get_type(schema)?
    };
    let mut arguments = params.args.clone();
    let own = match (name.as_str(), types.as_slice()) {
        ("count", _) => {
            // COUNT(*) arrives as COUNT of a constant.
            if !params.distinct
                && arguments
                    .iter()
                    .all(|a| matches!(a, Expr::Literal(v, _) if !v.is_null()))
            {
                arguments.clear();
            }
            // Arrow's NullArray has no validity bitmap, so that its NULLs are not counted; other types have
            // one.
            for (argument, data_type) in arguments.iter_mut().zip(&types) {
                if data_type == &DataType::Null {
                    *argument = datafusion_expr::cast(argument.clone(), DataType::Boolean);
                }
            }
            Some(AggregateFunction::Count)
        }
        ("sum", [data_type])
            if data_type.is_integer()
                || data_type == &DataType::Float64
                || is_decimal(data_type) =>
        {
            matches!(
                result,
                DataType::Int64 | DataType::UInt64 | DataType::Float64 | DataType::Decimal128(_, _)
            )
            .then_some(AggregateFunction::Sum { to: result.clone() })
        }
        ("avg", [DataType::Float64]) => {
            // The planner casts integers to DOUBLE. Without the cast their sum is exact.
            if let Expr::Cast(cast) = &arguments[0]
                && cast.expr.get_type(schema)?.is_integer()
            {
                arguments = vec![cast.expr.as_ref().clone()];
            }
            Some(AggregateFunction::Average)
        }
        ("min" | "max", [data_type]) => Some(AggregateFunction::Extreme {
            largest: name == "max",
            of: data_type.clone(),
        }),
        (name, [data_type]) if FIRST_LAST.contains(&name) => Some(AggregateFunction::FirstLast {
            last: name == "last_value",
            ignore_nulls: params.null_treatment == Some(NullTreatment::IgnoreNulls),
            of: data_type.clone(),
        }),
        ("median" | "percentile_cont", [data_type, ..]) if is_float(data_type) => {
            let data_type = data_type.clone();
            let function = fraction(call).map(|fraction| AggregateFunction::Quantile {
                fraction,
                of: data_type,
            });
            if function.is_some() {
                arguments.truncate(1);
            }
            function
        }
        _ => (call.func.inner().as_ref() as &dyn Any)
            .downcast_ref::<UserAggregate>()
            .map(|user| AggregateFunction::Other(user.factory().clone())),
    };
    let function = match own {
        Some(function) => function,
        None => {
            let factory = Factory::new(call, &types, result)?;
            AggregateFunction::Other(Arc::new(factory))
        }
    };
    let function = match function {
        // MIN, MAX, FIRST_VALUE and LAST_VALUE of the distinct values are those of all values.
        function @ (AggregateFunction::Extreme { .. } | AggregateFunction::FirstLast { .. }) => {
            function
        }
        // DataFusion's functions, too: its own DISTINCT adds the values in the order of a hash table, which
        // differs from run to run, and with it the last bits of a floating-point result.
        function if params.distinct => {
            let types = arguments.iter().map(|argument| argument.get_type(schema));
            let types = types.collect::<datafusion_common::Result<Vec<DataType>>>()?;
            AggregateFunction::Distinct {
                function: Box::new(function),
                arguments: types,
            }
        }
        function => function,
    };
    Ok(PlannedCall {
        function,
        arguments,
    })
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// The fraction that MEDIAN or PERCENTILE_CONT asks for; `None` if it is not valid, which the planner
/// reports.
fn fraction(call: &AggregateExpr) -> Option<f64> {
    let fraction = match call.params.args.get(1) {
        None => 0.5,
        Some(Expr::Literal(ScalarValue::Float64(Some(fraction)), _)) => *fraction,
        Some(_) => return None,
    };
    let is_descending = call.params.order_by.first().is_some_and(|sort| !sort.asc);
    (0.0..=1.0)
        .contains(&fraction)
        .then_some(match is_descending {
            true => 1.0 - fraction,
            false => fraction,
        })
}

fn is_decimal(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(_, _))
}

/// Makes accumulators of a DataFusion function for given argument types.
struct Factory {
    call: Arc<AggregateFunctionExpr>,
    signature: Signature,
    result: DataType,
    keeps_values: bool,
    own: Option<Own>,
}

/// What our own accumulators compute.
enum Own {
    Moment(Moment),
    Percentile(Percentile),
}

/// DataFusion's functions that keep all values until the end.
const KEEP_VALUES: &[&str] = &["median", "percentile_cont"];

fn direction(sort: &Sort) -> SortOptions {
    SortOptions {
        descending: !sort.asc,
        nulls_first: sort.nulls_first,
    }
}

impl Factory {
    fn new(call: &AggregateExpr, types: &[DataType], result: DataType) -> Result<Factory> {
        let fields = types.iter().enumerate();
        let fields = fields
            .map(|(index, data_type)| Field::new(format!("a{index}"), data_type.clone(), true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let arguments =
            call.params
                .args
                .iter()
                .enumerate()
                .map(|(index, argument)| match argument {
                    // Some functions read constant arguments when they are created, such as the fraction of a
                    // percentile.
                    Expr::Literal(value, _) => Arc::new(Literal::new(value.clone())) as Physical,
                    _ => Arc::new(Column::new(&format!("a{index}"), index)) as Physical,
                });
        let order = call
            .params
            .order_by
            .iter()
            .enumerate()
            .map(|(index, sort)| {
                let column = Arc::new(Column::new(&format!("a{index}"), index)) as Physical;
                PhysicalSortExpr::new(column, direction(sort))
            });
        let function: Arc<AggregateUDF> = call.func.clone();
        let ignore_nulls = call.params.null_treatment == Some(NullTreatment::IgnoreNulls);
        let constants = call
            .params
            .args
            .iter()
            .filter_map(|argument| match argument {
                Expr::Literal(value, _) => Some(literal(value)),
                _ => None,
            });
        let signature = Signature {
            name: function.name().to_string(),
            arguments: types.to_vec(),
            constants: constants.collect(),
            order: call.params.order_by.iter().map(direction).collect(),
            ignore_nulls,
        };
        let made = AggregateExprBuilder::new(function, arguments.collect())
            .schema(schema)
            .alias("aggregate")
            // The planner has put the WITHIN GROUP expression in front of the arguments.
            .order_by(order.collect())
            .with_ignore_nulls(ignore_nulls)
            .build()?;
        made.create_accumulator()?;
        let moment = Moment::named(call.func.name()).map(Own::Moment);
        let own = moment.or_else(|| Percentile::of(call, &result).map(Own::Percentile));
        Ok(Factory {
            own,
            call: Arc::new(made),
            signature,
            result,
            keeps_values: KEEP_VALUES.contains(&call.func.name()),
        })
    }
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.signature.fmt(f)
    }
}

impl AccumulatorFactory for Factory {
    fn accumulator(&self) -> slackwater_engine::Result<Box<dyn Accumulator>> {
        Ok(match &self.own {
            Some(Own::Moment(moment)) => Box::new(Moments::new(*moment)),
            Some(Own::Percentile(percentile)) => Box::new(Digests::new(percentile.clone())),
            None => Box::new(PerGroup {
                call: self.call.clone(),
                result: self.result.clone(),
                groups: Vec::new(),
            }),
        })
    }

    fn data_type(&self) -> DataType {
        self.result.clone()
    }

    fn signature(&self) -> Signature {
        self.signature.clone()
    }

    fn keeps_values(&self) -> bool {
        self.keeps_values
    }
}

/// One DataFusion accumulator for each group.
struct PerGroup {
    call: Arc<AggregateFunctionExpr>,
    result: DataType,
    groups: Vec<Option<Box<dyn DataFusionAccumulator>>>,
}

fn failed(error: datafusion_common::DataFusionError) -> slackwater_engine::Error {
    slackwater_engine::Error::new("aggregate", SqlError::from(error).message)
}

impl PerGroup {
    fn group(
        &mut self,
        group: u32,
    ) -> slackwater_engine::Result<&mut Box<dyn DataFusionAccumulator>> {
        let slot = &mut self.groups[group as usize];
        if slot.is_none() {
            *slot = Some(self.call.create_accumulator().map_err(failed)?);
        }
        Ok(slot.as_mut().expect("filled just above"))
    }

    /// Calls `add` once for each group, with the numbers of its rows.
    fn by_group(
        &mut self,
        groups: &[u32],
        columns: &[ArrayRef],
        add: impl Fn(&mut dyn DataFusionAccumulator, &[ArrayRef]) -> datafusion_common::Result<()>,
    ) -> slackwater_engine::Result<()> {
        let mut rows = (0..groups.len() as u32).collect::<Vec<u32>>();
        // A stable sort: the rows of a group keep their order.
        rows.sort_by_key(|&row| groups[row as usize]);
        let indices = UInt32Array::from(rows);
        let columns = columns
            .iter()
            .map(|column| arrow_select::take::take(column, &indices, None))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let mut start = 0;
        while start < groups.len() {
            let group = groups[indices.value(start) as usize];
            let same = |&row: &u32| groups[row as usize] == group;
            let length = indices.values()[start..]
                .iter()
                .take_while(|row| same(row))
                .count();
            let slices = columns
                .iter()
                .map(|c| c.slice(start, length))
                .collect::<Vec<_>>();
            add(self.group(group)?.as_mut(), &slices).map_err(failed)?;
            start += length;
        }
        Ok(())
    }
}

impl Accumulator for PerGroup {
    fn resize(&mut self, groups: usize) {
        self.groups.resize_with(groups, || None);
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            self.groups[group as usize] = None;
        }
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> slackwater_engine::Result<Failures> {
        self.by_group(groups, arguments, |accumulator, rows| {
            accumulator.update_batch(rows)
        })?;
        Ok(Failures::new())
    }

    fn evaluate(&mut self, groups: &[u32]) -> slackwater_engine::Result<Values> {
        let mut values = Vec::with_capacity(groups.len());
        let mut condemned = Vec::new();
        for (index, &group) in groups.iter().enumerate() {
            let value = self.group(group)?.evaluate();
            let value = value.and_then(|value| value.cast_to(&self.result));
            values.push(match value {
                Ok(value) => value,
                Err(error) => {
                    condemned.push((index, failed(error).reason));
                    ScalarValue::try_from(&self.result).map_err(failed)?
                }
            });
        }
        if values.is_empty() {
            return Ok(Values::all(arrow_array::new_empty_array(&self.result)));
        }
        Ok(Values {
            column: ScalarValue::iter_to_array(values).map_err(failed)?,
            failed: condemned,
        })
    }

    fn state(&mut self, groups: &[u32]) -> slackwater_engine::Result<Vec<ArrayRef>> {
        let fields = self.call.state_fields().map_err(failed)?;
        let mut states = vec![Vec::with_capacity(groups.len()); fields.len()];
        for &group in groups {
            let state = self.group(group)?.state().map_err(failed)?;
            // Reading the state may empty the accumulator: a new one is restored from the state.
            let mut fresh = self.call.create_accumulator().map_err(failed)?;
            let arrays = state
                .iter()
                .map(|value| value.to_array())
                .collect::<datafusion_common::Result<Vec<_>>>();
            fresh
                .merge_batch(&arrays.map_err(failed)?)
                .map_err(failed)?;
            self.groups[group as usize] = Some(fresh);
            states
                .iter_mut()
                .zip(state)
                .for_each(|(column, value)| column.push(value));
        }
        let columns = states.into_iter().zip(fields).map(|(values, field)| {
            if values.is_empty() {
                Ok(arrow_array::new_empty_array(field.data_type()))
            } else {
                ScalarValue::iter_to_array(values).map_err(failed)
            }
        });
        columns.collect()
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> slackwater_engine::Result<()> {
        // One at a time: given several states, some of DataFusion's accumulators read only the first.
        self.by_group(groups, states, |accumulator, rows| {
            let rows_of_group = rows.first().map_or(0, |column| column.len());
            (0..rows_of_group).try_for_each(|row| {
                let state = rows.iter().map(|column| column.slice(row, 1));
                accumulator.merge_batch(&state.collect::<Vec<ArrayRef>>())
            })
        })
    }

    fn bytes(&self) -> usize {
        self.groups
            .iter()
            .flatten()
            .map(|accumulator| accumulator.size())
            .sum()
    }
}
