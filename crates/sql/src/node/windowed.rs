//! What all windows share: an input whose event time is a column, and the stream of rows with their windows.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion_common::{Column, DFSchema, ScalarValue};
use datafusion_expr::Expr;
use slackwater_engine::operator::window::{WindowKind, Windows};
use sqlparser::tokenizer::Span;

use super::stream::{Role, Stream};
use super::translator::Translator;
use crate::as_of::now::is_now;
use crate::error::{Result, SqlError, to_span};
use crate::explain;
use crate::expression::{Physical, column, column_index, physical, replace_columns};
use crate::window::WindowNode;

/// The input of windows: all columns that they need are columns of its node.
pub struct Ready {
    pub stream: Stream,
    pub time_column: usize,
    /// The indices of the PARTITION BY columns.
    pub keys: Vec<usize>,
}

impl Translator<'_> {
    /// The input, with all columns that the windows need as columns of the node.
    pub(super) fn window_input(&mut self, window: &WindowNode) -> Result<Ready> {
        let plan = &window.input;
        let mut stream = self.translate(plan)?;
        let time_index = plan.schema().index_of_column(&window.time)?;
        if stream.updates {
            return Err(SqlError::new(
                "windows need rows that never change, and these are updated or retracted",
            )
            .near("DESCRIPTOR")
            .hint("apply the window function first, then aggregate or join in the windows"));
        }
        if stream.roles[time_index] != Role::Time {
            return Err(not_event_time(window));
        }
        // A computed event time must become a column before windows can use it. Where rows are copied or
        // kept, unused columns are dropped and nothing is computed twice.
        let windows = &window.windows;
        let passes = windows.kind == WindowKind::Aligned && windows.size == windows.slide;
        let is_column = |index: usize| column_index(&stream.columns[index]).is_some();
        let late = window.late.iter().flat_map(|late| &late.columns);
        let mut needed = vec![time_index];
        for column in late {
            needed.push(plan.schema().index_of_column(column)?);
        }
        if !passes || !needed.into_iter().all(is_column) {
            stream = self.settle(stream, plan)?;
        }
        let place = |stream: &Stream, column: &Column| {
            let index = plan.schema().index_of_column(column)?;
            let place = column_index(&stream.columns[index]);
            place.ok_or_else(|| SqlError::new(format!("'{}' is not computed yet", column.name)))
        };
        let keys = window
            .partition_by
            .iter()
            .map(|column| place(&stream, column));
        Ok(Ready {
            time_column: place(&stream, &window.time)?,
            keys: keys.collect::<Result<Vec<usize>>>()?,
            stream,
        })
    }

    /// The schema of the input's node, followed by further columns.
    pub(super) fn with_fields(&self, input: &Stream, own: &[(&str, DataType)]) -> SchemaRef {
        let before = self.schema(input.node);
        let own = own.iter();
        let own = own.map(|(name, data_type)| Arc::new(Field::new(*name, data_type.clone(), true)));
        let fields = before.fields().iter().cloned().chain(own);
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// The description of windows over an input in EXPLAIN.
    pub(super) fn windows_detail(&self, windows: &Windows, ready: &Ready) -> String {
        let schema = self.specs[ready.stream.node].schema();
        let name = |&index: &usize| explain::readable(schema.field(index).name());
        let time = name(&ready.time_column);
        let mut detail = format!("{} by {time}", explain::windows(windows));
        if !ready.keys.is_empty() {
            let keys = ready.keys.iter().map(name).collect::<Vec<_>>();
            detail.push_str(&format!(" per {}", keys.join(", ")));
        }
        detail
    }

    /// The stream of rows with their windows, whose columns are the last ones of the node.
    pub(super) fn windowed(
        &mut self,
        window: &WindowNode,
        ready: Ready,
        node: usize,
    ) -> Result<Stream> {
        let windows = window.windows;
        let schema = self.schema(node);
        // The last column of that name: the rows may have windows of an earlier function.
        let mut fields = schema.fields().iter();
        let start = fields.rposition(|field| field.name() == "window_start");
        let start = start.ok_or_else(|| SqlError::new("a window has no start"))?;
        let mut time = ready.stream.columns.iter();
        let time = time.find(|column| column_index(column) == Some(ready.time_column));
        let time = time.cloned();
        let mut columns = ready.stream.columns.clone();
        columns.extend([
            column(start, &schema),
            column(start + 1, &schema),
            window_time(start + 1, &schema, &windows)?,
        ]);
        // A second window function on the old event time would drop late rows twice.
        let roles = ready.stream.roles.iter().map(|role| match role {
            Role::Time => Role::Plain,
            role => *role,
        });
        let mut roles = roles.collect::<Vec<_>>();
        roles.extend([
            Role::WindowStart(windows),
            Role::WindowEnd(windows),
            Role::Time,
        ]);
        if windows.kind == WindowKind::Count {
            columns.push(column(start + 2, &schema));
            roles.push(Role::WindowNumber);
        }
        Ok(Stream {
            node,
            columns,
            roles,
            time,
            updates: false,
            key: None,
            deletes: false,
            unique: Vec::new(),
        })
    }
}

/// The error for a column of a window function that is not an event time.
fn not_event_time(window: &WindowNode) -> SqlError {
    let name = &window.time.name;
    let place = window.time.spans.first().map_or(Span::empty(), to_span);
    if is_now(&Expr::Column(window.time.clone()), &window.input) {
        let error =
            format!("windows need an event time, and '{name}' is a column that is PROCTIME()");
        return SqlError::new(error).at(place).hint(format!(
            "declare it with the table, in CREATE TABLE: {name} AS PROCTIME(), WATERMARK FOR {name} AS {name}"
        ));
    }
    SqlError::new(format!(
        "windows need an event time, and '{name}' is not one"
    ))
    .at(place)
    .hint(format!(
        "declare it for the table: WATERMARK FOR {name} AS {name} - INTERVAL '5' SECOND; of the columns \
        of a window function, window_time is an event time"
    ))
}

/// `window_end - 1 ms` (or one tick of a finer unit): the event time of the result of a window.
fn window_time(end: usize, schema: &Schema, windows: &Windows) -> Result<Physical> {
    let tick_ns = match windows.unit {
        TimeUnit::Second | TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1_000,
    };
    let field = schema.field(end);
    let interval = ScalarValue::new_interval_mdn(0, 0, tick_ns);
    let only = DFSchema::try_from(Schema::new(vec![field.clone()]))?;
    let end_column = Expr::Column(Column::new_unqualified(field.name()));
    let difference = end_column - Expr::Literal(interval, None);
    let difference = physical(&difference, &only)?;
    replace_columns(&difference, &[column(end, schema)])
}
