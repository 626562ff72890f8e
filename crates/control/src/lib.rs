//! Pure decisions: what runs where. No threads, sockets or clock; plain data in, plain data out.
//!
//! ```text
//! query graph  →  subqueries  →  execution graph  →  placement
//!   query.rs        split.rs        expand.rs          place.rs  (demand.rs, topology.rs, cluster.rs)
//!                                       ▲  links of broadcasts: broadcast.rs; copies per node: copies.rs
//! ```
//!
//! Of other hosts: what their clocks show (`clock.rs`), when they are lost (`lease.rs`), how many are wanted
//! (`wanted.rs`). Of other people's servers that replicate: which of them may be slow (`power.rs`).
//!
//! The engine can't import this crate, and this crate can't import the engine: the program translates a
//! placed execution graph into the engine's `Deployment`.

pub mod query;
pub mod split;

pub mod copies;
pub mod expand;

pub mod demand;
pub mod place;
pub mod topology;

pub mod cluster;

pub mod balance;
pub mod broadcast;

pub mod latency;

pub mod clock;
pub mod lease;
pub mod wanted;

pub mod power;
