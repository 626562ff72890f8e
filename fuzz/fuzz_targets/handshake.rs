//! What an unknown peer sends to a door, a sealed acceptor or whoever connects: `crates/secure/src/tls.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| slackwater_secure::fuzz::fuzz_handshake(bytes));
