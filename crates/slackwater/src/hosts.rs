//! Runs a query: on threads of this process, or in worker processes on this machine.
//!
//! ```text
//! supervisor ─► Execution ─┬─ thread ───────────────────────────► Executor ─► workers
//!            ◄─            └─ control socket ─► worker process 0 ─► Executor ─► workers ─┐ links: shared
//!                                           ─► worker process 1 ─► Executor ─► workers ─┘ memory or TCP
//! ```
//!
//! A host is told [`HostCommand`]s and reports [`HostEvent`]s; whether a queue or a socket carries them is
//! hidden from both ends.
//!
//! With several processes, this program is started once for each and is sent the SQL,
//! the settings and its number. Each process compiles and plans the query, which gives all of them the same
//! deployment (they compare fingerprints), builds its own part, and connects it to the others' parts. Rows
//! never pass through the first process; the control sockets carry commands down, and events and counters up.
//! State that moves with its buckets is passed on unread, in memory files.
//!
//! Invariants:
//! - Telling a host something never blocks: each queue is bounded, and a process that doesn't read what it
//!   is sent is killed.
//! - No orphans: a worker process whose control socket ends drops its part and exits; the first process
//!   waits for every process that it started, and kills those that don't exit.
//! - A worker process that dies is an error of the query, which names the process and how it died.
//! - While nothing happens no thread wakes up (I7): all threads here wait for a queue or a socket.
//!
//! The layers: messages (`protocol`, `counts`, `measured`, `steps`), transport (`channel`, `handover`,
//! `outbox`), running a part (`phases`, `executor`, `connect`), and the two kinds of hosts (`threads`;
//! `processes` with `reader`, and `worker_process` on the other side). `starting` chooses between them and
//! becomes a `local` host once the query runs.

mod counts;
mod measured;
mod phases;
mod protocol;
mod steps;

pub mod channel;
mod handover;
mod outbox;

pub mod connect;
mod executor;

mod facts;
mod look;

mod host;
mod local;

mod work;

mod hearing;
mod processes;
mod threads;

mod execution;
mod starting;

mod worker_process;

pub(crate) use counts::FinalCounts;
pub(crate) use execution::Execution;
pub(crate) use facts::{Build, Facts, host_name};
pub(crate) use host::{Ended, Exit, Group, Hear, Host, HostProcesses, News, What};
pub(crate) use local::LocalHost;
pub use local::mesh;
pub(crate) use look::{Ask, Found};
pub(crate) use measured::Measured;
pub(crate) use phases::{Pending, Phase, recommit};
pub(crate) use protocol::{HostCommand, HostEvent, ProcessCommand, ProcessEvent};
pub(crate) use starting::StartingExecution;
pub(crate) use work::{Work, token};
pub(crate) use worker_process::main as worker_main;
