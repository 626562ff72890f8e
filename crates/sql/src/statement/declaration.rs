//! The declarations of CREATE TABLE, as they are written.

use std::collections::BTreeMap;

use sqlparser::ast::{Expr, Ident, Query};
use sqlparser::tokenizer::Span;

use crate::types::SqlType;

/// `CREATE TABLE name (columns) WITH (options)`.
#[derive(Debug, Clone)]
pub struct CreateTable {
    /// The name of the table.
    pub name: Ident,
    /// `IF NOT EXISTS`: no error if there is already a table with this name.
    pub if_not_exists: bool,
    /// The columns in their order.
    pub columns: Vec<ColumnDefinition>,
    /// `WATERMARK FOR column AS expression`.
    pub watermark: Option<(Ident, Expr)>,
    /// `PRIMARY KEY (columns) NOT ENFORCED`; empty for none.
    pub primary_key: Vec<Ident>,
    /// `COMMENT 'text'`.
    pub comment: Option<String>,
    /// `WITH (options)`.
    pub options: BTreeMap<String, String>,
    /// The place of each option.
    pub option_places: BTreeMap<String, Span>,
    /// `LIKE table (…)`: the table to copy from.
    pub like: Option<Like>,
    /// `AS query`: the query that defines the columns and whose rows are written to the table.
    pub query: Option<Box<Query>>,
}

/// A column.
#[derive(Debug, Clone)]
pub struct ColumnDefinition {
    /// The name of the column.
    pub name: Ident,
    /// Where the values come from.
    pub kind: ColumnKind,
    /// `NOT NULL`: a row with a NULL is rejected.
    pub not_null: bool,
    /// `COMMENT 'text'`.
    pub comment: Option<String>,
}

/// Where the values of a column come from.
#[derive(Debug, Clone)]
pub enum ColumnKind {
    /// Read from the source.
    Physical(SqlType),
    /// `METADATA FROM 'key'`: what the source knows about a row besides its columns.
    Metadata(SqlType, String),
    /// Computed from other columns.
    Computed(Box<Expr>),
}

/// `LIKE other (…)`: the other table, and what is copied from it.
#[derive(Debug, Clone)]
pub struct Like {
    /// The name of the other table.
    pub source: Ident,
    /// The rule for each of [`PARTS`].
    pub(super) rules: [Rule; PARTS.len()],
}

/// The rule for a part that both tables may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// The part is copied, and must not be declared again.
    Including,
    /// The part is not copied.
    Excluding,
    /// The part is copied, unless the new table declares it.
    Overwriting,
}

/// The parts of a table in LIKE. Columns that are read or written are always copied.
pub(super) const PARTS: [&str; 5] = [
    "CONSTRAINTS",
    "GENERATED",
    "METADATA",
    "OPTIONS",
    "WATERMARKS",
];
pub(super) const CONSTRAINTS: usize = 0;
pub(super) const GENERATED: usize = 1;
pub(super) const METADATA: usize = 2;
pub(super) const OPTIONS: usize = 3;
pub(super) const WATERMARKS: usize = 4;
