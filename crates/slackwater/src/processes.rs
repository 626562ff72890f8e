//! A query in several processes of this host.
//!
//! ```text
//! parent: run.rs ── Children ── control socket ──► worker process 0 ─┐ links: shared memory
//!         (compiles, plans, reports)          ──► worker process 1 ─┘ or TCP
//! ```
//!
//! The parent starts this program once for each process and tells it its part: the text, the
//! settings, its number. Each compiles and plans for itself, which gives all of them the same
//! deployment (they compare fingerprints), builds its own part, and connects it with the others'.
//! Rows never pass through the parent; the control sockets carry orders down, and events and
//! counters up. State that moves with its buckets is passed on unread, in memory files.
//!
//! Invariants:
//! - No orphans: a worker process whose control socket ends drops its part and exits; the parent
//!   waits for every process that it started, and kills the one that doesn't go.
//! - A worker process that dies is an error of the query, which names the process and how it died.
//! - While nothing happens nobody wakes up (I7): all threads here wait for a socket.

pub mod channel;
mod child;
pub mod connect;
mod moving;
mod parent;
mod protocol;

pub(crate) use child::main as worker_main;
pub use parent::mesh;
pub(crate) use parent::{Children, Work};
pub(crate) use protocol::Farewell;
