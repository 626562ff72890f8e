//! What stored rows are: their columns, windows, keys and order.

use serde::{Deserialize, Serialize};

use super::Type;

/// A column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Its name; of a computed column the canonical text of its expression.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub of: Type,
}

/// Rows kept in windows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowRows {
    /// The columns of a row.
    pub rows: Vec<Column>,
    /// The columns whose values have windows of their own, as numbers of columns of `rows`, from 0.
    pub keys: Vec<usize>,
    /// The windows.
    pub window: Window,
}

/// Rows of one input of a join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Side {
    /// The columns of a row.
    pub rows: Vec<Column>,
    /// The columns that it is found by.
    pub keys: Vec<usize>,
}

/// Rows of one input that are kept by event time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedSide {
    /// The columns of a row.
    pub rows: Vec<Column>,
    /// The columns that it is found by.
    pub keys: Vec<usize>,
    /// The event-time column.
    pub time: usize,
}

/// A column that rows are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SortColumn {
    /// Its number.
    pub column: usize,
    /// Largest first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub descending: bool,
    /// NULL comes first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nulls_first: bool,
}

/// A direction without a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direction {
    /// Largest first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub descending: bool,
    /// NULL comes first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nulls_first: bool,
}

/// Windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// What makes a window.
    pub kind: WindowKind,
    /// Its length; the gap of sessions; rows of a count window.
    pub size: i64,
    /// The distance between windows: between their ends where they cumulate, else between their starts.
    pub slide: i64,
    /// What `size` and `slide` are in, unless they are rows; the unit of the windows' edges.
    pub unit: Unit,
}

/// What makes a window.
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

/// Which rows of a join come out.
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
