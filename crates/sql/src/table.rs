//! Tables and views, as they are declared.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion_common::ScalarValue;
use datafusion_expr::{Expr, LogicalPlan, TableSource};
use sqlparser::tokenizer::Span;

/// A table.
#[derive(Debug, Clone)]
pub struct Table {
    /// The name of the table.
    pub name: String,
    /// The columns that are read from the source or written to the sink.
    pub physical: SchemaRef,
    /// The source's names of those columns of `physical` that are `METADATA`.
    pub metadata: BTreeMap<usize, String>,
    /// All columns, computed ones included, in the order of the declaration.
    pub schema: SchemaRef,
    /// The kind of each column of `schema`.
    pub columns: Vec<TableColumn>,
    /// The event-time column (an index into `schema`) and the watermark's delay in microseconds.
    pub event_time: Option<(usize, i64)>,
    /// The columns of the PRIMARY KEY, as indices into `physical`, in the order of the declaration; empty
    /// without a key.
    pub primary_key: Vec<usize>,
    /// The columns of `physical` that are NOT NULL: a row with a NULL in one of them is rejected.
    pub not_null: BTreeSet<usize>,
    /// The `COMMENT` of the table.
    pub comment: Option<String>,
    /// The `COMMENT`s of columns, by their index into `schema`.
    pub column_comments: BTreeMap<usize, String>,
    /// The options in `WITH`.
    pub options: BTreeMap<String, String>,
    /// The place of each option.
    pub option_places: BTreeMap<String, Span>,
    /// The place of the table's name.
    pub span: Span,
}

/// A column of a table.
#[derive(Debug, Clone)]
pub enum TableColumn {
    /// A column of `Table::physical`.
    Physical(usize),
    /// An expression over the columns of `Table::physical`.
    Computed(Expr),
}

/// The table option with the name of the column that contains the kind of each change.
pub const CHANGELOG: &str = "changelog";

/// The table option with the name of the table for late rows.
pub const LATE_ROWS: &str = "late_rows";

/// The option of a table with the name of the host on which it is read or written.
pub const HOST: &str = "host";

impl Table {
    /// The column for the kind of each change: the option `changelog`.
    pub fn changelog(&self) -> Option<&str> {
        self.options.get(CHANGELOG).map(String::as_str)
    }

    /// The number and the precision of the event time, if it is `TO_TIMESTAMP_LTZ(number, precision)`.
    pub fn counted_time(&self) -> Option<(String, u32)> {
        let (index, _) = self.event_time?;
        let TableColumn::Computed(Expr::ScalarFunction(call)) = &self.columns[index] else {
            return None;
        };
        let [number, Expr::Literal(precision, _)] = &call.args[..] else {
            return None;
        };
        let ScalarValue::Int64(Some(precision)) = precision else {
            return None;
        };
        let number = match number {
            Expr::Column(column) => column.name.clone(),
            _ => "…".to_string(),
        };
        let is_count = call.name() == "to_timestamp_ltz";
        is_count.then_some((number, u32::try_from(*precision).ok()?))
    }
}

/// A table in DataFusion's planner.
pub struct TableHandle(pub Arc<Table>);

impl TableSource for TableHandle {
    fn schema(&self) -> SchemaRef {
        self.0.schema.clone()
    }
}

/// A view in DataFusion's planner.
pub struct ViewHandle(pub Arc<LogicalPlan>);

impl TableSource for ViewHandle {
    fn schema(&self) -> SchemaRef {
        Arc::new(self.0.schema().as_arrow().clone())
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        Some(Cow::Borrowed(&self.0))
    }
}
