//! The greeting of an unknown peer to a link's acceptor: `crates/link/src/tcp/acceptor.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| slackwater_link::fuzz::fuzz_greeting(bytes));
