//! The durable half of checkpoints: what is stored, when it is valid, and how a query resumes from it. It is
//! independent of the engine: plain data in, plain data out.
//!
//! ```text
//!          snapshots                             manifest, last
//! members ───────────► part.rs ─► store.rs ◄──────────────────── coordinator.rs ─► commit
//!                                    │                             (chain.rs: base or increment)
//!                                    ▼
//!                recovery.rs ─► newest valid ─► compatible.rs ─► members of the next incarnation
//! ```
//!
//! One incarnation of a query starts and stores a checkpoint, and the next one resumes from it:
//!
//! ```
//! use slackwater_checkpoint::manifest::{Manifest, Node, Identity, Meaning, NodeKind};
//! use slackwater_checkpoint::{PartRequest, Runner, Store};
//! # use std::sync::Arc;
//! # use arrow_array::{Int64Array, RecordBatch};
//! # fn main() -> slackwater_checkpoint::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let place = directory.path().to_str().unwrap();
//! # let state = vec![RecordBatch::try_from_iter([("sum", Arc::new(Int64Array::from(vec![3])) as _)]).unwrap()];
//! let (runner, store) = (Runner::new()?, Store::open(place)?);
//! let (mut writer, found) = runner.run(store.begin(None))?;
//! assert!(found.manifest.is_none());
//!
//! // A worker, with a barrier that the coordinator has sent.
//! let request = PartRequest {
//!     barrier: 1, since: None, node: "sums", instance: 0, piece: 0, buckets: (0, 4095),
//!     owners: Some(1), watermark: None,
//! };
//! let part = runner.run(writer.parts().put(&request, &state))?;
//!
//! // The coordinator makes the manifest; sinks commit when this has succeeded.
//! # let (kind, meaning) = (NodeKind::Stateful, Meaning::State(1.into()));
//! # let identity = Identity { key: "sums".into(), kind, meaning };
//! # let node = Node { identity, instances: 1, watermark: None, parts: vec![part], partitions: vec![], pending: vec![] };
//! # let manifest = Manifest { barrier: 1, buckets: 4096, nodes: vec![node], ..Manifest::default() };
//! runner.run(writer.put_manifest(manifest))?;
//! runner.run(writer.sweep(3))?;
//!
//! // The first incarnation is fenced from here on.
//! let (_, found) = runner.run(store.begin(None))?;
//! let manifest = found.manifest.expect("it was stored");
//! let parts = manifest.node("sums").unwrap().parts_of(0, 2047);
//! for part in parts {
//!     assert_eq!(runner.run(store.read_part(part))?, state);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `coordinator.rs` and `recovery.rs` are pure state machines: no clock, no I/O, no threads.
//! `docs/internals/checkpoints.md` says what is promised, and what the simulator checks.

mod error;
pub use error::{Error, Kind, Result};

pub mod manifest;
pub mod part;

mod location;
mod runner;
mod store;
pub use runner::Runner;
pub use store::{CheckpointWriter, Found, OpenPart, PartRequest, PartWriter, Store, Swept};

pub mod chain;
mod clock;
pub mod compatible;
pub mod coordinator;
pub mod recovery;

#[doc(hidden)]
pub mod fuzz;

#[cfg(test)]
mod simulation;
