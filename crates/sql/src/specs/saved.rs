//! How nodes are run, how rows get to their instances, and what checkpoints hold of them.
//!
//! Rows come to an instance by what its state is kept by: both are said by the specification that the operator
//! itself is made from, so that the two can't differ. (The engine checks it again when it builds an instance:
//! [`Facts::placed_by`](slackwater_engine::operator::Facts::placed_by).)

use slackwater_control::query::{Exchange, NodeKind};
use slackwater_engine::operator::table_join::STREAM;

use super::NodeSpec;

macro_rules! saved {
    ($($kind:ident = $word:literal, $what:literal;)*) => {
        /// State that checkpoints hold, by the operator that keeps it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Saved {
            $(#[doc = $what] $kind,)*
        }

        impl Saved {
            /// All of them.
            pub const ALL: &[Saved] = &[$(Saved::$kind,)*];

            /// What checkpoints call the nodes.
            pub fn word(self) -> &'static str {
                match self {
                    $(Saved::$kind => $word,)*
                }
            }
        }
    };
}

// Checkpoints hold the words: a node of another word would not be found again.
saved! {
    WindowAggregate = "aggregate", "Aggregation in windows, emitted when they close.";
    RefiringAggregate = "aggregate", "Aggregation in windows that are emitted more than once.";
    RunningAggregate = "aggregate", "Running aggregation of rows that stay.";
    UpdatingAggregate = "aggregate", "Running aggregation that takes rows back, or says what was before.";
    SessionAggregate = "aggregate", "Aggregation in sessions.";
    SessionRows = "sessions", "Rows of sessions.";
    CountWindow = "count window", "Windows of so many rows.";
    WindowJoin = "join", "Join of rows of the same window.";
    IntervalJoin = "interval join", "Join of rows whose times are near each other.";
    TemporalJoin = "temporal join", "Join with the versions of a table.";
    ChangelogJoin = "join of streams", "Join of two streams.";
    Over = "over", "Functions of the rows before each row.";
    TopN = "top", "The first rows of each partition.";
    WindowTopN = "top", "The first rows of each partition of a window.";
    ByPrimaryKey = "primary key", "The row of each primary key.";
    FinalAggregate = "aggregate", "Aggregation that is emitted when its input has ended.";
    FinalRows = "final", "The rows that are left when the input has ended.";
}

impl NodeSpec {
    /// What checkpoints hold of it; `None` for what keeps nothing between rows, and for what is read again
    /// (tables of joins) or asked again (lookups).
    pub fn saved(&self) -> Option<Saved> {
        Some(match self {
            NodeSpec::Aggregate { spec, .. } if spec.is_updating() => Saved::UpdatingAggregate,
            NodeSpec::Aggregate { spec, .. } => match (&spec.window, &spec.refires) {
                (None, _) if spec.is_final() => Saved::FinalAggregate,
                (None, _) => Saved::RunningAggregate,
                (Some(_), None) => Saved::WindowAggregate,
                (Some(_), Some(_)) => Saved::RefiringAggregate,
            },
            NodeSpec::Sessions { .. } => Saved::SessionAggregate,
            NodeSpec::SessionRows { .. } => Saved::SessionRows,
            NodeSpec::CountWindow(_) => Saved::CountWindow,
            NodeSpec::Join(_) => Saved::WindowJoin,
            NodeSpec::IntervalJoin(_) => Saved::IntervalJoin,
            NodeSpec::TemporalJoin(_) => Saved::TemporalJoin,
            NodeSpec::ChangelogJoin(_) => Saved::ChangelogJoin,
            NodeSpec::Over(_) => Saved::Over,
            NodeSpec::TopN(spec) if spec.window.is_some() => Saved::WindowTopN,
            NodeSpec::TopN(_) => Saved::TopN,
            NodeSpec::ByPrimaryKey(_) => Saved::ByPrimaryKey,
            NodeSpec::Final(_) => Saved::FinalRows,
            NodeSpec::Source(_)
            | NodeSpec::Map { .. }
            | NodeSpec::Filter { .. }
            | NodeSpec::DropLate { .. }
            | NodeSpec::Window { .. }
            | NodeSpec::LateRows { .. }
            | NodeSpec::TableJoin(_)
            | NodeSpec::LookupJoin(_)
            | NodeSpec::ToRows { .. }
            | NodeSpec::Union { .. }
            | NodeSpec::Sink(_) => return None,
        })
    }

    /// How it may be run.
    pub fn kind(&self) -> NodeKind {
        match self {
            NodeSpec::Source(_) => NodeKind::Source,
            NodeSpec::Sink(_) => NodeKind::Sink,
            NodeSpec::TableJoin(_) => NodeKind::Stateful,
            _ if self.saved().is_some() => NodeKind::Stateful,
            _ => NodeKind::Stateless,
        }
    }

    /// How rows of input `input` get to its instances: to where their state is.
    pub fn exchange(&self, input: usize) -> Exchange {
        let keys: &[usize] = match self {
            NodeSpec::Aggregate { spec, .. } => &spec.keys,
            NodeSpec::Sessions { sessions, .. } | NodeSpec::SessionRows { sessions, .. } => {
                &sessions.keys
            }
            NodeSpec::CountWindow(spec) => &spec.keys,
            NodeSpec::Join(spec) => spec.sides[input].placed_by(),
            NodeSpec::IntervalJoin(spec) => &spec.sides[input].keys,
            NodeSpec::ChangelogJoin(spec) => &spec.sides[input].keys,
            NodeSpec::Over(spec) => &spec.keys,
            NodeSpec::TopN(spec) | NodeSpec::ByPrimaryKey(spec) => &spec.partition,
            NodeSpec::Final(_) => return Exchange::Single,
            NodeSpec::TableJoin(_) | NodeSpec::TemporalJoin(_) => {
                return match input == STREAM {
                    true => Exchange::Forward,
                    false => Exchange::Broadcast,
                };
            }
            NodeSpec::Source(_)
            | NodeSpec::Map { .. }
            | NodeSpec::Filter { .. }
            | NodeSpec::DropLate { .. }
            | NodeSpec::Window { .. }
            | NodeSpec::LateRows { .. }
            | NodeSpec::LookupJoin(_)
            | NodeSpec::ToRows { .. }
            | NodeSpec::Union { .. }
            | NodeSpec::Sink(_) => return Exchange::Forward,
        };
        match keys {
            [] => Exchange::Single,
            keys => Exchange::Key(keys.to_vec()),
        }
    }
}
