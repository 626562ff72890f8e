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

/// The input of windows: every column that is needed is one of its node's.
pub struct Ready {
    pub stream: Stream,
    pub time_column: usize,
    /// Columns of PARTITION BY.
    pub keys: Vec<usize>,
}

impl Translator<'_> {
    /// The input, with all columns that windows need as columns of the node.
    pub(super) fn window_input(&mut self, window: &WindowNode) -> Result<Ready> {
        let plan = &window.input;
        let mut stream = self.translate(plan)?;
        let time_index = plan.schema().index_of_column(&window.time)?;
        if stream.updates {
            return Err(SqlError::new(
                "windows are made over rows that stay, and these are taken back or replaced",
            )
            .near("DESCRIPTOR")
            .hint("make the windows first, then aggregate or join in them"));
        }
        if stream.roles[time_index] != Role::Time {
            return Err(not_event_time(window));
        }
        // A computed event time has to be a column before windows can be made by it; and where rows are
        // copied or kept, what nobody reads is left behind and nothing is computed twice.
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
        let place = |stream: &Stream, of: &Column| {
            let index = plan.schema().index_of_column(of)?;
            let place = column_index(&stream.columns[index]);
            place.ok_or_else(|| SqlError::new(format!("'{}' is not computed yet", of.name)))
        };
        let keys = window.partition_by.iter().map(|of| place(&stream, of));
        Ok(Ready {
            time_column: place(&stream, &window.time)?,
            keys: keys.collect::<Result<Vec<usize>>>()?,
            stream,
        })
    }

    /// The schema of the input's node with further columns.
    pub(super) fn with_fields(&self, input: &Stream, own: &[(&str, DataType)]) -> SchemaRef {
        let before = self.schema(input.node);
        let own = own.iter();
        let own = own.map(|(name, of)| Arc::new(Field::new(*name, of.clone(), true)));
        let fields = before.fields().iter().cloned().chain(own);
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// What `explain` shows of windows over an input.
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

    /// The stream of rows with their windows, whose columns stand at the end of the node.
    pub(super) fn windowed(
        &mut self,
        window: &WindowNode,
        ready: Ready,
        node: usize,
    ) -> Result<Stream> {
        let windows = window.windows;
        let schema = self.schema(node);
        // The last of that name: the rows may have windows of an earlier function.
        let mut fields = schema.fields().iter();
        let start = fields.rposition(|field| field.name() == "window_start");
        let start = start.ok_or_else(|| SqlError::new("a window without its start"))?;
        let mut time = ready.stream.columns.iter();
        let time = time.find(|column| column_index(column) == Some(ready.time_column));
        let time = time.cloned();
        let mut columns = ready.stream.columns.clone();
        columns.extend([
            column(start, &schema),
            column(start + 1, &schema),
            window_time(start + 1, &schema, &windows)?,
        ]);
        // A second window function on the old event time would judge lateness twice.
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
        })
    }
}

/// What is said of windows by a column that is not event time.
fn not_event_time(window: &WindowNode) -> SqlError {
    let name = &window.time.name;
    let place = window.time.spans.first().map_or(Span::empty(), to_span);
    if is_now(&Expr::Column(window.time.clone()), &window.input) {
        let error =
            format!("'{name}' is PROCTIME() and not event time, so there are no windows by it");
        return SqlError::new(error).at(place).hint(format!(
            "declare it with the table, in CREATE TABLE: {name} AS PROCTIME(), WATERMARK FOR {name} AS {name}"
        ));
    }
    SqlError::new(format!(
        "'{name}' is not event time, so there are no windows by it"
    ))
    .at(place)
    .hint(format!(
        "declare it with the table: WATERMARK FOR {name} AS {name} - INTERVAL '5' SECOND; of what a \
         window gives, window_time is the event time"
    ))
}

/// `window_end - 1 ms` (or one tick of a finer unit): the event time of what a window produces.
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
