//! Processes that run one deployment for an experiment, over the links and relays of the engine.
//!
//! ```text
//! parent process ─────── orders, measurements ─────────┬── process 0: the source, and instances
//!                                                      └── process 1, 2 …: instances     (child)
//! ```
//!
//! A run is a list of phases, one after the other over the same links. In each phase the source sends
//! messages of one size, either spaced, so that each message finds an idle deployment, or as fast as the
//! links accept them. What the figures contain:
//!
//! - A **message** is a chunk of numbers, 8 bytes each. Each receiver reads one number of every cache
//!   line.
//! - **Latency** is from the moment at which the source passes a message to the engine until the last of
//!   all sinks has it, in whatever process: all processes of a host share a clock.
//! - **Throughput** is from the first message until the last sink has the last one.
//! - **CPU time** is that of all processes, as the operating system counts it.
//! - **Namespaces**: on request each process has a network of its own, connected by a bridge; this is the
//!   closest to several hosts that one machine offers.
//! - **A worker thread in each process**, unpinned, which waits by interrupt: nothing spins.
//!
//! Shutdown: when all phases have ended, the parent kills the processes. The kernel ends them if the
//! parent dies, and a process that fails reports the reason on standard error, which ends the run with an
//! error.

mod child;
mod load;
mod namespaces;
mod parent;
mod shape;

pub use load::{Pace, Phase};
pub use namespaces::are_allowed as namespaces_are_allowed;
pub use parent::{Links, Seen, Setup, run};
pub use shape::Shape;

use crate::part_process::PartArguments;

/// Runs one process of a fleet.
pub fn run_part(arguments: &PartArguments) -> Result<(), String> {
    child::run(arguments.control)
}
