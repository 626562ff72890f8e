//! What a client of Redis' protocol sends: `crates/serve/src/redis/fuzz.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| slackwater_serve::redis::fuzz::fuzz_requests(bytes));
