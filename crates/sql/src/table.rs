//! Tables and views, as the DDL declares them.

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
    /// Its name.
    pub name: String,
    /// The columns that are read from the source or written to the sink.
    pub physical: SchemaRef,
    /// What the source calls those columns of `physical` that are `METADATA`.
    pub metadata: BTreeMap<usize, String>,
    /// All columns, computed ones included, in the order of the declaration.
    pub schema: SchemaRef,
    /// What each column of `schema` is.
    pub columns: Vec<TableColumn>,
    /// The event-time column (an index into `schema`) and the watermark's delay in microseconds.
    pub event_time: Option<(usize, i64)>,
    /// The columns of `physical` that tell rows apart, in the order of the declaration; empty where
    /// there is no PRIMARY KEY.
    pub primary_key: Vec<usize>,
    /// The columns of `physical` that are NOT NULL: a row without a value there is rejected.
    pub not_null: BTreeSet<usize>,
    /// `COMMENT` of the table.
    pub comment: Option<String>,
    /// `COMMENT` of columns, by their index into `schema`.
    pub column_comments: BTreeMap<usize, String>,
    /// `WITH`.
    pub options: BTreeMap<String, String>,
    /// Where each option stands.
    pub option_places: BTreeMap<String, Span>,
    /// Where the table's name stands.
    pub span: Span,
}

/// What a column of a table is.
#[derive(Debug, Clone)]
pub enum TableColumn {
    /// A column of `Table::physical`.
    Physical(usize),
    /// An expression over the columns of `Table::physical`.
    Computed(Expr),
}

/// The option of a table that names the column in which a changelog says what each row does.
pub const CHANGELOG: &str = "changelog";

/// The option of a table that names the one for its late rows.
pub const LATE_ROWS: &str = "late_rows";

impl Table {
    /// The column in which a sink says what each row does: the option `changelog`.
    pub fn changelog(&self) -> Option<&str> {
        self.options.get(CHANGELOG).map(String::as_str)
    }

    /// What the event time counts, where it is `TO_TIMESTAMP_LTZ(number, precision)`: the number as text, and
    /// the precision.
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

/// A table as the planner sees it.
pub struct TableHandle(pub Arc<Table>);

impl TableSource for TableHandle {
    fn schema(&self) -> SchemaRef {
        self.0.schema.clone()
    }
}

/// A view as the planner sees it.
pub struct ViewHandle(pub Arc<LogicalPlan>);

impl TableSource for ViewHandle {
    fn schema(&self) -> SchemaRef {
        Arc::new(self.0.schema().as_arrow().clone())
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        Some(Cow::Borrowed(&self.0))
    }
}
