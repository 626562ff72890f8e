//! What the nodes of a query graph stand for, and how the engine's operators are made from it.

mod identity;
mod saved;

use std::sync::Arc;

use arrow_schema::SchemaRef;
use slackwater_engine::expression::Expression;
use slackwater_engine::intake::EventTimeSpec;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::aggregate::{Aggregate, AggregateSpec};
use slackwater_engine::operator::changelog::aggregate::UpdatingAggregate;
use slackwater_engine::operator::changelog::final_rows::{FinalRows, FinalSpec};
use slackwater_engine::operator::changelog::join::{ChangelogJoin, ChangelogJoinSpec};
use slackwater_engine::operator::changelog::rows::RowOrder;
use slackwater_engine::operator::changelog::to_rows::ToRows;
use slackwater_engine::operator::changelog::top_n::{TopN, TopNSpec, WindowTopN};
use slackwater_engine::operator::count_window::{CountWindow, CountWindowSpec};
use slackwater_engine::operator::drop_late::{DropLate, Late};
use slackwater_engine::operator::filter::Filter;
use slackwater_engine::operator::interval_join::{IntervalJoin, IntervalJoinSpec};
use slackwater_engine::operator::join::{JoinSpec, WindowJoin};
use slackwater_engine::operator::late_rows::{LateRows, Lateness};
use slackwater_engine::operator::lookup_join::{LookupJoin, LookupJoinSpec};
use slackwater_engine::operator::map::Map;
use slackwater_engine::operator::over::{Over, OverSpec};
use slackwater_engine::operator::session::{SessionAggregate, SessionRows, SessionSpec};
use slackwater_engine::operator::table_join::{TableJoin, TableJoinSpec};
use slackwater_engine::operator::temporal_join::{TemporalJoin, TemporalJoinSpec};
use slackwater_engine::operator::union::Union;
use slackwater_engine::operator::window::{AssignWindows, Windows};
use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;

use crate::table::Table;
pub use saved::Saved;

/// What a node stands for.
#[derive(Clone)]
pub enum NodeSpec {
    /// A table that is read.
    Source(SourceSpec),
    /// A projection.
    Map {
        /// An expression per column.
        expressions: Vec<Arc<dyn Expression>>,
        /// The columns.
        schema: SchemaRef,
    },
    /// A condition.
    Filter {
        /// It.
        condition: Arc<dyn Expression>,
    },
    /// Late rows are left out.
    DropLate {
        /// The event-time column.
        time_column: usize,
        /// Which rows are late.
        late: Late,
    },
    /// Window assignment.
    Window {
        /// The event-time column.
        time_column: usize,
        /// The windows.
        windows: Windows,
        /// How long behind its end a window takes rows, in microseconds.
        lateness_us: i64,
        /// The input's columns and the windows'.
        schema: SchemaRef,
    },
    /// Late rows, and no others.
    LateRows {
        /// The event-time column.
        time_column: usize,
        /// When a row is late.
        lateness: Lateness,
    },
    /// Aggregation in sessions.
    Sessions {
        /// What it computes.
        spec: AggregateSpec,
        /// Which rows are one session.
        sessions: SessionSpec,
        /// The columns of its input.
        input: SchemaRef,
    },
    /// Rows with the edges of their session.
    SessionRows {
        /// Which rows are one session.
        sessions: SessionSpec,
        /// The columns of its input.
        input: SchemaRef,
        /// The columns of its output.
        schema: SchemaRef,
    },
    /// Windows of so many rows.
    CountWindow(CountWindowSpec),
    /// Aggregation by key.
    Aggregate {
        /// What it computes.
        spec: AggregateSpec,
        /// The columns of its input.
        input: SchemaRef,
    },
    /// A window join.
    Join(JoinSpec),
    /// A join of two streams whose event times are at most so far from each other.
    IntervalJoin(IntervalJoinSpec),
    /// Functions of the rows before each row.
    Over(OverSpec),
    /// A join of a stream with a table that ends.
    TableJoin(TableJoinSpec),
    /// A join of a stream with what a table outside has now.
    LookupJoin(LookupJoinSpec),
    /// A join of a stream with the versions of a table that changes.
    TemporalJoin(TemporalJoinSpec),
    /// A join of two streams.
    ChangelogJoin(ChangelogJoinSpec),
    /// The first rows of each partition.
    TopN(TopNSpec),
    /// Of each partition the first row, because a table has that key and the query has not.
    ByPrimaryKey(TopNSpec),
    /// The rows that are left when the inputs have ended.
    Final(FinalSpec),
    /// A changelog as plain rows.
    ToRows {
        /// What each row does, then the input's columns.
        schema: SchemaRef,
    },
    /// A union.
    Union {
        /// The columns of all inputs.
        schema: SchemaRef,
        /// Some input brings rows that change others.
        changes: bool,
    },
    /// A table that is written, or the terminal.
    Sink(SinkSpec),
}

/// A table that is read.
#[derive(Clone)]
pub struct SourceSpec {
    /// The table.
    pub table: Arc<Table>,
    /// What reads it.
    pub connector: Arc<dyn SourceConnector>,
    /// Physical columns that are read.
    pub projection: Vec<usize>,
    /// The columns of the chunks, over those that are read.
    pub columns: Vec<Arc<dyn Expression>>,
    /// Their names and types.
    pub schema: SchemaRef,
    /// Event time.
    pub event_time: Option<EventTimeSpec>,
}

/// A table that is written, or the terminal.
#[derive(Clone)]
pub struct SinkSpec {
    /// The table's name; `None` for the terminal.
    pub table: Option<Arc<Table>>,
    /// What writes it.
    pub connector: Arc<dyn SinkConnector>,
    /// The columns.
    pub schema: SchemaRef,
    /// What the 99th percentile of its rows' latency is to be below, in nanoseconds.
    pub latency_target_ns: Option<u64>,
    /// What its rows may do to those before them.
    pub changes: Changes,
    /// Columns that its rows are in order of, where they are the first ones of something; empty where a table
    /// of the rows would have no order of its own.
    pub order: RowOrder,
    /// Wants to hear what a row was before its update.
    pub wants_before: bool,
    /// Hears it: it wants to, or what is between it and whoever makes the changes needs it
    /// ([`crate::changelog::settle`]).
    pub hears_before: bool,
}

/// What rows may do to those before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changes {
    /// Nothing: all are new.
    None,
    /// A row replaces the one before it that has the same in these columns.
    ByKey(Vec<usize>),
    /// A row takes one back that is the same.
    ByRow,
    /// A row replaces another, and no column that is there says which.
    HiddenKey,
}

impl NodeSpec {
    /// The engine's operator for the node; `None` for sources and sinks.
    pub fn operator(&self) -> slackwater_engine::Result<Option<Operator>> {
        Ok(Some(match self {
            NodeSpec::Source(_) | NodeSpec::Sink(_) => return Ok(None),
            NodeSpec::Map {
                expressions,
                schema,
            } => Operator::stateless(Map::new(expressions.clone(), schema.clone())),
            NodeSpec::Filter { condition } => Operator::stateless(Filter::new(condition.clone())),
            NodeSpec::DropLate { time_column, late } => {
                Operator::stateless(DropLate::new(*time_column, *late))
            }
            NodeSpec::Window {
                time_column,
                windows,
                lateness_us,
                schema,
            } => {
                let assign = AssignWindows::new(*time_column, *windows, schema.clone());
                Operator::stateless(assign.with_lateness(*lateness_us))
            }
            NodeSpec::LateRows {
                time_column,
                lateness,
            } => Operator::stateless(LateRows::new(*time_column, *lateness)),
            NodeSpec::Sessions {
                spec,
                sessions,
                input,
            } => Operator::stateful(SessionAggregate::new(
                spec.clone(),
                sessions.clone(),
                input,
            )?),
            NodeSpec::SessionRows {
                sessions,
                input,
                schema,
            } => Operator::stateful(SessionRows::new(sessions.clone(), input, schema.clone())?),
            NodeSpec::CountWindow(spec) => Operator::stateful(CountWindow::new(spec.clone())?),
            NodeSpec::Aggregate { spec, input } if spec.is_updating() => {
                Operator::stateful(UpdatingAggregate::new(spec.clone(), input)?)
            }
            NodeSpec::Aggregate { spec, input } => {
                Operator::stateful(Aggregate::new(spec.clone(), input)?)
            }
            NodeSpec::Join(spec) => Operator::stateful(WindowJoin::new(spec.clone())),
            NodeSpec::IntervalJoin(spec) => Operator::stateful(IntervalJoin::new(spec.clone())?),
            NodeSpec::Over(spec) => Operator::stateful(Over::new(spec.clone())?),
            NodeSpec::TableJoin(spec) => Operator::stateful(TableJoin::new(spec.clone())),
            NodeSpec::LookupJoin(spec) => Operator::stateless(LookupJoin::new(spec.clone())?),
            NodeSpec::TemporalJoin(spec) => Operator::stateful(TemporalJoin::new(spec.clone())?),
            NodeSpec::ChangelogJoin(spec) => Operator::stateful(ChangelogJoin::new(spec.clone())?),
            NodeSpec::TopN(spec) if spec.window.is_some() => {
                Operator::stateful(WindowTopN::new(spec.clone())?)
            }
            NodeSpec::TopN(spec) | NodeSpec::ByPrimaryKey(spec) => {
                Operator::stateful(TopN::new(spec.clone())?)
            }
            NodeSpec::Final(spec) => Operator::stateful(FinalRows::new(spec.clone())?),
            NodeSpec::ToRows { schema } => Operator::stateless(ToRows::new(schema.clone())),
            NodeSpec::Union { schema, changes } => Operator::stateless(match changes {
                true => Union::of_changes(schema.clone()),
                false => Union::new(schema.clone()),
            }),
        }))
    }
}
