//! The tests of `tcp.rs` for links whose bytes are in frames, over a network that loses, repeats, reorders
//! and damages some of them. Those that write the protocol by hand are left out: they know no frames.

#![cfg(not(loom))]

#[path = "tcp/harness.rs"]
mod harness;

#[path = "tcp/breaks.rs"]
mod breaks;
#[path = "tcp/credits.rs"]
mod credits;
#[path = "tcp/ends.rs"]
mod ends;
#[path = "tcp/frames.rs"]
mod frames;
#[path = "tcp/idle.rs"]
mod idle;
#[path = "tcp/rough_port.rs"]
mod rough_port;
#[path = "tcp/streams.rs"]
mod streams;

use slackwater_link::tcp::{Carrier, Guard};

fn guard() -> Option<std::sync::Arc<dyn Guard>> {
    None
}

fn reading() -> Carrier {
    Carrier {
        guard: None,
        transport: Some(rough_port::rough_transport(1)),
    }
}

fn writing() -> Carrier {
    Carrier {
        guard: None,
        transport: Some(rough_port::rough_transport(2)),
    }
}
