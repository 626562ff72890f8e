//! Checkpoints of a running query: the engine's cuts, and the store that they are kept in.
//!
//! ```text
//! every process                         the process that was started by the user
//! Snapshot ─► CheckpointAgent ─► AgentEvent ─► Coordinator ─► Barrier, Commit ─► every process
//!              │ parts, commits                  │ manifests
//!              └────────────► store ◄────────────┘
//! ```
//!
//! - [`Members`]: what is checkpointed, and the names under which its state is found again.
//! - [`CheckpointAgent`], one in each process: stores snapshots and commits what sinks have prepared, on a
//!   thread of its own.
//! - [`Survival`]: what another version of the query can use of a checkpoint, for `run` and `check`.
//! - [`Restored`]: what instances resume from.
//!
//! The coordinator of an incarnation, and how an incarnation follows another, are in `supervisor/`; what all
//! of it promises in `docs/guarantees.md`.

mod agent;
mod list;
mod members;
mod restored;
mod shelf;
mod shown;
pub mod socket;
mod survival;

use serde::{Deserialize, Serialize};
use slackwater_checkpoint::manifest::Manifest;

pub use agent::{AgentEvent, CheckpointAgent, JobDone};
pub use list::list;
pub use members::{Members, takes_part};
pub use restored::{Restored, partitions_of, resumes};
pub use shelf::{FromShelf, SHELF_SOCKET, Shelf, ToShelf};
use shown::shown;
pub use survival::{Fate, NodeSurvival, PartitionSurvival, Survival};

/// What every process needs to know about an incarnation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Incarnation {
    /// The place of the store.
    pub place: String,
    /// The incarnation's number.
    pub epoch: u64,
    /// The checkpoint that the incarnation resumes from.
    pub manifest: Option<Manifest>,
    /// Rows during which processes have died.
    pub suspects: Vec<Suspected>,
}

/// Rows of a source during which a process has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Suspected {
    /// The source's node in the query graph.
    pub node: usize,
    /// The partition's number.
    pub partition: u32,
    /// The position of the first row.
    pub first: u64,
    /// The position of the last row.
    pub last: u64,
}
