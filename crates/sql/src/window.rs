//! Window table functions: `TUMBLE(TABLE t, DESCRIPTOR(ts), size)` and
//! `HOP(TABLE t, DESCRIPTOR(ts), slide, size)`.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_schema::{DataType, Field, TimeUnit};
use datafusion_common::{
    Column, DFSchema, DFSchemaRef, DataFusionError, ExprSchema, Result, ScalarValue,
};
use datafusion_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};
use slackwater_engine::operator::window::Windows;
use sqlparser::ast::{Expr as AstExpr, FunctionArg, FunctionArgExpr, Spanned, TableFactor};

use crate::error::{SqlError, no_table_function};
use crate::statement::WINDOW_FUNCTIONS;
use crate::types::sql_name;

/// Names of the columns that a window table function appends.
pub const WINDOW_COLUMNS: [&str; 3] = ["window_start", "window_end", "window_time"];

/// Assigns windows to the rows of its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowNode {
    /// Where the rows come from.
    pub input: LogicalPlan,
    /// The event-time column.
    pub time: Column,
    /// The windows.
    pub windows: Windows,
    /// The input's columns and [`WINDOW_COLUMNS`].
    schema: DFSchemaRef,
}

impl WindowNode {
    fn new(input: LogicalPlan, time: Column, windows: Windows) -> Result<WindowNode> {
        let mut fields = input
            .schema()
            .iter()
            .map(|(qualifier, field)| (qualifier.cloned(), field.clone()))
            .collect::<Vec<_>>();
        for name in WINDOW_COLUMNS {
            fields.push((None, Arc::new(Field::new(name, windows.data_type(), true))));
        }
        let schema = DFSchema::new_with_metadata(fields, Default::default())?;
        Ok(WindowNode {
            input,
            time,
            windows,
            schema: Arc::new(schema),
        })
    }
}

impl Hash for WindowNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
        self.time.hash(state);
        self.windows.hash(state);
    }
}

impl PartialOrd for WindowNode {
    fn partial_cmp(&self, _: &WindowNode) -> Option<Ordering> {
        None
    }
}

impl UserDefinedLogicalNodeCore for WindowNode {
    fn name(&self) -> &str {
        "Window"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![Expr::Column(self.time.clone())]
    }

    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        WINDOW_COLUMNS.iter().map(|name| name.to_string()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "Window: {} by {}",
            crate::explain::windows(&self.windows),
            self.time
        )
    }

    fn with_exprs_and_inputs(
        &self,
        mut exprs: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> Result<WindowNode> {
        let (Some(Expr::Column(time)), Some(input)) = (exprs.pop(), inputs.pop()) else {
            return Err(DataFusionError::Internal(
                "a window has one column and one input".into(),
            ));
        };
        WindowNode::new(input, time, self.windows)
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let width = self.input.schema().fields().len();
        let time = self.input.schema().index_of_column(&self.time).ok()?;
        let mut needed = output_columns
            .iter()
            .copied()
            .filter(|&i| i < width)
            .collect::<Vec<_>>();
        needed.push(time);
        needed.sort_unstable();
        needed.dedup();
        Some(vec![needed])
    }
}

/// Plans window table functions.
#[derive(Debug)]
pub struct WindowFunctions;

fn failed<T>(error: SqlError) -> Result<T> {
    Err(DataFusionError::External(Box::new(error)))
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
        let function = name.to_string().to_uppercase();
        let span = name.span();
        if !WINDOW_FUNCTIONS.contains(&function.as_str()) {
            return failed(no_table_function(&name.to_string()).at(span));
        }
        let form = match function.as_str() {
            "TUMBLE" => "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
            "HOP" => {
                "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND) with slide and size"
            }
            _ => {
                return failed(
                    SqlError::new(format!("{function} windows are not known here yet"))
                        .at(span)
                        .mend("TUMBLE and HOP are"),
                );
            }
        };
        let wrong = |what: &str| {
            failed(
                SqlError::new(format!("{function} {what}"))
                    .at(span)
                    .mend(form),
            )
        };
        let mut values = Vec::new();
        for argument in &arguments.args {
            let value = match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => value,
                FunctionArg::Named {
                    arg: FunctionArgExpr::Expr(value),
                    ..
                } => value,
                FunctionArg::ExprNamed {
                    arg: FunctionArgExpr::Expr(value),
                    ..
                } => value,
                _ => return wrong("an argument is missing"),
            };
            values.push(value.clone());
        }
        let wanted = if function == "HOP" { 4 } else { 3 };
        if values.len() != wanted {
            return wrong(&format!("takes {wanted} arguments, not {}", values.len()));
        }
        let input = match &values[0] {
            AstExpr::Identifier(table) => table_factor(vec![table.clone()]),
            AstExpr::CompoundIdentifier(parts) => table_factor(parts.clone()),
            AstExpr::Subquery(query) => TableFactor::Derived {
                lateral: false,
                subquery: query.clone(),
                alias: None,
                sample: None,
            },
            _ => return wrong("takes a table first"),
        };
        let input = context.plan(input)?;
        let names = input.schema().fields().iter().map(|field| field.name());
        if let Some(name) = names
            .into_iter()
            .find(|name| WINDOW_COLUMNS.contains(&name.as_str()))
        {
            return failed(
                SqlError::new(format!(
                    "the input of {function} has a column '{name}' already"
                ))
                .at(span)
                .mend(format!("give it another name: SELECT {name} AS …")),
            );
        }
        let time = match &values[1] {
            AstExpr::Function(descriptor)
                if descriptor
                    .name
                    .to_string()
                    .eq_ignore_ascii_case("DESCRIPTOR") =>
            {
                match &descriptor.args {
                    sqlparser::ast::FunctionArguments::List(list) => match list.args.as_slice() {
                        [FunctionArg::Unnamed(FunctionArgExpr::Expr(column))] => column.clone(),
                        _ => return wrong("takes one column in DESCRIPTOR"),
                    },
                    _ => return wrong("takes one column in DESCRIPTOR"),
                }
            }
            // Without the word: the short form of RisingWave.
            AstExpr::Identifier(_) => values[1].clone(),
            _ => return wrong("takes DESCRIPTOR(column) second"),
        };
        let time_span = time.span();
        let time = match context.sql_to_expr(time, input.schema())? {
            Expr::Column(column) => column,
            _ => return wrong("takes a column in DESCRIPTOR"),
        };
        let time_type = input.schema().field_from_column(&time)?.data_type().clone();
        let DataType::Timestamp(unit, None) = time_type else {
            return failed(
                SqlError::new(format!(
                    "'{}' is {}, not a TIMESTAMP",
                    time.name,
                    sql_name(&time_type)
                ))
                .at(time_span)
                .mend("windows need the column that WATERMARK FOR names"),
            );
        };
        let empty = DFSchema::empty();
        let mut lengths = Vec::new();
        for value in values[2..].iter() {
            let literal = context.sql_to_expr(value.clone(), &empty).ok();
            match literal.as_ref().and_then(interval_ns) {
                Some(length) => lengths.push(length),
                None => {
                    return failed(
                        SqlError::new("a window's length is an interval of days or less")
                            .at(value.span())
                            .mend("INTERVAL '10' SECOND, INTERVAL '1' HOUR, INTERVAL '1' DAY"),
                    );
                }
            }
        }
        // HOP has the slide first.
        let (size, slide) = if function == "HOP" {
            (lengths[1], lengths[0])
        } else {
            (lengths[0], lengths[0])
        };
        let windows = match windows(size, slide, unit) {
            Ok(windows) => windows,
            Err(message) => return failed(SqlError::new(message).at(span).mend(form)),
        };
        let plan = LogicalPlan::Extension(Extension {
            node: Arc::new(WindowNode::new(input, time, windows)?),
        });
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(
            plan,
            alias.clone(),
        ))))
    }
}

fn table_factor(parts: Vec<sqlparser::ast::Ident>) -> TableFactor {
    TableFactor::Table {
        name: sqlparser::ast::ObjectName::from(parts),
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

/// Windows in the coarsest unit, from milliseconds on, that holds size, slide and event time.
fn windows(size_ns: i128, slide_ns: i128, unit: TimeUnit) -> std::result::Result<Windows, String> {
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
        return Err("a window's size and slide must be whole microseconds".to_string());
    }
    let ticks =
        |ns: i128| i64::try_from(ns / tick_ns).map_err(|_| "the window is too long".to_string());
    Windows::new(ticks(size_ns)?, ticks(slide_ns)?, unit)
}

/// The nanoseconds of an interval literal without months.
pub fn interval_ns(literal: &Expr) -> Option<i128> {
    match literal {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _)
            if interval.months == 0 =>
        {
            Some(i128::from(interval.days) * 86_400_000_000_000 + i128::from(interval.nanoseconds))
        }
        Expr::Literal(ScalarValue::IntervalDayTime(Some(interval)), _) => Some(
            i128::from(interval.days) * 86_400_000_000_000
                + i128::from(interval.milliseconds) * 1_000_000,
        ),
        _ => None,
    }
}
