//! Functions in stored identities.

use serde::{Deserialize, Serialize};

use super::{Column, Direction, Type};

/// A call of an aggregate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The function.
    pub function: Function,
    /// The columns of the arguments.
    pub arguments: Vec<Column>,
    /// Whether the call has a FILTER. Its condition is not part of the identity: it only selects the rows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub filter: bool,
}

/// An aggregate function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", deny_unknown_fields)]
pub enum Function {
    /// COUNT.
    #[serde(rename = "count")]
    Count,
    /// SUM.
    #[serde(rename = "sum")]
    Sum {
        /// The type of the result.
        #[serde(rename = "type")]
        to: Type,
    },
    /// AVG.
    #[serde(rename = "avg")]
    Average,
    /// MIN.
    #[serde(rename = "min")]
    Min {
        /// The type of the argument.
        #[serde(rename = "type")]
        data_type: Type,
    },
    /// MAX.
    #[serde(rename = "max")]
    Max {
        /// The type of the argument.
        #[serde(rename = "type")]
        data_type: Type,
    },
    /// FIRST_VALUE.
    #[serde(rename = "first-value")]
    First {
        /// Whether NULL is ignored.
        ignore_nulls: bool,
        /// The type of the argument.
        #[serde(rename = "type")]
        data_type: Type,
    },
    /// LAST_VALUE.
    #[serde(rename = "last-value")]
    Last {
        /// Whether NULL is ignored.
        ignore_nulls: bool,
        /// The type of the argument.
        #[serde(rename = "type")]
        data_type: Type,
    },
    /// PERCENTILE_CONT and MEDIAN.
    #[serde(rename = "quantile")]
    Quantile {
        /// The fraction, between 0 and 1, with the fewest digits that read as the same DOUBLE: JSON readers
        /// round numbers.
        fraction: String,
        /// The type of the argument.
        #[serde(rename = "type")]
        data_type: Type,
    },
    /// A function with DISTINCT.
    #[serde(rename = "distinct")]
    Distinct {
        /// The function.
        function: Box<Function>,
        /// The types of the arguments.
        arguments: Vec<Type>,
    },
    /// A function of a library, or of the user.
    #[serde(rename = "other")]
    Other {
        /// The function's name in SQL.
        function: String,
        /// The types of the arguments; empty for a user's function, whose types are those of its columns.
        arguments: Vec<Type>,
        /// The constant arguments, as SQL.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        constants: Vec<String>,
        /// The directions of WITHIN GROUP (ORDER BY …).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        order: Vec<Direction>,
        /// Whether NULL is ignored.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ignore_nulls: bool,
    },
}

/// A call of a function with OVER.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverCall {
    /// The function.
    pub function: OverFunction,
    /// The columns of the arguments.
    pub arguments: Vec<usize>,
    /// The column of the call's FILTER.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<usize>,
}

/// A function with OVER.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", deny_unknown_fields)]
pub enum OverFunction {
    /// An aggregate over a frame.
    #[serde(rename = "aggregate")]
    Aggregate {
        /// The function.
        function: Function,
        /// The rows of the frame.
        frame: Frame,
    },
    /// ROW_NUMBER.
    #[serde(rename = "row-number")]
    RowNumber,
    /// RANK.
    #[serde(rename = "rank")]
    Rank,
    /// DENSE_RANK.
    #[serde(rename = "dense-rank")]
    DenseRank,
    /// LAG.
    #[serde(rename = "lag")]
    Lag {
        /// The number of rows to look back.
        offset: u64,
        /// The type of the argument.
        #[serde(rename = "type")]
        data_type: Type,
    },
}

/// The rows of a frame, which ends at the current row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// A number of rows before the current row; `null` for all.
    #[serde(rename = "rows")]
    Rows(Option<u64>),
    /// The rows within a number of microseconds before the current row; `null` for all.
    #[serde(rename = "range_us")]
    Range(Option<i64>),
}
