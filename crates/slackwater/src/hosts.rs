//! Who runs a query: threads of this process, or worker processes of this machine.
//!
//! ```text
//! supervisor ─► LocalHost ─┬─ thread ───────────────────────────► Executor ─► workers
//!            ◄─            └─ control socket ─► worker process 0 ─► Executor ─► workers ─┐ links: shared
//!                                           ─► worker process 1 ─► Executor ─► workers ─┘ memory or TCP
//! ```
//!
//! A host is told [`HostCommand`]s and reports [`HostEvent`]s; whether a queue or a socket carries them is
//! its own business.
//!
//! For several processes this program is started once for each, and is told its part: the text, the
//! settings, its number. Each compiles and plans for itself, which gives all of them the same
//! deployment (they compare fingerprints), builds its own part, and connects it with the others'.
//! Rows never pass through the first process; the control sockets carry commands down, and events and
//! counters up. State that moves with its buckets is passed on unread, in memory files.
//!
//! Invariants:
//! - Telling a host something never blocks: each queue is bounded, and a process that doesn't take what it
//!   is told is lost.
//! - No orphans: a worker process whose control socket ends drops its part and exits; the first process
//!   waits for every process that it started, and kills the one that doesn't go.
//! - A worker process that dies is an error of the query, which names the process and how it died.
//! - While nothing happens nobody wakes up (I7): all threads here wait for a queue or a socket.
//!
//! In layers: what is said (`protocol`, `counts`, `steps`), how it gets there (`channel`, `handover`,
//! `outbox`), who runs a part (`phases`, `executor`, `connect`), and the two ways to have parts run
//! (`threads`;
//! `processes` with `reader`, and `worker_process` on the other side). `starting`
//! chooses, and is a `local` host once the query runs.

mod counts;
mod phases;
mod protocol;
mod steps;

pub mod channel;
mod handover;
mod outbox;

pub mod connect;
mod executor;

mod local;
mod processes;
mod reader;
mod starting;
mod threads;
mod work;
mod worker_process;

pub(crate) use counts::FinalCounts;
pub(crate) use local::LocalHost;
pub(crate) use phases::{Pending, Phase, recommit};
pub use processes::mesh;
pub(crate) use protocol::{HostCommand, HostEvent};
pub(crate) use starting::StartingHost;
pub(crate) use work::Work;
pub(crate) use worker_process::main as worker_main;
