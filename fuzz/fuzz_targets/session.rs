//! What an agent and an orchestrator send each other: `crates/secure/src/frames.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| slackwater_secure::fuzz::fuzz_session(bytes));
