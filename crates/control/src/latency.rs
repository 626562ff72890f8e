//! From a latency target to the cheapest way to run a query, and keep it running that way.
//!
//! ```text
//! calibrated links ─► chunk ─► message: bytes of a message between processes
//! calibration, learned costs ─► model ─► planner ─► shape: groups, way to wait, chunks
//!        ▲                                              │
//!        fit ◄── counters of the engine                 ▼
//!                     └──────────────► controller ─► delay, rows per chunk
//!                     └──────────────► elastic    ─► which worker runs which instance
//! ```
//!
//! Everything here is a function or a state machine: times and counts in, decisions out.

pub mod chunk;
pub mod message;
pub mod model;

pub mod planner;

pub mod controller;
pub mod elastic;
pub mod fit;
pub mod lateness;
