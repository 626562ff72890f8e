//! Messages from frames: `crates/engine/src/wire.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| slackwater_engine::wire::fuzz_decode(bytes));
