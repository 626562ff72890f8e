//! Windows, and where lateness is judged.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion_expr::{Expr, LogicalPlan};
use slackwater_engine::operator::count_window::CountWindowSpec;
use slackwater_engine::operator::drop_late::Late;
use slackwater_engine::operator::late_rows::Lateness;
use slackwater_engine::operator::session::SessionSpec;
use slackwater_engine::operator::window::{WindowKind, Windows};
use sqlparser::tokenizer::Span;

use super::{Role, Stream, Translator};
use crate::as_of::now::is_now;
use crate::error::{Result, SqlError, to_span};
use crate::explain;
use crate::expression::{Physical, column, column_index, physical, replace_columns};
use crate::specs::NodeSpec;
use crate::window::{WINDOW_NUMBER, WindowNode};

/// The input of windows: every column that is needed is one of its node's.
struct Ready {
    stream: Stream,
    time_column: usize,
    /// Columns of PARTITION BY.
    keys: Vec<usize>,
}

impl Translator<'_> {
    pub(super) fn window(&mut self, window: &WindowNode) -> Result<Stream> {
        // Of this one, not of those that it reads.
        let merges = std::mem::take(&mut self.merges_sessions);
        let ready = self.window_input(window)?;
        let is_time = window.windows.kind == WindowKind::Count;
        let lateness = match is_time {
            true => Lateness::Time,
            false => Lateness::Windows(window.windows, self.lateness_us(&window.windows)?),
        };
        if let Some(late) = &window.late {
            self.keep_late(window, &ready.stream, ready.time_column, late, lateness)?;
        }
        match window.windows.kind {
            WindowKind::Aligned | WindowKind::Cumulating => self.assign(window, ready),
            WindowKind::Session => self.sessions(window, ready, merges),
            WindowKind::Count => self.count_windows(window, ready),
        }
    }

    /// How long behind its end a window takes rows.
    fn lateness_us(&self, windows: &Windows) -> Result<i64> {
        let lateness_us = self.session.settings.allowed_lateness_us;
        if lateness_us > 0 && !windows.is_fixed() {
            let function = match windows.kind {
                WindowKind::Session => "SESSION",
                _ => "COUNT_WINDOW",
            };
            return Err(SqlError::new(format!(
                "'allowed_lateness' is for windows with fixed edges: late rows would change those of a {function}"
            ))
            .near(function)
            .mend("leave it out, or make the delay in WATERMARK FOR longer"));
        }
        Ok(lateness_us)
    }

    /// The input, with all columns that windows need as columns of the node.
    fn window_input(&mut self, window: &WindowNode) -> Result<Ready> {
        let plan = &window.input;
        let mut stream = self.translate(plan)?;
        let time_index = plan.schema().index_of_column(&window.time)?;
        if stream.updates {
            return Err(SqlError::new(
                "windows are made over rows that stay, and these are taken back or replaced",
            )
            .near("DESCRIPTOR")
            .mend("make the windows first, then aggregate or join in them"));
        }
        if stream.roles[time_index] != Role::Time {
            let name = &window.time.name;
            let place = window.time.spans.first().map_or(Span::empty(), to_span);
            if is_now(&Expr::Column(window.time.clone()), plan) {
                let error = format!(
                    "'{name}' is PROCTIME() and not event time, so there are no windows by it"
                );
                return Err(SqlError::new(error).at(place).mend(format!(
                    "declare it with the table, in CREATE TABLE: {name} AS PROCTIME(), WATERMARK FOR {name} AS {name}"
                )));
            }
            return Err(SqlError::new(format!("'{name}' is not event time, so there are no windows by it"))
                .at(place)
                .mend(format!(
                    "declare it with the table: WATERMARK FOR {name} AS {name} - INTERVAL '5' SECOND; of what a \
                     window gives, window_time is the event time"
                )));
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
        let place = |stream: &Stream, of: &datafusion_common::Column| {
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
    fn with_fields(&self, input: &Stream, own: &[(&str, DataType)]) -> SchemaRef {
        let before = self.schemas[input.node].clone();
        let own = own.iter();
        let own = own.map(|(name, of)| Arc::new(Field::new(*name, of.clone(), true)));
        let fields = before.fields().iter().cloned().chain(own);
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn detail(&self, windows: &Windows, ready: &Ready) -> String {
        let schema = &self.schemas[ready.stream.node];
        let name = |&index: &usize| explain::readable(schema.field(index).name());
        let time = name(&ready.time_column);
        let mut detail = format!("{} by {time}", explain::windows(windows));
        if !ready.keys.is_empty() {
            let keys = ready.keys.iter().map(name).collect::<Vec<_>>();
            detail.push_str(&format!(" per {}", keys.join(", ")));
        }
        detail
    }

    /// Tumbling, sliding and cumulating windows: each row gets its own.
    fn assign(&mut self, window: &WindowNode, ready: Ready) -> Result<Stream> {
        let windows = window.windows;
        let of_edge = windows.data_type();
        let own = [("window_start", of_edge.clone()), ("window_end", of_edge)];
        let schema = self.with_fields(&ready.stream, &own);
        let time_column = ready.time_column;
        let lateness_us = self.lateness_us(&windows)?;
        let key = format!("window {windows:?} {time_column} {lateness_us}");
        let spec = NodeSpec::Window {
            time_column,
            windows,
            lateness_us,
            schema: schema.clone(),
        };
        let detail = self.detail(&windows, &ready);
        let node = self.node("window", detail, &[ready.stream.node], spec, schema, &key);
        self.windowed(window, ready, node)
    }

    /// The stream of rows with their windows, whose columns stand at the end of the node.
    fn windowed(&mut self, window: &WindowNode, ready: Ready, node: usize) -> Result<Stream> {
        let windows = window.windows;
        let schema = self.schemas[node].clone();
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

    /// Sessions. Where the aggregation above makes them ([`Translator::merges_sessions`]), its edges are not
    /// known here: what stands for them is how far a row reaches back.
    fn sessions(&mut self, window: &WindowNode, ready: Ready, merges: bool) -> Result<Stream> {
        let windows = window.windows;
        let reach = self.with_fields(&ready.stream, &[("session_reach", windows.data_type())]);
        let reach_column = reach.fields().len() - 1;
        let time_column = ready.time_column;
        let spec = NodeSpec::Window {
            time_column,
            windows,
            lateness_us: 0,
            schema: reach.clone(),
        };
        let detail = self.detail(&windows, &ready);
        let key = format!("reach {windows:?} {time_column}");
        let before = self.node(
            "window",
            detail.clone(),
            &[ready.stream.node],
            spec,
            reach.clone(),
            &key,
        );
        let judged = Stream {
            node: before,
            ..ready.stream.clone()
        };
        if merges {
            let of_reach = column(reach_column, &reach);
            let mut time = judged.columns.iter();
            let time = time
                .find(|of| column_index(of) == Some(time_column))
                .cloned();
            let mut columns = judged.columns.clone();
            let mut roles = judged.roles.clone();
            columns.extend(vec![of_reach; 3]);
            roles.extend([
                Role::WindowStart(windows),
                Role::WindowEnd(windows),
                Role::Plain,
            ]);
            return Ok(Stream {
                columns,
                roles,
                time,
                ..judged
            });
        }
        let sessions = SessionSpec {
            keys: ready.keys.clone(),
            time_column,
            reach_column,
            windows,
        };
        let of_edge = windows.data_type();
        let own = [("window_start", of_edge.clone()), ("window_end", of_edge)];
        let schema = self.with_fields(&ready.stream, &own);
        let key = format!("sessions {sessions:?}");
        let spec = NodeSpec::SessionRows {
            sessions,
            input: reach,
            schema: schema.clone(),
        };
        let node = self.node("sessions", detail, &[judged.node], spec, schema, &key);
        self.windowed(window, ready, node)
    }

    fn count_windows(&mut self, window: &WindowNode, mut ready: Ready) -> Result<Stream> {
        let windows = window.windows;
        let detail = self.detail(&windows, &ready);
        ready.stream.node = self.drop_late(ready.stream.node, ready.time_column, Late::Before);
        let of_edge = windows.data_type();
        let own = [
            ("window_start", of_edge.clone()),
            ("window_end", of_edge),
            (WINDOW_NUMBER, DataType::Int64),
        ];
        let schema = self.with_fields(&ready.stream, &own);
        let spec = CountWindowSpec {
            keys: ready.keys.clone(),
            time_column: ready.time_column,
            windows,
            input: self.schemas[ready.stream.node].clone(),
            schema: schema.clone(),
        };
        let key = format!("count {spec:?}");
        let spec = NodeSpec::CountWindow(spec);
        let input = ready.stream.node;
        let node = self.node("count window", detail, &[input], spec, schema, &key);
        self.windowed(window, ready, node)
    }

    /// Whether an aggregation can merge sessions itself: it groups by their edges and by what they are told
    /// apart by, and looks at nothing else of them.
    pub(super) fn can_merge_sessions(
        &self,
        keys: &[Expr],
        calls: &[Expr],
        plan: &LogicalPlan,
    ) -> bool {
        let mut places = Vec::new();
        for key in keys {
            let Expr::Column(column) = key else {
                return false;
            };
            let Ok(index) = plan.schema().index_of_column(column) else {
                return false;
            };
            match origin(plan, index) {
                Some((window, at)) if window.windows.kind == WindowKind::Session => {
                    places.push((window, at));
                }
                _ => return false,
            }
        }
        let Some(&(window, _)) = places.first() else {
            return false;
        };
        let width = window.input.schema().fields().len();
        let is_edge = |at: usize| at == width || at == width + 1;
        let partition = window.partition_by.iter();
        let partition = partition.map(|column| window.input.schema().index_of_column(column).ok());
        let Some(partition) = partition.collect::<Option<Vec<usize>>>() else {
            return false;
        };
        let has = |wanted: usize| places.iter().any(|(_, at)| *at == wanted);
        let mut own = places.iter().map(|(_, at)| *at);
        own.all(|at| is_edge(at) || partition.contains(&at))
            && places.iter().any(|(_, at)| is_edge(*at))
            && partition.into_iter().all(has)
            && calls.iter().all(|call| reads_input(plan, call))
    }
}

/// The window function that a plan is no more than renamed columns of, and which of its columns this is.
fn origin(plan: &LogicalPlan, index: usize) -> Option<(&WindowNode, usize)> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => origin(&alias.input, index),
        LogicalPlan::Projection(projection) => {
            let mut expression = projection.expr.get(index)?;
            while let Expr::Alias(alias) = expression {
                expression = &alias.expr;
            }
            let below = projection.input.schema();
            let index = below.index_of_column(expression.try_as_col()?).ok()?;
            origin(&projection.input, index)
        }
        LogicalPlan::Extension(extension) => {
            let window = extension.node.as_any().downcast_ref::<WindowNode>()?;
            Some((window, index))
        }
        _ => None,
    }
}

/// Whether an expression over a plan that [`origin`] sees through reads columns of the window's input only.
fn reads_input(plan: &LogicalPlan, expression: &Expr) -> bool {
    let mut columns = expression.column_refs().into_iter();
    columns.all(|column| {
        let Ok(index) = plan.schema().index_of_column(column) else {
            return false;
        };
        match plan {
            LogicalPlan::SubqueryAlias(alias) => {
                let column = alias.input.schema().columns().into_iter().nth(index);
                column.is_some_and(|column| reads_input(&alias.input, &Expr::Column(column)))
            }
            LogicalPlan::Projection(projection) => {
                reads_input(&projection.input, &projection.expr[index])
            }
            LogicalPlan::Extension(extension) => {
                let window = extension.node.as_any().downcast_ref::<WindowNode>();
                window.is_some_and(|window| index < window.input.schema().fields().len())
            }
            _ => false,
        }
    })
}

/// `window_end - 1 ms` (or one tick of a finer unit): the event time of what a window produces.
fn window_time(end: usize, schema: &Schema, windows: &Windows) -> Result<Physical> {
    use arrow_schema::TimeUnit;
    use datafusion_common::{DFSchema, ScalarValue};
    let tick_ns = match windows.unit {
        TimeUnit::Second | TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1_000,
    };
    let field = schema.field(end);
    let interval = ScalarValue::new_interval_mdn(0, 0, tick_ns);
    let only = DFSchema::try_from(Schema::new(vec![field.clone()]))?;
    let end_column = Expr::Column(datafusion_common::Column::new_unqualified(field.name()));
    let difference = end_column - Expr::Literal(interval, None);
    let difference = physical(&difference, &only)?;
    replace_columns(&difference, &[column(end, schema)])
}
