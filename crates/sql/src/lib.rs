//! Turns SQL text into a query graph and its operators. The only crate that uses DataFusion directly.
//!
//! ```text
//!           parse            plan                                              translate
//! text ──► statements ──► session (tables, views, settings) ──► logical plans ──► query graph + operators
//!          statement/     session/, table.rs, settings/         simplify/, …       node/
//! ```
//!
//! Modules stand in the order of their layers: each imports only from those above it in this list. `error` is
//! at the top and knows no names: the modules that know them pass them in for suggestions. The table of
//! layers is in `tools/tidy/src/layers.rs`.

// Shared by all layers: errors, types, names, and how SQL is shown.
pub mod error;
pub mod explain;
pub mod names;
mod rewording;
pub mod types;
mod walk;

// Parse: from text to statements.
mod check;
pub mod settings;
pub mod statement;

// Expressions: functions, and how they are computed.
mod expression;
pub mod functions;
mod simplify;

// Plan: from statements to logical plans.
mod as_of;
mod broadcast;
mod common_types;
mod constants;
mod grouping_sets;
mod nulls;
mod operands;
mod operators;
mod outputs;
mod prune;
pub mod session;
mod subqueries;
pub mod table;
mod window;

// Translate: from logical plans to the query graph and its operators.
mod aggregates;
pub mod changelog;
pub mod connectors;
mod late_rows;
pub mod node;
mod order;
pub mod program;
pub mod read;
pub mod state;
pub mod warnings;

pub use error::SqlError;
pub use program::{Program, compile};
