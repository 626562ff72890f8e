//! Functions with OVER as they are planned, with expressions that become columns later.

use std::sync::Arc;

use datafusion_common::ScalarValue;
use datafusion_expr::expr::{
    AggregateFunction as AggregateExpr, NullTreatment, WindowFunction, WindowFunctionParams,
};
use datafusion_expr::{
    AggregateUDF, Expr, ExprSchemable, LogicalPlan, WindowFrame, WindowFrameBound,
    WindowFrameUnits, WindowFunctionDefinition,
};
use slackwater_engine::accumulator::AggregateFunction;
use slackwater_engine::operator::over::{Frame, OverFunction};
use slackwater_engine::time::EventTime;

use crate::aggregates;
use crate::error::{Result, SqlError};
use crate::window::interval_ns;

/// Functions that need later rows, or all rows of the key.
const NEED_ALL: &[&str] = &["lead", "ntile", "percent_rank", "cume_dist", "nth_value"];

/// A planned call of a function.
pub struct Planned {
    pub function: OverFunction,
    pub arguments: Vec<Expr>,
    pub filter: Option<Expr>,
}

/// An error about a call.
pub fn error(call: &WindowFunction, text: &str) -> SqlError {
    let name = call.fun.name().to_uppercase();
    SqlError::new(format!("{name} OVER (…): {text}")).near(name)
}

/// The call below the planner's aliases.
pub fn call_of(expression: &Expr) -> Result<&WindowFunction> {
    match expression {
        Expr::Alias(alias) => call_of(&alias.expr),
        Expr::WindowFunction(call) => Ok(call),
        other => Err(SqlError::new(format!(
            "'{other}' is not a function with OVER"
        ))),
    }
}

/// Plans a call.
pub fn planned(call: &WindowFunction, plan: &LogicalPlan) -> Result<Planned> {
    let name = call.fun.name().to_lowercase();
    if NEED_ALL.contains(&name.as_str()) {
        let text = "it needs later rows, which are not known yet";
        return Err(error(call, text).hint(
            "LAG, FIRST_VALUE, LAST_VALUE, ROW_NUMBER, RANK, DENSE_RANK and all aggregates only need \
            earlier rows",
        ));
    }
    match &call.fun {
        WindowFunctionDefinition::AggregateUDF(function) => aggregate(call, function, plan),
        WindowFunctionDefinition::WindowUDF(_) => own(call, &name, plan),
    }
}

/// Plans an aggregate over a frame.
fn aggregate(
    call: &WindowFunction,
    function: &Arc<AggregateUDF>,
    plan: &LogicalPlan,
) -> Result<Planned> {
    let WindowFunctionParams {
        args,
        filter,
        null_treatment,
        distinct,
        ..
    } = &call.params;
    let call_of = AggregateExpr::new_udf(
        function.clone(),
        args.clone(),
        *distinct,
        None,
        Vec::new(),
        *null_treatment,
    );
    let planned = aggregates::plan(&call_of, plan.schema())?;
    Ok(Planned {
        function: OverFunction::Aggregate {
            function: planned.function,
            frame: frame(call)?,
        },
        arguments: planned.arguments,
        filter: filter.as_ref().map(|filter| filter.as_ref().clone()),
    })
}

/// Plans a function that is not an aggregate.
fn own(call: &WindowFunction, name: &str, plan: &LogicalPlan) -> Result<Planned> {
    let params = &call.params;
    if params.filter.is_some() || params.distinct {
        return Err(error(
            call,
            "FILTER and DISTINCT are only supported for aggregates",
        ));
    }
    let ignores_nulls = params.null_treatment == Some(NullTreatment::IgnoreNulls);
    let data_type = |argument: usize| match params.args.get(argument) {
        Some(argument) => Ok(argument.get_type(plan.schema())?),
        None => Err(error(call, "an argument is missing")),
    };
    let function = match name {
        "first_value" | "last_value" => OverFunction::Aggregate {
            function: AggregateFunction::FirstLast {
                last: name == "last_value",
                ignore_nulls: ignores_nulls,
                of: data_type(0)?,
            },
            frame: frame(call)?,
        },
        "row_number" => OverFunction::RowNumber,
        "rank" => OverFunction::Rank,
        "dense_rank" => OverFunction::DenseRank,
        "lag" if ignores_nulls => {
            return Err(error(call, "IGNORE NULLS is not supported"));
        }
        "lag" => OverFunction::Lag {
            offset: offset(call)?,
            of: data_type(0)?,
        },
        _ => return Err(error(call, "this function is not supported")),
    };
    let mut arguments = params.args.clone();
    if let OverFunction::Lag { of: data_type, .. } = &function {
        // The offset is a constant.
        let default = params.args.get(2);
        let default =
            default.map(|default| datafusion_expr::cast(default.clone(), data_type.clone()));
        arguments.truncate(1);
        arguments.extend(default);
    }
    Ok(Planned {
        function,
        arguments,
        filter: None,
    })
}

/// The number of rows that LAG looks back.
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
            let text = "the number of rows to look back must be a constant that is not negative";
            Err(error(call, text).hint("for example LAG(x, 2)"))
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
    let form = "use ROWS BETWEEN 9 PRECEDING AND CURRENT ROW, RANGE BETWEEN INTERVAL '10' MINUTE PRECEDING \
    AND CURRENT ROW, or UNBOUNDED PRECEDING";
    if !matches!(end_bound, WindowFrameBound::CurrentRow) {
        return Err(error(call, "a frame must end at CURRENT ROW").hint(form));
    }
    let before = match start_bound {
        WindowFrameBound::Preceding(before) if before.is_null() => None,
        WindowFrameBound::Preceding(before) => Some(before.clone()),
        WindowFrameBound::CurrentRow => Some(match units {
            WindowFrameUnits::Range => ScalarValue::new_interval_mdn(0, 0, 0),
            _ => ScalarValue::UInt64(Some(0)),
        }),
        WindowFrameBound::Following(_) => {
            return Err(error(call, "a frame must start before CURRENT ROW").hint(form));
        }
    };
    match (units, before) {
        (WindowFrameUnits::Rows, None) => Ok(Frame::Rows(None)),
        (WindowFrameUnits::Range, None) => Ok(Frame::Range(None)),
        (WindowFrameUnits::Rows, Some(ScalarValue::UInt64(rows))) => Ok(Frame::Rows(rows)),
        (WindowFrameUnits::Range, Some(before)) => {
            let ns = interval_ns(&Expr::Literal(before, None)).filter(|ns| *ns >= 0);
            // A fraction of a microsecond makes no difference: times are compared in microseconds.
            let us = ns.and_then(|ns| EventTime::try_from(ns / 1_000).ok());
            let text = "the length of a RANGE must be an interval of days or smaller units";
            us.map(|us| Frame::Range(Some(us)))
                .ok_or_else(|| error(call, text).hint(form))
        }
        _ => Err(error(call, "GROUPS frames are not supported").hint(form)),
    }
}
