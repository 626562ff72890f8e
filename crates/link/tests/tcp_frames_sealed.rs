//! The tests of `tcp_frames.rs` under a seal that cuts, joins, pads and withholds.

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
#[path = "tcp/rough_port.rs"]
mod rough_port;
#[path = "tcp/rough_seal.rs"]
mod rough_seal;
#[path = "tcp/streams.rs"]
mod streams;

use slackwater_link::tcp::{Carrier, Guard};

fn guard() -> Option<std::sync::Arc<dyn Guard>> {
    Some(rough_seal::rough_guard(1))
}

fn reading() -> Carrier {
    Carrier {
        guard: guard(),
        transport: Some(rough_port::rough_transport(3)),
    }
}

fn writing() -> Carrier {
    Carrier {
        guard: guard(),
        transport: Some(rough_port::rough_transport(4)),
    }
}
