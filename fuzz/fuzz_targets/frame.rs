//! Frames from a lane of shared memory or a TCP connection: `crates/link/src/fuzz.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| slackwater_link::fuzz::fuzz_frames(bytes));
