//! The durable half of checkpoints: what is stored, when it is valid, and how a query comes back from it.
//! It knows nothing of the engine; plain data in, plain data out.
//!
//! ```text
//!          snapshots                             manifest, last
//! members ───────────► part.rs ─► store.rs ◄──────────────────── coordinator.rs ─► commit
//!                                    │                             (chain.rs: base or increment)
//!                                    ▼
//!                recovery.rs ─► newest valid ─► compatible.rs ─► members of the next incarnation
//! ```
//!
//! `coordinator.rs` and `recovery.rs` are pure state machines: no clock, no I/O, no threads. What the whole
//! promises, and what of it the simulator checks: `docs/internals/checkpoints.md`.

mod error;
pub use error::{Error, Kind, Result};

pub mod manifest;
pub mod part;

mod location;
mod runner;
mod store;
pub use runner::Runner;
pub use store::{Found, Incarnation, PartRequest, PartWriter, Store, Swept};

pub mod chain;
mod clock;
pub mod compatible;
pub mod coordinator;
pub mod recovery;

#[doc(hidden)]
pub mod fuzz;

#[cfg(test)]
mod simulation;
