//! The data path of Slackwater: what happens to rows between a source and a sink.
//!
//! The modules, in the order in which data meets them:
//!
//! ```text
//! source → [operators, fused] → balancer → link → [operators, fused] → … → sink
//!          └── one instance ──┘                  └── one instance ──┘
//! ```
//!
//! This crate knows Arrow and links. It doesn't know SQL, DataFusion, files or sockets: sources, sinks
//! and expressions are traits. The control path uses four interfaces only: a [`deploy::Deployment`] and
//! [`protocol::Command`]s go down, [`counters`] and [`protocol::WorkerEvent`]s come up.

pub mod chunk;
pub mod error;
pub mod time;

pub mod format;
pub mod intake;
pub mod source;

pub mod accumulator;
pub mod expression;
pub mod hash;
pub mod key;
pub mod operator;
pub mod state;

pub mod balancer;
pub mod barrier;
pub mod budget;
pub mod checkpoint;
pub mod counted;
pub mod exchange;
pub mod ports;
pub mod recorder;
pub mod wire;

pub mod instance;
pub mod sink;
pub mod sink_step;

pub mod protocol;
pub mod worker;

pub mod counters;
pub mod deploy;
pub mod inline;
pub mod latency;
pub mod runtime;

#[cfg(test)]
mod testing;

pub use error::{Error, Result};
pub use slackwater_link as link;
