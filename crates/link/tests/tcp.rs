//! The link between hosts, over the loopback device: streams, credits, broken connections, hostile
//! peers, and idleness. What every kind of link has to keep is in `conformance.rs`.

#![cfg(not(loom))]

#[path = "tcp/harness.rs"]
mod harness;

#[path = "tcp/breaks.rs"]
mod breaks;
#[path = "tcp/credits.rs"]
mod credits;
#[path = "tcp/hostile.rs"]
mod hostile;
#[path = "tcp/idle.rs"]
mod idle;
#[path = "tcp/streams.rs"]
mod streams;
