//! Tests of the link between hosts, over the loopback device: streams, credits, broken connections,
//! hostile peers, and idleness. The contract of every kind of link is tested in `conformance.rs`.

#![cfg(not(loom))]

#[path = "tcp/harness.rs"]
mod harness;

#[path = "tcp/breaks.rs"]
mod breaks;
#[path = "tcp/credits.rs"]
mod credits;
#[path = "tcp/ends.rs"]
mod ends;
#[path = "tcp/hostile.rs"]
mod hostile;
#[path = "tcp/idle.rs"]
mod idle;
#[path = "tcp/streams.rs"]
mod streams;

/// No seal: the suite of `tcp_sealed.rs` has one.
fn guard() -> Option<std::sync::Arc<dyn slackwater_link::tcp::Guard>> {
    None
}

/// What the readers' connections have.
fn reading() -> slackwater_link::tcp::Carrier {
    guard().into()
}

/// What the writers' connections have.
fn writing() -> slackwater_link::tcp::Carrier {
    guard().into()
}

/// Why a stranger is refused.
const STRANGER: &str = "does not use this protocol";

/// Whether this may be the answer to a stranger: nothing.
fn may_tell_a_stranger(answer: &[u8]) -> bool {
    answer.is_empty()
}
