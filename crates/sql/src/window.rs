//! Window table functions, such as `TUMBLE(TABLE t, DESCRIPTOR(ts), size)`: their node in a plan.
//! `window/function.rs` parses their calls.

mod function;

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_schema::{DataType, Field};
use datafusion_common::{
    Column, DFSchema, DFSchemaRef, DataFusionError, ExprSchema, Result, ScalarValue,
};
use datafusion_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};
use slackwater_engine::operator::window::{WindowKind, Windows, timestamp_unit};

use crate::error::SqlError;
use crate::names::WINDOW_COLUMNS;
use crate::types::sql_name;

pub use function::WindowFunctions;

/// The column that count windows append in addition.
pub const WINDOW_NUMBER: &str = "window_number";

/// Adds windows to the rows of its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowNode {
    /// The plan of the input.
    pub input: LogicalPlan,
    /// The event-time column.
    pub time: Column,
    /// The kind and size of the windows.
    pub windows: Windows,
    /// The columns that separate sessions and count windows.
    pub partition_by: Vec<Column>,
    /// The table for late rows.
    pub late: Option<LateTable>,
    /// The columns of the input, followed by those of the function.
    schema: DFSchemaRef,
}

/// A table for late rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LateTable {
    /// The name of the table.
    pub name: String,
    /// The column of the input for each column of the table.
    pub columns: Vec<Column>,
}

/// The columns that windows of this kind append.
pub fn appended(windows: &Windows) -> Vec<(&'static str, DataType)> {
    let times = WINDOW_COLUMNS.map(|name| (name, windows.data_type()));
    let number = (windows.kind == WindowKind::Count).then_some((WINDOW_NUMBER, DataType::Int64));
    times.into_iter().chain(number).collect()
}

impl WindowNode {
    fn new(
        input: LogicalPlan,
        time: Column,
        windows: Windows,
        partition_by: Vec<Column>,
    ) -> Result<WindowNode> {
        // A union may have changed the event time to a finer unit: the windows get that unit, too.
        let of_time = input.schema().field_from_column(&time)?.data_type();
        let unit = timestamp_unit(of_time).filter(|unit| *unit > windows.unit);
        let windows = match unit {
            Some(unit) => windows.in_unit(unit).ok_or_else(|| {
                let error = format!(
                    "the windows are too long for the range of {}",
                    sql_name(of_time)
                );
                DataFusionError::External(Box::new(SqlError::new(error)))
            })?,
            None => windows,
        };
        let fields = input.schema().iter();
        let fields = fields.map(|(qualifier, field)| (qualifier.cloned(), field.clone()));
        let own = appended(&windows).into_iter();
        let own = own.map(|(name, data_type)| (None, Arc::new(Field::new(name, data_type, true))));
        let fields = fields.chain(own).collect();
        let schema = DFSchema::new_with_metadata(fields, Default::default())?;
        Ok(WindowNode {
            input,
            time,
            windows,
            partition_by,
            late: None,
            schema: Arc::new(schema),
        })
    }

    /// The node with a table for its late rows.
    pub fn with_late_rows(self, late: LateTable) -> WindowNode {
        WindowNode {
            late: Some(late),
            ..self
        }
    }

    /// The columns of the input that the node itself reads: event time, partition, and those of late rows.
    fn own_columns(&self) -> impl Iterator<Item = &Column> {
        let late = self.late.iter().flat_map(|late| &late.columns);
        let own = std::iter::once(&self.time).chain(&self.partition_by);
        own.chain(late)
    }
}

impl Hash for WindowNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
        self.time.hash(state);
        self.windows.hash(state);
        self.partition_by.hash(state);
        self.late.hash(state);
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
        self.own_columns().cloned().map(Expr::Column).collect()
    }

    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        let fields = self.schema.fields().iter();
        let names = fields.map(|field| field.name().clone());
        // Conditions can't be pushed below sessions and count windows, which depend on all rows.
        let depends_on_rows = !self.windows.is_fixed();
        let is_kept = |name: &String| match depends_on_rows {
            true => !self.partition_by.iter().any(|column| column.name == *name),
            false => WINDOW_COLUMNS.contains(&name.as_str()),
        };
        names.filter(is_kept).collect()
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
        exprs: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> Result<WindowNode> {
        let mut columns = exprs.into_iter().map(|expression| match expression {
            Expr::Column(column) => Some(column),
            _ => None,
        });
        let (Some(Some(time)), Some(input)) = (columns.next(), inputs.pop()) else {
            return Err(DataFusionError::Internal(
                "a window has an event time and an input".into(),
            ));
        };
        let mut rest = columns.collect::<Option<Vec<Column>>>().unwrap_or_default();
        let late = rest.split_off(self.partition_by.len().min(rest.len()));
        let late = self.late.as_ref().map(|table| LateTable {
            name: table.name.clone(),
            columns: late,
        });
        let node = WindowNode::new(input, time, self.windows, rest)?;
        Ok(WindowNode { late, ..node })
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let input = self.input.schema();
        let width = input.fields().len();
        let needed = output_columns.iter().copied();
        let mut needed = needed.filter(|&i| i < width).collect::<Vec<_>>();
        for column in self.own_columns() {
            needed.push(input.index_of_column(column).ok()?);
        }
        needed.sort_unstable();
        needed.dedup();
        Some(vec![needed])
    }
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
