//! SQL text to query graph and operators. The only crate that names DataFusion.
//!
//! ```text
//! text → statements → session (tables, views, settings) → logical plans → query graph + operators
//!        statement.rs  session.rs table.rs settings.rs     session.rs      node/*.rs
//! ```

pub mod error;
pub mod settings;
pub mod statement;
pub mod types;

mod as_of;
mod check;
mod common_types;
pub mod functions;
mod grouping_sets;
mod late_rows;
mod nulls;
mod operands;
mod order;
mod outputs;
mod prune;
pub mod session;
mod simplify;
mod subqueries;
pub mod table;
mod window;

mod aggregates;
pub mod changelog;
pub mod explain;
mod expression;
pub mod node;
pub mod program;
pub mod specs;
pub mod state;
pub mod warnings;

pub use error::SqlError;
pub use program::{Program, compile};
