//! The tests of `tcp.rs` over a seal that cuts, joins, pads and withholds.

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
#[path = "tcp/rough_seal.rs"]
mod rough_seal;
#[path = "tcp/streams.rs"]
mod streams;

fn guard() -> Option<std::sync::Arc<dyn slackwater_link::tcp::Guard>> {
    Some(rough_seal::rough_guard(1))
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
const STRANGER: &str = "does not use this seal";

/// Whether this may be the answer to a stranger: nothing.
fn may_tell_a_stranger(answer: &[u8]) -> bool {
    answer.is_empty()
}
