//! The nodes of a query graph: sources, operators and sinks.

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

/// A node of the query graph.
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
    /// The table that is read.
    pub table: Arc<Table>,
    /// The connector that reads the table.
    pub connector: Arc<dyn SourceConnector>,
    /// The indices of the physical columns that are read.
    pub projection: Vec<usize>,
    /// The columns of the chunks, over the physical columns.
    pub columns: Vec<Arc<dyn Expression>>,
    /// The names and types of the columns.
    pub schema: SchemaRef,
    /// The event time of the table.
    pub event_time: Option<EventTimeSpec>,
}

/// A table that is written, or the terminal.
#[derive(Clone)]
pub struct SinkSpec {
    /// The table; `None` for the terminal.
    pub table: Option<Arc<Table>>,
    /// The connector that writes the table.
    pub connector: Arc<dyn SinkConnector>,
    /// The columns that are written.
    pub schema: SchemaRef,
    /// The target for the 99th percentile of the latency of the rows, in nanoseconds.
    pub latency_target_ns: Option<u64>,
    /// How the rows change earlier ones.
    pub changes: Changes,
    /// The columns by which the rows are ordered, if they are the first rows of a result; empty if the result
    /// has no order.
    pub order: RowOrder,
    /// Whether the sink needs the previous row of each update.
    pub wants_before: bool,
    /// Whether the sink gets the previous row of each update: because it needs it, or because a node before
    /// it does ([`crate::changelog::settle`]).
    pub gets_before: bool,
}

/// How rows change earlier ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changes {
    /// All rows are new.
    None,
    /// A row replaces the earlier one with the same values in these columns.
    ByKey(Vec<usize>),
    /// A row retracts an equal one.
    ByRow,
    /// A row replaces another one, and no column says which.
    HiddenKey,
}

impl NodeSpec {
    /// The table that the node reads, if it is a source.
    pub fn as_source(&self) -> Option<&SourceSpec> {
        match self {
            NodeSpec::Source(source) => Some(source),
            NodeSpec::Operator(_) | NodeSpec::Sink(_) => None,
        }
    }

    /// The table that the node writes, if it is a sink.
    pub fn as_sink(&self) -> Option<&SinkSpec> {
        match self {
            NodeSpec::Sink(sink) => Some(sink),
            NodeSpec::Source(_) | NodeSpec::Operator(_) => None,
        }
    }

    /// Whether the node is a source.
    pub fn is_source(&self) -> bool {
        self.as_source().is_some()
    }

    /// Whether the node is a sink.
    pub fn is_sink(&self) -> bool {
        self.as_sink().is_some()
    }

    /// The columns of the output; of a sink, the columns that it writes.
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
            // A table that is read to its end is in memory like state, though no checkpoint contains it.
            NodeSpec::Operator(node) => {
                match node.state().is_some() || node.facts().first_input.is_some() {
                    true => NodeKind::Stateful,
                    false => NodeKind::Stateless,
                }
            }
        }
    }

    /// How rows of input `input` are sent to the node's instances. (Rows are sent to a sink by key if its
    /// table has one: that is stored in the edge.)
    pub fn exchange(&self, input: usize) -> Exchange {
        match self {
            NodeSpec::Operator(node) => node.exchange(input),
            NodeSpec::Source(_) | NodeSpec::Sink(_) => Exchange::Forward,
        }
    }

    /// The operator's state in checkpoints.
    pub fn state(&self) -> Option<State> {
        match self {
            NodeSpec::Operator(node) => node.state(),
            NodeSpec::Source(_) | NodeSpec::Sink(_) => None,
        }
    }

    /// The identity of what checkpoints contain of the node: positions, state, or commits.
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

    /// The kinds of changes that the node needs and emits.
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

    /// The node's state that grows as long as its input does not end.
    pub fn growth(&self, detail: &str) -> Vec<Growth> {
        match self {
            NodeSpec::Operator(node) => node.growth(detail),
            NodeSpec::Source(_) | NodeSpec::Sink(_) => Vec::new(),
        }
    }

    /// All other facts about the node.
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
    /// When the engine does not support what the node asks for.
    pub fn operator(&self) -> slackwater_engine::Result<Option<Operator>> {
        match self {
            NodeSpec::Operator(node) => node.operator().map(Some),
            NodeSpec::Source(_) | NodeSpec::Sink(_) => Ok(None),
        }
    }
}

/// The facts about sources and sinks.
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
        judges: None,
        assigns: None,
        retention_us: None,
        combines: None,
        cost,
    }
}
