//! The link between processes of one host: lanes in shared memory.
//!
//! ```text
//! process A                      memory of an inbox (memfd)            process B
//! Writer ── gather copy ──► lane 0: ring of pieces ◄── in place ── Reader
//! Writer ─────────────────► lane 1 …                             ◄── Reader
//!    └── doorbell of B's worker (memfd page + eventfd) ──► its waiter
//! ```
//!
//! A worker that reads makes one [`Inbox`], with one lane for each writer: no two writers share anything,
//! so one that is killed harms only its own lane. The inbox and the doorbells of both sides travel as
//! descriptors over a Unix socket ([`handover`]), and nothing has a name: when the last process is gone,
//! however it ended, the kernel takes everything back.
//!
//! Messages to several processes are written once, into a [`Feed`]: a lane with a cursor for each reader,
//! in memory of the process that writes.
//!
//! The contract is in [`crate::kinds`]. In addition:
//!
//! - A frame that is larger than a quarter of its lane is cut into pieces, and reassembled by the reader.
//!   Pieces that did not fit stay with the writer, which sends them at each `push`.
//! - A process that ends is noticed through its [`Peer`]: a thread of this process sleeps on the Unix
//!   sockets and marks the peer when its socket ends. No timer runs.
//!
//! Shutdown: an end that is dropped marks its lane and wakes the other end.

mod ends;
mod feed;
pub mod handover;
mod inbox;
mod peer;
mod segment;

pub use ends::{Reader, Writer};
pub use feed::{FEED_READERS_MAX, Feed, Subscription};
pub use inbox::{Inbox, LANES_MAX, Outbox};
pub use peer::{Peer, Watch, watch};
pub use segment::LANE_BYTES_MIN;
