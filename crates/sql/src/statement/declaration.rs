//! What CREATE TABLE declares, as it was written.

use std::collections::BTreeMap;

use sqlparser::ast::{Expr, Ident, Query};
use sqlparser::tokenizer::Span;

use crate::types::SqlType;

/// `CREATE TABLE name (columns) WITH (options)`.
#[derive(Debug, Clone)]
pub struct CreateTable {
    /// Its name.
    pub name: Ident,
    /// `IF NOT EXISTS`: no error when there is a table of that name.
    pub unless_known: bool,
    /// Its columns in order.
    pub columns: Vec<ColumnDefinition>,
    /// `WATERMARK FOR column AS expression`.
    pub watermark: Option<(Ident, Expr)>,
    /// `PRIMARY KEY (columns) NOT ENFORCED`; empty for none.
    pub primary_key: Vec<Ident>,
    /// `COMMENT 'text'`.
    pub comment: Option<String>,
    /// `WITH`, and where each option stands.
    pub options: BTreeMap<String, String>,
    /// Where each option stands.
    pub option_places: BTreeMap<String, Span>,
    /// `LIKE table (…)`: what it takes over from another table.
    pub like: Option<Like>,
    /// `AS query`: what gives it its columns and is written to it.
    pub query: Option<Box<Query>>,
}

/// A column.
#[derive(Debug, Clone)]
pub struct ColumnDefinition {
    /// Its name.
    pub name: Ident,
    /// What it holds.
    pub kind: ColumnKind,
    /// `NOT NULL`: a row without a value is rejected.
    pub not_null: bool,
    /// `COMMENT 'text'`.
    pub comment: Option<String>,
}

/// What a column holds.
#[derive(Debug, Clone)]
pub enum ColumnKind {
    /// Read from the source.
    Physical(SqlType),
    /// `METADATA FROM 'key'`: what the source knows of a row beside its columns.
    Metadata(SqlType, String),
    /// Computed from other columns.
    Computed(Box<Expr>),
}

/// `LIKE other (…)`: the other table, and what is taken over.
#[derive(Debug, Clone)]
pub struct Like {
    /// Its name.
    pub source: Ident,
    /// What happens to each of [`PARTS`].
    pub(super) rules: [Rule; PARTS.len()],
}

/// What happens to a part that both tables may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// It is taken over, and may not be declared again.
    Including,
    /// It is not taken over.
    Excluding,
    /// It is taken over where the new table doesn't declare it.
    Overwriting,
}

/// Parts of a table, as LIKE names them. Columns that are read or written are always taken over.
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
