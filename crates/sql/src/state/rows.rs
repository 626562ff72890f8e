//! Rows in stored identities: their columns, windows, keys and order.

use serde::{Deserialize, Serialize};

use super::Type;

/// A column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// The name of the column; for a computed column the canonical text of its expression.
    pub name: String,
    /// The type of the column.
    #[serde(rename = "type")]
    pub data_type: Type,
}

/// Rows that are kept in windows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowRows {
    /// The columns of the rows.
    pub rows: Vec<Column>,
    /// The key columns, each of whose values has windows of its own, as indices into `rows`.
    pub keys: Vec<usize>,
    /// The windows.
    pub window: Window,
}

/// The rows of one input of a join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Side {
    /// The columns of the rows.
    pub rows: Vec<Column>,
    /// The key columns.
    pub keys: Vec<usize>,
}

/// The rows of one input that are kept by event time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedSide {
    /// The columns of the rows.
    pub rows: Vec<Column>,
    /// The key columns.
    pub keys: Vec<usize>,
    /// The event-time column.
    pub time: usize,
}

/// A column by which rows are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SortColumn {
    /// The index of the column.
    pub column: usize,
    /// Whether the order is descending.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub descending: bool,
    /// Whether NULL comes first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nulls_first: bool,
}

/// A direction without a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direction {
    /// Whether the order is descending.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub descending: bool,
    /// Whether NULL comes first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nulls_first: bool,
}

/// The windows of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// The kind of the windows.
    pub kind: WindowKind,
    /// The length of a window, the gap of sessions, or the number of rows of a count window.
    pub size: i64,
    /// The distance between the starts of windows; for cumulating windows between their ends.
    pub slide: i64,
    /// The unit of `size` and `slide`, unless they are rows, and of the windows' edges.
    pub unit: Unit,
}

/// A kind of windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WindowKind {
    /// TUMBLE and HOP.
    #[serde(rename = "aligned")]
    Aligned,
    /// CUMULATE.
    #[serde(rename = "cumulating")]
    Cumulating,
    /// SESSION.
    #[serde(rename = "session")]
    Session,
    /// COUNT_WINDOW.
    #[serde(rename = "count")]
    Count,
}

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Seconds.
    #[serde(rename = "s")]
    Second,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Millisecond,
    /// Microseconds.
    #[serde(rename = "us")]
    Microsecond,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanosecond,
}

/// The rows that a join returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinKind {
    /// Pairs.
    #[serde(rename = "inner")]
    Inner,
    /// Pairs, and left rows without a partner.
    #[serde(rename = "left")]
    Left,
    /// Pairs, and right rows without a partner.
    #[serde(rename = "right")]
    Right,
    /// Pairs, and rows of both inputs without a partner.
    #[serde(rename = "full")]
    Full,
    /// Left rows with a partner.
    #[serde(rename = "semi")]
    Semi,
    /// Left rows without a partner.
    #[serde(rename = "anti")]
    Anti,
}
