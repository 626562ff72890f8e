//! What a server of Redis' protocol answers: `crates/power/src/facts/fuzz.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| slackwater_power::facts::fuzz::fuzz_replies(bytes));
