//! What identifies the state of an operator in a checkpoint: plain data in a format of its own.
//!
//! A query resumes from a checkpoint where the identities of its states equal those that the checkpoint
//! holds, so every word that is written here is a promise to what is stored. No name of a type of Rust, Arrow
//! or DataFusion is written, and no prose: each word stands in a `rename` or in [`data_type`], and changes
//! only with [`VERSION`]. `docs/internals/checkpoints.md` describes the format.
//!
//! - `node::identity` derives it from what an operator is made from.
//! - [`words`] tells a user what differs.
//! - [`legacy`] is what was stored before there was this format.

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

/// The version that is written. It changes when an earlier reader would misread what is written; a field that
/// is added has a default that is not written, and needs no new version.
pub const VERSION: u32 = 1;

/// What the state of a node means. Two nodes with equal identities can read each other's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operator")]
pub enum StateIdentity {
    /// The positions of a table that is read.
    #[serde(rename = "source")]
    Source(Source),
    /// The commits of a table that is written.
    #[serde(rename = "sink")]
    Sink(Sink),
    /// Groups and their aggregates.
    #[serde(rename = "aggregate")]
    Aggregate(Aggregate),
    /// Rows of sessions.
    #[serde(rename = "session-rows")]
    SessionRows(WindowRows),
    /// Rows of windows of so many rows.
    #[serde(rename = "count-window")]
    CountWindow(WindowRows),
    /// Rows of two inputs by window.
    #[serde(rename = "window-join")]
    WindowJoin(WindowJoin),
    /// Rows of two inputs by time.
    #[serde(rename = "interval-join")]
    IntervalJoin(IntervalJoin),
    /// Rows of a stream, and versions of a table.
    #[serde(rename = "temporal-join")]
    TemporalJoin(TemporalJoin),
    /// Rows of two inputs.
    #[serde(rename = "stream-join")]
    StreamJoin(StreamJoin),
    /// Rows that functions of the rows before each row look back to.
    #[serde(rename = "over")]
    Over(Over),
    /// The first rows of each partition.
    #[serde(rename = "first-rows")]
    FirstRows(FirstRows),
    /// The rows that are left when the input has ended.
    #[serde(rename = "final-rows")]
    FinalRows(FinalRows),
}

/// A table that is read. What a position means is its connector's.
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
    /// The path, address or topic that it writes to; empty where the connector has one place only.
    pub place: String,
    /// The table of a database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// The column that says where each row goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
}

/// Groups and their aggregates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aggregate {
    /// What rows are grouped by, without the window.
    pub keys: Vec<Column>,
    /// The aggregates.
    pub aggregates: Vec<Call>,
    /// The window that is part of each group's key.
    pub window: Option<Window>,
    /// How the state is laid out.
    pub form: AggregateForm,
}

/// How groups are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AggregateForm {
    /// Accumulators.
    #[serde(rename = "plain")]
    Plain,
    /// Accumulators of windows that are emitted more than once.
    #[serde(rename = "refires")]
    Refires,
    /// The same, with the row that was emitted last.
    #[serde(rename = "refires-with-before")]
    RefiresWithBefore,
    /// Accumulators that can take rows back.
    #[serde(rename = "takes-back")]
    TakesBack,
    /// Accumulators, with the row that was emitted last.
    #[serde(rename = "with-before")]
    WithBefore,
    /// Accumulators of sessions that merge.
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
    /// The windows of both.
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
    /// Which rows come out.
    pub kind: JoinKind,
    /// The right row's time less the left row's is at least this, in microseconds.
    pub from_us: i64,
    /// And at most this.
    pub to_us: i64,
}

/// A join with the versions of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemporalJoin {
    /// Key columns of the stream.
    pub stream_keys: Vec<usize>,
    /// Key columns of the table.
    pub table_keys: Vec<usize>,
    /// The columns of the table.
    pub table: Vec<Column>,
    /// The columns of a pair: the stream's, then the table's.
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
    /// Which rows come out: only outer, semi and anti joins count partners.
    pub kind: JoinKind,
    /// Rows that have found a partner are not kept.
    pub settles: bool,
}

/// Functions of the rows before each row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Over {
    /// The rows.
    pub rows: TimedSide,
    /// The functions.
    pub functions: Vec<OverCall>,
}

/// The first rows of each partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirstRows {
    /// The columns of a row.
    pub rows: Vec<Column>,
    /// The columns of the partition, that of the window among them.
    pub keys: Vec<usize>,
    /// What rows are ordered by.
    pub order: Vec<SortColumn>,
    /// How many rows of each partition are kept; `null` for all.
    pub kept: Option<u64>,
    /// The window that is part of the partition.
    pub window: Option<Window>,
}

/// The rows that are left when the input has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FinalRows {
    /// The columns of a row.
    pub rows: Vec<Column>,
    /// What rows are ordered by.
    pub order: Vec<SortColumn>,
    /// How many rows are kept; `null` for all.
    pub kept: Option<u64>,
}

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    #[serde(flatten)]
    state: &'a StateIdentity,
}

impl StateIdentity {
    /// What a checkpoint holds of it.
    pub fn to_json(&self) -> Value {
        let written = Written {
            version: VERSION,
            state: self,
        };
        serde_json::to_value(written).expect("maps with plain keys")
    }

    /// What a checkpoint holds.
    ///
    /// # Errors
    ///
    /// When a later version wrote it, or it has another form.
    pub fn from_json(stored: &Value) -> Result<StateIdentity, String> {
        let mut fields = match stored {
            Value::Object(fields) => fields.clone(),
            _ => return Err("what its state means can't be read: it is no object".to_string()),
        };
        let version = fields.remove("version");
        match version.as_ref().and_then(Value::as_u64) {
            Some(1) => {}
            Some(later) => {
                return Err(format!(
                    "what its state means has version {later}, and this version reads up to {VERSION}"
                ));
            }
            None => return Err("what its state means can't be read: it has no version".to_string()),
        }
        serde_json::from_value(Value::Object(fields))
            .map_err(|error| format!("what its state means can't be read: {error}"))
    }

    /// Why state with the identity `stored` is not state with the identity `now`; `None` where it is.
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
