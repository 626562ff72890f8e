//! Redis' protocol over materialized views: any client of Redis reads the rows of a query while it runs.
//!
//! ```text
//! changes ─ Feed ─►  main thread: fetch, decode, look up  ── ring ──►  handler: encode, transfer
//!                         ▲ sockets are read here                          │ sockets are written here
//!                         └────────────── closed, full, room ◄─────────────┘
//! ```
//!
//! The read path is split as Concerto splits it (Lee and Lee, Appl. Sci. 2021, 11, 5731, section 4.3): two
//! thirds of what a read costs are encoding and transfer, and those run on a thread of their own, the
//! *ReadHandler*, which may have a faster core. The main thread owns the rows, so nothing is locked; a row is
//! replaced and never changed, so the handler encodes what was found while the next change is applied.
//!
//! Invariants:
//! - All replies of a connection, errors included, go through the ring, so they keep the order of commands.
//! - A command sees whole batches of changes: what one chunk of the query changed, or nothing of it.
//! - Every buffer is bounded (`REQUEST_BYTES_MAX`, `WAITING_MAX`, `WRITE_BYTES`, the rings). A
//!   client that does not read is not read from; the query never waits for one.
//! - Without clients and changes nothing wakes up.
//!
//! Shutdown: dropping the [`Door`] ends both threads and closes all connections.

mod table;

mod rows;

mod request;

mod reply;

mod options;

mod command;

mod handler;

mod connections;

mod door;

pub mod fuzz;

pub use door::Door;
pub use options::{Options, Role, RoleAnswer, SplitCores};
pub use table::{Change, Column, Feed, FeedClosed, TableSchema, key_of};

#[cfg(test)]
mod tests;
