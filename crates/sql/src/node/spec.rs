//! The nodes of a query graph: what reads a table, what computes, what writes.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use slackwater_control::query::{Exchange, NodeKind};
use slackwater_engine::expression::Expression;
use slackwater_engine::intake::EventTimeSpec;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::changelog::rows::RowOrder;
use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;

use super::facts::{
    Behind, Changelog, Cost, Emission, Emits, Facts, Growth, NeedsBefore, Node, Order, Sorted,
    State,
};
use crate::state::{self, StateIdentity};
use crate::table::Table;

/// What a node of the query graph stands for.
pub enum NodeSpec {
    /// A table that is read.
    Source(SourceSpec),
    /// An operator.
    Operator(Box<dyn Node>),
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
    /// The table that is read, if this is one.
    pub fn as_source(&self) -> Option<&SourceSpec> {
        match self {
            NodeSpec::Source(source) => Some(source),
            NodeSpec::Operator(_) | NodeSpec::Sink(_) => None,
        }
    }

    /// The table that is written, if this is one.
    pub fn as_sink(&self) -> Option<&SinkSpec> {
        match self {
            NodeSpec::Sink(sink) => Some(sink),
            NodeSpec::Source(_) | NodeSpec::Operator(_) => None,
        }
    }

    /// Whether a table is read.
    pub fn is_source(&self) -> bool {
        self.as_source().is_some()
    }

    /// Whether a table is written.
    pub fn is_sink(&self) -> bool {
        self.as_sink().is_some()
    }

    /// The columns of what comes out; those that a sink writes.
    pub fn schema(&self) -> &SchemaRef {
        match self {
            NodeSpec::Source(source) => &source.schema,
            NodeSpec::Operator(node) => node.schema(),
            NodeSpec::Sink(sink) => &sink.schema,
        }
    }

    /// How the node may be run.
    pub fn kind(&self) -> NodeKind {
        match self {
            NodeSpec::Source(_) => NodeKind::Source,
            NodeSpec::Sink(_) => NodeKind::Sink,
            // A table that is read to its end is kept as state is, though no checkpoint holds it.
            NodeSpec::Operator(node) => {
                match node.state().is_some() || node.facts().first_input.is_some() {
                    true => NodeKind::Stateful,
                    false => NodeKind::Stateless,
                }
            }
        }
    }

    /// How rows of input `input` get to the node's instances. (Those of a sink are sent by key
    /// where its table has one: its edge says so.)
    pub fn exchange(&self, input: usize) -> Exchange {
        match self {
            NodeSpec::Operator(node) => node.exchange(input),
            NodeSpec::Source(_) | NodeSpec::Sink(_) => Exchange::Forward,
        }
    }

    /// What checkpoints hold of an operator's state.
    pub fn state(&self) -> Option<State> {
        match self {
            NodeSpec::Operator(node) => node.state(),
            NodeSpec::Source(_) | NodeSpec::Sink(_) => None,
        }
    }

    /// What identifies what checkpoints hold of the node: positions, state, or commits.
    pub fn identity(&self) -> Option<StateIdentity> {
        match self {
            NodeSpec::Source(source) => Some(StateIdentity::Source(state::Source {
                connector: source.connector.describe().connector,
            })),
            NodeSpec::Operator(node) => node.state().map(|state| state.identity),
            NodeSpec::Sink(sink) => {
                let place = sink.connector.describe();
                Some(StateIdentity::Sink(state::Sink {
                    connector: place.connector.to_string(),
                    place: place.place,
                    table: place.table,
                    column: place.column,
                }))
            }
        }
    }

    /// What the node takes and emits where rows change others.
    pub fn changelog(&self, wants_before: bool) -> Changelog {
        match self {
            NodeSpec::Source(_) => Changelog::appends(),
            NodeSpec::Operator(node) => node.changelog(wants_before),
            NodeSpec::Sink(sink) => Changelog {
                needs_before: NeedsBefore::ByInput(vec![sink.wants_before]),
                emits: Emits::Appends,
            },
        }
    }

    /// What of the node's state grows as long as its input does not end.
    pub fn growth(&self, detail: &str) -> Vec<Growth> {
        match self {
            NodeSpec::Operator(node) => node.growth(detail),
            NodeSpec::Source(_) | NodeSpec::Sink(_) => Vec::new(),
        }
    }

    /// Everything else.
    pub fn facts(&self) -> Facts<'_> {
        match self {
            NodeSpec::Source(_) => of_end(Order::AsOutput, Cost::of(15_000.0, 60.0, 1.0)),
            NodeSpec::Operator(node) => node.facts(),
            NodeSpec::Sink(_) => of_end(Order::Seen, Cost::of(10_000.0, 40.0, 0.0)),
        }
    }

    /// The engine's operator; `None` for sources and sinks.
    ///
    /// # Errors
    ///
    /// The engine can't do what is asked of it.
    pub fn operator(&self) -> slackwater_engine::Result<Option<Operator>> {
        match self {
            NodeSpec::Operator(node) => node.operator().map(Some),
            NodeSpec::Source(_) | NodeSpec::Sink(_) => Ok(None),
        }
    }
}

/// What is said of sources and sinks.
fn of_end(order: Order, cost: Cost) -> Facts<'static> {
    Facts {
        order,
        sorted: Sorted::No,
        orders_by_origin: false,
        may_be_dealt: false,
        first_input: None,
        behind: Behind::Never,
        rejects_input_rows: false,
        emission: Emission::OnInput,
        drops_late: false,
        assigns: None,
        retention_us: None,
        combines: None,
        cost,
    }
}
