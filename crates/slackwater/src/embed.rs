//! Queries of a program that embeds the engine: the Python module, and whoever else has the crate.
//!
//! ```text
//! text ─ Session::take ─► declared, explained, Prepared ─ Job::start ─► run, on a thread of its own
//!                                                           │              │ results.rs: a sink
//! given rows ─ Session::give ─► connect/feed.rs             ▼              ▼
//!                                                       Job::wait     Results::next: batches, as they come
//! ```
//!
//! - A session has declarations and settings, and runs nothing itself. Each of its queries is a run of its
//!   own, with the declarations before it.
//! - The rows of a SELECT wait in [`Results`], which is bounded: a reader that is slow slows the query down,
//!   as any slow sink does. A reader that is gone ends it.
//! - Sources and sinks of the program ([`Reader`], [`Writer`]) are tables, too: connect/custom.rs.
//! - Whoever waits names a limit, so that a program can look at its signals in between.

mod error;
mod folded;
mod job;
mod operators;
mod results;
mod session;
mod types;

pub use error::{Error, Kind};
pub use folded::folded;
pub use job::{Ended, Job};
pub use operators::{
    KeyedBatch, KeyedRan, OPERATORS, OperatorCall, OperatorDeclaration, OperatorFailure,
    OperatorRunner, StepFailure, TableRows, define_operator, operator_constants,
};
pub use results::{Batch, Next, Results};
pub use session::{Prepared, Session, Took};
pub use slackwater_connect::custom::{
    Bad, Custom, Offer, Outlet, PARTITIONS_MAX, Piece, Reader, Reading, Terms, Writer,
};
pub use slackwater_connect::feed::{Feed, Given, cast_whole};
pub use slackwater_engine::error::{Error as SourceError, Result};
pub use types::{columns, data_types, sql_columns, symbol};
