//! The identity of an operator's state in a checkpoint: plain data in a format of its own.
//!
//! A query resumes from a checkpoint if the identities of its states equal those in the checkpoint, so
//! everything that is written here must stay readable. The format contains no names of types of Rust, Arrow
//! or DataFusion and no prose: each word is in a `rename` or in [`data_type`], and changes only with
//! [`VERSION`]. `docs/internals/checkpoints.md` describes the format.
//!
//! - `node::identity` derives the identity from the specification of an operator.
//! - [`words`] explains the difference of two identities to the user.
//! - [`legacy`] is the format before this one.

pub mod data_type;
mod functions;
pub mod legacy;
mod literal;
mod rows;
mod words;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use data_type::Type;
pub use functions::{Call, Frame, Function, OverCall, OverFunction};
pub(crate) use literal::literal;
pub use rows::{
    Column, Direction, JoinKind, Side, SortColumn, TimedSide, Unit, Window, WindowKind, WindowRows,
};

/// The version that is written. It changes if earlier versions would misread the format; an added field whose
/// default is not written needs no new version.
pub const VERSION: u32 = 1;

/// The identity of a node's state. Two nodes with equal identities can read each other's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operator")]
pub enum StateIdentity {
    /// The positions in a table that is read.
    #[serde(rename = "source")]
    Source(Source),
    /// The commits of a table that is written.
    #[serde(rename = "sink")]
    Sink(Sink),
    /// An aggregation.
    #[serde(rename = "aggregate")]
    Aggregate(Aggregate),
    /// The rows of sessions.
    #[serde(rename = "session-rows")]
    SessionRows(WindowRows),
    /// The rows of count windows.
    #[serde(rename = "count-window")]
    CountWindow(WindowRows),
    /// The rows of a window join.
    #[serde(rename = "window-join")]
    WindowJoin(WindowJoin),
    /// The rows of an interval join.
    #[serde(rename = "interval-join")]
    IntervalJoin(IntervalJoin),
    /// The rows and versions of a temporal join.
    #[serde(rename = "temporal-join")]
    TemporalJoin(TemporalJoin),
    /// The rows of a stream join.
    #[serde(rename = "stream-join")]
    StreamJoin(StreamJoin),
    /// The rows that OVER functions look back at.
    #[serde(rename = "over")]
    Over(Over),
    /// The first rows of each partition.
    #[serde(rename = "first-rows")]
    FirstRows(FirstRows),
    /// The rows that remain when the input has ended.
    #[serde(rename = "final-rows")]
    FinalRows(FinalRows),
    /// The rows of a materialized view.
    #[serde(rename = "materialized-view")]
    MaterializedView(MaterializedView),
    /// The keys of an operator that a build has added.
    #[serde(rename = "custom")]
    Custom(Custom),
}

/// A table that is read. The connector defines the meaning of its positions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The connector's name.
    pub connector: String,
}

/// A table that is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sink {
    /// The connector's name.
    pub connector: String,
    /// The path, address or topic that is written; empty if the connector has only one place.
    pub place: String,
    /// The table of a database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// The column with the place of each row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
}

/// The groups of an aggregation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aggregate {
    /// The keys of the groups, without the window.
    pub keys: Vec<Column>,
    /// The aggregates.
    pub aggregates: Vec<Call>,
    /// The window that is part of each group's key.
    pub window: Option<Window>,
    /// The layout of the state.
    pub form: AggregateForm,
}

/// The layout of an aggregation's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AggregateForm {
    /// Accumulators.
    #[serde(rename = "plain")]
    Plain,
    /// Accumulators of windows that are emitted more than once.
    #[serde(rename = "refires")]
    Refires,
    /// Accumulators of windows that are emitted more than once, with the row that was emitted last.
    #[serde(rename = "refires-with-before")]
    RefiresWithBefore,
    /// Accumulators that can retract rows.
    #[serde(rename = "takes-back")]
    TakesBack,
    /// Accumulators, with the row that was emitted last.
    #[serde(rename = "with-before")]
    WithBefore,
    /// Accumulators of sessions, which merge.
    #[serde(rename = "merges-sessions")]
    MergesSessions,
}

/// A window join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowJoin {
    /// The left input.
    pub left: Side,
    /// The right input.
    pub right: Side,
    /// The windows of both inputs.
    pub window: Window,
}

/// An interval join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntervalJoin {
    /// The left input.
    pub left: TimedSide,
    /// The right input.
    pub right: TimedSide,
    /// The rows that the join returns.
    pub kind: JoinKind,
    /// The minimum of the right row's time minus the left row's, in microseconds.
    pub from_us: i64,
    /// The maximum of that difference.
    pub to_us: i64,
    /// The side whose rows every instance has: 0 is the left one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<usize>,
}

/// A join with the versions of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemporalJoin {
    /// The key columns of the stream.
    pub stream_keys: Vec<usize>,
    /// The key columns of the table.
    pub table_keys: Vec<usize>,
    /// The columns of the table.
    pub table: Vec<Column>,
    /// The columns of a pair: the stream's, followed by the table's.
    pub pair: Vec<Column>,
}

/// A join of two streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamJoin {
    /// The left input.
    pub left: Side,
    /// The right input.
    pub right: Side,
    /// The rows that the join returns: only outer, semi and anti joins count partners.
    pub kind: JoinKind,
    /// Whether rows that have found a partner are discarded.
    pub settles: bool,
}

/// OVER functions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Over {
    /// The rows, by key and time.
    pub rows: TimedSide,
    /// The functions.
    pub functions: Vec<OverCall>,
}

/// The first rows of each partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirstRows {
    /// The columns of the rows.
    pub rows: Vec<Column>,
    /// The columns of the partition, including that of the window.
    pub keys: Vec<usize>,
    /// The columns by which the rows are ordered.
    pub order: Vec<SortColumn>,
    /// The number of rows that are kept of each partition; `null` for all.
    pub kept: Option<u64>,
    /// The window that is part of the partition.
    pub window: Option<Window>,
}

/// The rows that remain when the input has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FinalRows {
    /// The columns of the rows.
    pub rows: Vec<Column>,
    /// The columns by which the rows are ordered.
    pub order: Vec<SortColumn>,
    /// The number of rows that are kept; `null` for all.
    pub kept: Option<u64>,
}

/// The rows of a materialized view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaterializedView {
    /// The columns of the rows.
    pub rows: Vec<Column>,
    /// The columns by which a row replaces another; `null` if all rows are kept.
    pub keys: Option<Vec<usize>>,
}

/// An operator that a build has added. What its saved state means, its author says by the version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Custom {
    /// The operator's name.
    pub name: String,
    /// The version that its author gives; `version` is that of all identities.
    #[serde(rename = "operator_version")]
    pub version: u32,
    /// The arguments of the call, by their parameters.
    pub arguments: String,
    /// The inputs.
    pub inputs: Vec<CustomInput>,
    /// The types of the saved state.
    pub saved: Vec<Type>,
    /// The types of the rows whose hashes are kept, of an operator that retracts rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emitted: Option<Vec<Type>>,
}

/// The rows of one input of a custom operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomInput {
    /// The columns that the operator gets.
    pub rows: Vec<Column>,
    /// The key columns, as indices into `rows`.
    pub keys: Vec<usize>,
    /// The event-time column; `null` if rows come in the order of arrival.
    pub time: Option<usize>,
}

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    #[serde(flatten)]
    state: &'a StateIdentity,
}

impl StateIdentity {
    /// The JSON of the identity in a checkpoint.
    pub fn to_json(&self) -> Value {
        let written = Written {
            version: VERSION,
            state: self,
        };
        serde_json::to_value(written).expect("maps with plain keys")
    }

    /// The identity in a checkpoint.
    ///
    /// # Errors
    ///
    /// When a later version has written it, or the format is not valid.
    pub fn from_json(stored: &Value) -> Result<StateIdentity, String> {
        let mut fields = match stored {
            Value::Object(fields) => fields.clone(),
            _ => return Err("the identity of its state is not a JSON object".to_string()),
        };
        let version = fields.remove("version");
        match version.as_ref().and_then(Value::as_u64) {
            Some(1) => {}
            Some(later) => {
                return Err(format!(
                    "the identity of its state has version {later}, and this program supports versions up \
                    to {VERSION}"
                ));
            }
            None => return Err("the identity of its state has no version".to_string()),
        }
        serde_json::from_value(Value::Object(fields))
            .map_err(|error| format!("the identity of its state can't be read: {error}"))
    }

    /// The difference between two identities, for the user; `None` if they are equal.
    pub fn difference(stored: &Value, now: &Value) -> Option<String> {
        let both = StateIdentity::from_json(stored)
            .and_then(|before| Ok((before, StateIdentity::from_json(now)?)));
        match both {
            Ok((before, now)) => words::difference(&before, &now),
            Err(reason) => Some(reason),
        }
    }
}

#[cfg(test)]
mod tests;
