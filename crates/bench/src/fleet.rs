//! Processes that run one deployment for a bench, over the links and relays of the engine.
//!
//! ```text
//! whoever measures (parent) ── orders, what was seen ──┬── process 0: the source, and instances
//!                                                      └── process 1, 2 …: instances     (child)
//! ```
//!
//! A run is a list of phases, one after the other over the same links. In each the source sends messages
//! of one size, either spaced, so that every one finds a resting deployment, or as fast as the links
//! take them. What the figures contain:
//!
//! - A **message** is a chunk of numbers, 8 bytes each. Whoever gets it reads one of every cache line.
//! - **Latency** is from the moment at which the source hands a message to the engine until the last
//!   of all sinks has it, in whatever process: the clocks of one host are one.
//! - **Throughput** is from the first message until the last sink has the last one.
//! - **CPU time** is that of all processes, as the operating system counts it.
//! - **Namespaces**: where asked for, each process has a network of its own, and all of them a bridge; the
//!   nearest to hosts that one machine has.
//! - **A worker thread in each process**, unpinned, which waits by interrupt: nothing spins.
//!
//! Shutdown: when all phases are done the processes are killed. The kernel ends them with whoever
//! measures, and one that fails says why on standard error, which ends the run with an error.

mod child;
mod load;
mod namespaces;
mod parent;
mod shape;

pub use load::{Pace, Phase};
pub use namespaces::are_allowed as namespaces_are_allowed;
pub use parent::{Links, Seen, Setup, run};
pub use shape::Shape;

use crate::party::PartArguments;

/// Runs one process of a fleet.
pub fn run_part(arguments: &PartArguments) -> Result<(), String> {
    child::run(arguments.control)
}
