//! Parts of checkpoints, past their checksums: `crates/checkpoint/src/part.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| slackwater_checkpoint::fuzz::fuzz_part(bytes));
