//! Parses calls of window table functions.

use std::sync::Arc;

use arrow_schema::{DataType, TimeUnit};
use datafusion_common::{Column, DFSchema, DataFusionError, ExprSchema, Result, ScalarValue};
use datafusion_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion_expr::{Expr, Extension, LogicalPlan};
use slackwater_engine::operator::window::{WindowKind, Windows};
use sqlparser::ast::{
    Expr as AstExpr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Spanned, TableFactor,
};
use sqlparser::tokenizer::Span;

use super::{WindowNode, appended, interval_ns};
use crate::check::tables::arguments_of;
use crate::error::SqlError;
use crate::names::{PARTITION_BY, WINDOW_FUNCTIONS};
use crate::operators::DeclaredOperators;
use crate::rewording::no_table_function;
use crate::types::sql_name;

/// Plans calls of window table functions.
#[derive(Debug)]
pub struct WindowFunctions {
    /// The other table functions, for suggestions.
    pub declared: Arc<DeclaredOperators>,
}

fn failed<T>(error: SqlError) -> Result<T> {
    Err(DataFusionError::External(Box::new(error)))
}

/// A call of a window function, as it is written.
struct Call {
    name: String,
    span: Span,
    kind: WindowKind,
    /// The arguments: TABLE, DESCRIPTOR, lengths.
    arguments: Vec<AstExpr>,
    partition_by: Option<AstExpr>,
}

impl RelationPlanner for WindowFunctions {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let TableFactor::Table {
            name,
            alias,
            args: Some(arguments),
            ..
        } = &relation
        else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let call = Call::new(name, &arguments.args, &self.declared)?;
        let input = call.input(context)?;
        let (time, unit) = call.time(&input, context)?;
        let windows = call.windows(unit, context)?;
        let partition_by = call.partition_by(&input, context)?;
        let own = appended(&windows);
        let mut names = input.schema().fields().iter().map(|field| field.name());
        if let Some(name) = names.find(|name| own.iter().any(|(own, _)| own == name)) {
            let error = format!("the input of {} already has a column '{name}'", call.name);
            let hint = format!("rename it: SELECT {name} AS …");
            return failed(SqlError::new(error).at(call.span).hint(hint));
        }
        let plan = LogicalPlan::Extension(Extension {
            node: Arc::new(WindowNode::new(input, time, windows, partition_by)?),
        });
        let planned = PlannedRelation::new(plan, alias.clone());
        Ok(RelationPlanning::Planned(Box::new(planned)))
    }
}

impl Call {
    fn new(
        name: &ObjectName,
        arguments: &[FunctionArg],
        others: &DeclaredOperators,
    ) -> Result<Call> {
        let span = name.span();
        let kind = match name.to_string().to_uppercase().as_str() {
            "TUMBLE" | "HOP" => WindowKind::Aligned,
            "CUMULATE" => WindowKind::Cumulating,
            "SESSION" => WindowKind::Session,
            "COUNT_WINDOW" => WindowKind::Count,
            _ => {
                let others = others.names().into_iter();
                return failed(no_table_function(&name.to_string(), others).at(span));
            }
        };
        let mut call = Call {
            name: name.to_string().to_uppercase(),
            span,
            kind,
            arguments: Vec::new(),
            partition_by: None,
        };
        debug_assert!(WINDOW_FUNCTIONS.contains(&call.name.as_str()));
        for argument in arguments {
            let (FunctionArg::Unnamed(FunctionArgExpr::Expr(value))
            | FunctionArg::Named {
                arg: FunctionArgExpr::Expr(value),
                ..
            }
            | FunctionArg::ExprNamed {
                arg: FunctionArgExpr::Expr(value),
                ..
            }) = argument
            else {
                return call.wrong("needs more arguments");
            };
            match arguments_of(value, PARTITION_BY) {
                Some(_) => call.partition_by = Some(value.clone()),
                None => call.arguments.push(value.clone()),
            }
        }
        let given = call.arguments.len();
        let wanted = match call.name.as_str() {
            "HOP" | "CUMULATE" => [4, 4],
            "COUNT_WINDOW" => [3, 4],
            _ => [3, 3],
        };
        if !wanted.contains(&given) {
            let wanted = match wanted {
                [least, most] if least == most => least.to_string(),
                [least, most] => format!("{least} or {most}"),
            };
            return call.wrong(&format!("needs {wanted} arguments, not {given}"));
        }
        Ok(call)
    }

    /// An example of the call.
    fn form(&self) -> &'static str {
        match self.name.as_str() {
            "HOP" => {
                "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND) with slide and size"
            }
            "CUMULATE" => {
                "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND) with step and \
                size"
            }
            "SESSION" => "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '30' MINUTE)",
            "COUNT_WINDOW" => {
                "COUNT_WINDOW(TABLE t PARTITION BY k, DESCRIPTOR(ts), 100), or with slide and size: …, 50, \
                100)"
            }
            _ => "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
        }
    }

    fn wrong<T>(&self, what: &str) -> Result<T> {
        let error = SqlError::new(format!("{} {what}", self.name));
        failed(error.at(self.span).hint(self.form()))
    }

    /// The plan of the first argument.
    fn input(&self, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
        let input = match &self.arguments[0] {
            AstExpr::Identifier(table) => table_factor(vec![table.clone()]),
            AstExpr::CompoundIdentifier(parts) => table_factor(parts.clone()),
            AstExpr::Subquery(query) => TableFactor::Derived {
                lateral: false,
                subquery: query.clone(),
                alias: None,
                sample: None,
            },
            _ => return self.wrong("needs a table as its first argument"),
        };
        context.plan(input)
    }

    /// The event-time column and its unit.
    fn time(
        &self,
        input: &LogicalPlan,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<(Column, TimeUnit)> {
        let time = match &self.arguments[1] {
            // Without DESCRIPTOR, as in RisingWave.
            time @ AstExpr::Identifier(_) => time,
            other => match arguments_of(other, "DESCRIPTOR") {
                Some([FunctionArg::Unnamed(FunctionArgExpr::Expr(column))]) => column,
                Some(_) => return self.wrong("needs exactly one column in DESCRIPTOR"),
                None => return self.wrong("needs DESCRIPTOR(column) as its second argument"),
            },
        };
        let span = time.span();
        let time = match context.sql_to_expr(time.clone(), input.schema())? {
            Expr::Column(column) => column,
            _ => return self.wrong("needs a column in DESCRIPTOR"),
        };
        let data_type = input.schema().field_from_column(&time)?.data_type().clone();
        match data_type {
            DataType::Timestamp(unit, None) => Ok((time, unit)),
            other => failed(
                SqlError::new(format!(
                    "'{}' is {}, not a TIMESTAMP",
                    time.name,
                    sql_name(&other)
                ))
                .at(span)
                .hint("use the column of WATERMARK FOR"),
            ),
        }
    }

    fn partition_by(
        &self,
        input: &LogicalPlan,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Vec<Column>> {
        let Some(partition_by) = &self.partition_by else {
            return Ok(Vec::new());
        };
        if matches!(self.kind, WindowKind::Aligned | WindowKind::Cumulating) {
            let error = format!(
                "PARTITION BY is not supported in {}, whose windows are the same for all rows",
                self.name
            );
            return failed(
                SqlError::new(error)
                    .at(self.span)
                    .hint("remove PARTITION BY, and add the columns to GROUP BY"),
            );
        }
        let list = arguments_of(partition_by, PARTITION_BY).unwrap_or_default();
        let mut columns = Vec::new();
        for argument in list {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = argument else {
                return self.wrong("needs columns in PARTITION BY");
            };
            let values = match value {
                AstExpr::Tuple(values) => values.as_slice(),
                AstExpr::Nested(value) => std::slice::from_ref(value.as_ref()),
                value => std::slice::from_ref(value),
            };
            for value in values {
                match context.sql_to_expr(value.clone(), input.schema())? {
                    Expr::Column(column) if columns.contains(&column) => {}
                    Expr::Column(column) => columns.push(column),
                    _ => {
                        let error = format!("'{value}' is not a column");
                        return failed(SqlError::new(error).at(value.span()).hint(
                            "PARTITION BY needs columns; compute others in a subquery: (SELECT …, a + b AS \
                            k FROM t)",
                        ));
                    }
                }
            }
        }
        Ok(columns)
    }

    fn windows(&self, unit: TimeUnit, context: &mut dyn RelationPlannerContext) -> Result<Windows> {
        let windows = match self.kind {
            WindowKind::Count => {
                let rows = self.rows(context)?;
                let unit = time_windows(WindowKind::Aligned, 1_000_000, 1_000_000, unit);
                let unit = unit.map(|windows| windows.unit);
                // The slide comes first, as in HOP.
                let size = rows.last().copied().unwrap_or_default();
                unit.and_then(|unit| Windows::of_rows(size, rows[0], unit))
            }
            kind => {
                let lengths = self.lengths(context)?;
                let size = lengths.last().copied().unwrap_or_default();
                time_windows(kind, size, lengths[0], unit)
            }
        };
        match windows {
            Ok(windows) => Ok(windows),
            Err(message) => failed(SqlError::new(message).at(self.span).hint(self.form())),
        }
    }

    /// The lengths in nanoseconds: the slide or step first.
    fn lengths(&self, context: &mut dyn RelationPlannerContext) -> Result<Vec<i128>> {
        let empty = DFSchema::empty();
        let lengths = self.arguments[2..].iter().map(|value| {
            let literal = context.sql_to_expr(value.clone(), &empty).ok();
            match literal.as_ref().and_then(interval_ns) {
                Some(length) => Ok(length),
                None => failed(
                    SqlError::new(
                        "the length of a window must be an interval of days or smaller units",
                    )
                    .at(value.span())
                    .hint(
                        "for example INTERVAL '10' SECOND, INTERVAL '1' HOUR or INTERVAL '1' DAY",
                    ),
                ),
            }
        });
        lengths.collect()
    }

    /// The numbers of rows, the slide first.
    fn rows(&self, context: &mut dyn RelationPlannerContext) -> Result<Vec<i64>> {
        let empty = DFSchema::empty();
        let rows = self.arguments[2..].iter().map(|value| {
            match context.sql_to_expr(value.clone(), &empty).ok() {
                Some(Expr::Literal(ScalarValue::Int64(Some(rows)), _)) => Ok(rows),
                _ => failed(
                    SqlError::new("the length of a count window must be a number of rows")
                        .at(value.span())
                        .hint(self.form()),
                ),
            }
        });
        rows.collect()
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

/// Windows in the coarsest unit, at least milliseconds, in which size, slide and event time are whole
/// numbers.
fn time_windows(
    kind: WindowKind,
    size_ns: i128,
    slide_ns: i128,
    unit: TimeUnit,
) -> std::result::Result<Windows, String> {
    let fits = |ns: i128| size_ns % ns == 0 && slide_ns % ns == 0;
    let (unit, tick_ns) = match unit {
        TimeUnit::Second | TimeUnit::Millisecond if fits(1_000_000) => {
            (TimeUnit::Millisecond, 1_000_000)
        }
        TimeUnit::Second | TimeUnit::Millisecond | TimeUnit::Microsecond => {
            (TimeUnit::Microsecond, 1000)
        }
        TimeUnit::Nanosecond => (TimeUnit::Nanosecond, 1),
    };
    if !fits(1000) {
        return Err("the size and the slide of a window must be whole microseconds".to_string());
    }
    let ticks =
        |ns: i128| i64::try_from(ns / tick_ns).map_err(|_| "the window is too long".to_string());
    let (size, slide) = (ticks(size_ns)?, ticks(slide_ns)?);
    match kind {
        WindowKind::Cumulating => Windows::cumulating(size, slide, unit),
        WindowKind::Session => Windows::sessions(size, unit),
        WindowKind::Aligned | WindowKind::Count => Windows::new(size, slide, unit),
    }
}
