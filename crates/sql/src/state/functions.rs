//! Functions whose states are stored.

use serde::{Deserialize, Serialize};

use super::{Column, Direction, Type};

/// A call of an aggregate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The function.
    pub function: Function,
    /// What it is called with.
    pub arguments: Vec<Column>,
    /// It has a FILTER. Which rows pass is no part of the identity: it only decides which rows come.
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
        /// Type of the result.
        #[serde(rename = "type")]
        to: Type,
    },
    /// AVG.
    #[serde(rename = "avg")]
    Average,
    /// MIN.
    #[serde(rename = "min")]
    Min {
        /// Type of the argument.
        #[serde(rename = "type")]
        of: Type,
    },
    /// MAX.
    #[serde(rename = "max")]
    Max {
        /// Type of the argument.
        #[serde(rename = "type")]
        of: Type,
    },
    /// FIRST_VALUE.
    #[serde(rename = "first-value")]
    First {
        /// IGNORE NULLS.
        ignore_nulls: bool,
        /// Type of the argument.
        #[serde(rename = "type")]
        of: Type,
    },
    /// LAST_VALUE.
    #[serde(rename = "last-value")]
    Last {
        /// IGNORE NULLS.
        ignore_nulls: bool,
        /// Type of the argument.
        #[serde(rename = "type")]
        of: Type,
    },
    /// PERCENTILE_CONT and MEDIAN.
    #[serde(rename = "quantile")]
    Quantile {
        /// Between 0 and 1, in the fewest digits that give the same DOUBLE: JSON readers round numbers.
        fraction: String,
        /// Type of the argument.
        #[serde(rename = "type")]
        of: Type,
    },
    /// A function of distinct arguments.
    #[serde(rename = "distinct")]
    Distinct {
        /// The function.
        function: Box<Function>,
        /// Types of the arguments.
        arguments: Vec<Type>,
    },
    /// A function of a library, or a user's own.
    #[serde(rename = "other")]
    Other {
        /// The name that it is called by, in SQL.
        function: String,
        /// Types of the arguments; empty for a user's own function, which has those of its columns.
        arguments: Vec<Type>,
        /// Arguments that are constants, as SQL.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        constants: Vec<String>,
        /// The directions of WITHIN GROUP (ORDER BY …).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        order: Vec<Direction>,
        /// IGNORE NULLS.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ignore_nulls: bool,
    },
}

/// A call of a function of the rows before each row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverCall {
    /// The function.
    pub function: OverFunction,
    /// The columns that it is called with.
    pub arguments: Vec<usize>,
    /// The column of its FILTER.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<usize>,
}

/// A function of the rows before each row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", deny_unknown_fields)]
pub enum OverFunction {
    /// An aggregate of a frame.
    #[serde(rename = "aggregate")]
    Aggregate {
        /// The function.
        function: Function,
        /// The rows that it takes.
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
        /// How many rows back.
        offset: u64,
        /// Type of the argument.
        #[serde(rename = "type")]
        of: Type,
    },
}

/// The rows of a frame, which ends with the current row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// So many rows before it; `null` for all.
    #[serde(rename = "rows")]
    Rows(Option<u64>),
    /// Rows at most so many microseconds before it; `null` for all.
    #[serde(rename = "range_us")]
    Range(Option<i64>),
}
