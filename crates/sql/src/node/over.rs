//! Functions with OVER: aggregates of the rows before each row, in the order of event time.

use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use datafusion_common::ScalarValue;
use datafusion_expr::expr::{
    AggregateFunction as AggregateExpr, NullTreatment, Sort, WindowFunction, WindowFunctionParams,
};
use datafusion_expr::logical_plan::Window;
use datafusion_expr::{
    Expr, ExprSchemable, LogicalPlan, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition,
};
use slackwater_engine::accumulator::AggregateFunction;
use slackwater_engine::operator::drop_late::Late;
use slackwater_engine::operator::over::{Frame, OverCall, OverFunction, OverSpec};
use slackwater_engine::time::EventTime;

use super::table_join::place;
use super::{Role, Stream, Translator};
use crate::aggregates;
use crate::error::{Result, SqlError};
use crate::explain;
use crate::expression::{Physical, column};
use crate::specs::NodeSpec;
use crate::window::interval_ns;

/// Functions that look at rows behind their own, or at all rows of the key.
const NEED_ALL: &[&str] = &["lead", "ntile", "percent_rank", "cume_dist", "nth_value"];

/// A function as it is planned: with expressions where columns will stand.
struct Planned {
    function: OverFunction,
    arguments: Vec<Expr>,
    filter: Option<Expr>,
}

fn error(call: &WindowFunction, text: &str) -> SqlError {
    let name = call.fun.name().to_uppercase();
    SqlError::new(format!("{name} OVER (…): {text}")).near(name)
}

/// The call behind the names that the planner gives it.
fn call_of(expression: &Expr) -> Result<&WindowFunction> {
    match expression {
        Expr::Alias(alias) => call_of(&alias.expr),
        Expr::WindowFunction(call) => Ok(call),
        other => Err(SqlError::new(format!("'{other}' is no function with OVER"))),
    }
}

impl Translator<'_> {
    pub(super) fn over(&mut self, window: &Window) -> Result<Stream> {
        let plan = window.input.as_ref();
        let input = self.translate(plan)?;
        let calls = window.window_expr.iter().map(call_of);
        let calls = calls.collect::<Result<Vec<&WindowFunction>>>()?;
        let [first, ..] = calls.as_slice() else {
            return Ok(input);
        };
        if input.updates {
            return Err(error(first, "rows of a running aggregate are replaced later")
                .mend("aggregate in windows first: FROM TUMBLE(…) GROUP BY window_start, window_end, …"));
        }
        // The planner makes a plan of its own for each PARTITION BY and ORDER BY.
        let params = &first.params;
        let time = self.event_time_of_order(first, &input, plan)?;
        let mut columns = input.columns.clone();
        let names = plan.schema().fields().iter();
        let mut names = names.map(|field| field.name().clone()).collect::<Vec<_>>();
        let time_column = place(&time, "event_time".to_string(), &mut columns, &mut names);
        let mut keys = Vec::new();
        for (number, key) in params.partition_by.iter().enumerate() {
            let key = self.bind(key, &input, plan)?;
            keys.push(place(
                &key,
                format!("key{number}"),
                &mut columns,
                &mut names,
            ));
        }
        let mut planned_calls = Vec::new();
        for call in &calls {
            let planned = planned(call, plan)?;
            let mut add = |expression: &Expr| {
                let bound = self.bind(expression, &input, plan)?;
                let name = expression.schema_name().to_string();
                Ok::<usize, SqlError>(place(&bound, name, &mut columns, &mut names))
            };
            let arguments = planned.arguments.iter().map(&mut add);
            let arguments = arguments.collect::<Result<Vec<usize>>>()?;
            planned_calls.push(OverCall {
                function: planned.function,
                arguments,
                filter: planned.filter.as_ref().map(&mut add).transpose()?,
            });
        }
        let node = self.materialise(&input, &columns, &names, None)?;
        let node = self.drop_late(node, time_column, Late::At);
        let before = self.schemas[node].clone();
        let results = window.window_expr.iter().zip(&planned_calls);
        let results = results.map(|(expression, call)| {
            let name = explain::over_call(&expression.schema_name().to_string(), &call.function);
            Arc::new(Field::new(name, call.function.data_type(), true))
        });
        let fields = before.fields().iter().cloned().chain(results);
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let spec = OverSpec {
            keys,
            time_column,
            calls: planned_calls,
            behind_us: self.behind_us(node),
            input: before.clone(),
            schema: schema.clone(),
        };
        let detail = explain::over(&spec);
        let key = format!("over {spec:?}");
        let node = self.node(
            "over",
            detail,
            &[node],
            NodeSpec::Over(spec),
            schema.clone(),
            &key,
        );
        let of_input = 0..input.columns.len();
        let results = before.fields().len()..schema.fields().len();
        let shown = of_input.chain(results.clone());
        let columns = shown.map(|index| column(index, &schema));
        let mut roles = input.roles;
        roles.extend(results.map(|_| Role::Plain));
        Ok(Stream {
            node,
            columns: columns.collect(),
            roles,
            time: Some(column(time_column, &schema)),
            updates: false,
            key: None,
            deletes: false,
        })
    }

    /// The event time that rows are ordered by.
    fn event_time_of_order(
        &self,
        call: &WindowFunction,
        input: &Stream,
        plan: &LogicalPlan,
    ) -> Result<Physical> {
        let form = "… OVER (PARTITION BY k ORDER BY ts), with the column that WATERMARK FOR names";
        let [Sort { expr, asc, .. }] = call.params.order_by.as_slice() else {
            let text = match call.params.order_by.is_empty() {
                true => "without ORDER BY there is no last row, and the stream has no end",
                false => "rows are ordered by event time alone",
            };
            return Err(error(call, text).mend(form));
        };
        if self.role(expr, input, plan)? != Role::Time {
            let text = format!(
                "'{}' is not event time, so it is never known which rows come before",
                explain::readable(&expr.to_string())
            );
            return Err(error(call, &text).mend(form));
        }
        if !asc {
            let text = "in descending order all rows come before the first";
            return Err(error(call, text).mend("leave DESC out"));
        }
        self.bind(expr, input, plan)
    }
}

fn planned(call: &WindowFunction, plan: &LogicalPlan) -> Result<Planned> {
    let params = &call.params;
    let name = call.fun.name().to_lowercase();
    if NEED_ALL.contains(&name.as_str()) {
        let text = "rows behind the present one are not known yet";
        return Err(error(call, text).mend(
            "LAG, FIRST_VALUE, LAST_VALUE, ROW_NUMBER, RANK, DENSE_RANK and all aggregates look back only",
        ));
    }
    let own = match &call.fun {
        WindowFunctionDefinition::AggregateUDF(function) => {
            let WindowFunctionParams {
                args,
                filter,
                null_treatment,
                distinct,
                ..
            } = params;
            let function = function.clone();
            let call_of = AggregateExpr::new_udf(
                function,
                args.clone(),
                *distinct,
                None,
                Vec::new(),
                *null_treatment,
            );
            let planned = aggregates::plan(&call_of, plan.schema())?;
            return Ok(Planned {
                function: OverFunction::Aggregate {
                    function: planned.function,
                    frame: frame(call)?,
                },
                arguments: planned.arguments,
                filter: filter.as_ref().map(|filter| filter.as_ref().clone()),
            });
        }
        WindowFunctionDefinition::WindowUDF(_) => name.as_str(),
    };
    if params.filter.is_some() || params.distinct {
        return Err(error(call, "FILTER and DISTINCT belong to aggregates"));
    }
    let ignores_nulls = params.null_treatment == Some(NullTreatment::IgnoreNulls);
    let of = |argument: usize| match params.args.get(argument) {
        Some(argument) => Ok(argument.get_type(plan.schema())?),
        None => Err(error(call, "an argument is missing")),
    };
    let function = match own {
        "first_value" | "last_value" => OverFunction::Aggregate {
            function: AggregateFunction::FirstLast {
                last: own == "last_value",
                ignore_nulls: ignores_nulls,
                of: of(0)?,
            },
            frame: frame(call)?,
        },
        "row_number" => OverFunction::RowNumber,
        "rank" => OverFunction::Rank,
        "dense_rank" => OverFunction::DenseRank,
        "lag" if ignores_nulls => {
            return Err(error(call, "IGNORE NULLS is not known here"));
        }
        "lag" => OverFunction::Lag {
            offset: offset(call)?,
            of: of(0)?,
        },
        _ => return Err(error(call, "this function is not known here")),
    };
    let arguments = match own {
        "lag" => {
            let value = params.args[0].clone();
            let default = params.args.get(2).map(|default| {
                let of = of(0)?;
                Ok::<Expr, SqlError>(datafusion_expr::cast(default.clone(), of))
            });
            let default = default.transpose()?;
            [value].into_iter().chain(default).collect()
        }
        _ => params.args.clone(),
    };
    Ok(Planned {
        function,
        arguments,
        filter: None,
    })
}

/// How many rows LAG looks back.
fn offset(call: &WindowFunction) -> Result<u64> {
    let Some(offset) = call.params.args.get(1) else {
        return Ok(1);
    };
    let number = match offset {
        Expr::Literal(value, _) => value.cast_to(&arrow_schema::DataType::Int64).ok(),
        _ => None,
    };
    match number {
        Some(ScalarValue::Int64(Some(number))) if number >= 0 => Ok(number as u64),
        _ => {
            let text = "how many rows it looks back is a constant from 0 on";
            Err(error(call, text).mend("LAG(x, 2)"))
        }
    }
}

/// The rows of an aggregate's frame.
fn frame(call: &WindowFunction) -> Result<Frame> {
    let WindowFrame {
        units,
        start_bound,
        end_bound,
        ..
    } = &call.params.window_frame;
    let form = "ROWS BETWEEN 9 PRECEDING AND CURRENT ROW, RANGE BETWEEN INTERVAL '10' MINUTE PRECEDING AND \
         CURRENT ROW, or UNBOUNDED PRECEDING";
    if !matches!(end_bound, WindowFrameBound::CurrentRow) {
        return Err(error(call, "a frame ends at the CURRENT ROW").mend(form));
    }
    let before = match start_bound {
        WindowFrameBound::Preceding(before) if before.is_null() => None,
        WindowFrameBound::Preceding(before) => Some(before.clone()),
        WindowFrameBound::CurrentRow => Some(match units {
            WindowFrameUnits::Range => ScalarValue::new_interval_mdn(0, 0, 0),
            _ => ScalarValue::UInt64(Some(0)),
        }),
        WindowFrameBound::Following(_) => {
            return Err(error(call, "a frame begins before the CURRENT ROW").mend(form));
        }
    };
    match (units, before) {
        (WindowFrameUnits::Rows, None) => Ok(Frame::Rows(None)),
        (WindowFrameUnits::Range, None) => Ok(Frame::Range(None)),
        (WindowFrameUnits::Rows, Some(ScalarValue::UInt64(rows))) => Ok(Frame::Rows(rows)),
        (WindowFrameUnits::Range, Some(before)) => {
            let ns = interval_ns(&Expr::Literal(before, None)).filter(|ns| *ns >= 0);
            // A part of a microsecond more reaches no further: times are compared in these.
            let us = ns.and_then(|ns| EventTime::try_from(ns / 1_000).ok());
            let text = "the length of a RANGE is an interval of days or less";
            us.map(|us| Frame::Range(Some(us)))
                .ok_or_else(|| error(call, text).mend(form))
        }
        _ => Err(error(call, "GROUPS frames are not known here").mend(form)),
    }
}
